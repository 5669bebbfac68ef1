"""The ValidatingAdmissionPolicy that limits the account for app limits to what a settlement does. Pure.

It compares every field of a workload with its old value: all of `metadata` and `spec`, each container by its place.
It names the fields that may differ. For an interruption, the annotation must be true: it may be added only with the
change that it describes, it never changes, and it may be removed only when what it notes is put back.
"""

from edgegpu_agent.app_limits.lease import NAME as LEASE
from edgegpu_agent.app_limits.patches import ASIDE
from edgegpu_agent.kube.client import MANAGER
from edgegpu_base.kube import Json
from edgegpu_core.model import ResourceModel

WORKLOADS = ["deployments", "statefulsets", "daemonsets"]

_NAME = "edgegpu-limits"
_TEMPLATE_GENERATION = "deprecated.daemonset.template.generation"
"""The annotation in which the API server counts a DaemonSet's templates; it accepts no other number from a client."""

_MOST_UPDATERS = 10

_WRITTEN_BY_SERVER = "['annotations', 'generation', 'managedFields', 'resourceVersion']"
"""Fields of metadata that change with every update; annotations and managedFields have their own rules."""


def policy(model: ResourceModel, *, user: str) -> tuple[Json, Json]:
    """Return the policy and its binding.

    Args:
        model: the resources that may be written.
        user: the user name to which the policy applies.
    """
    rules = [_matched("apps", WORKLOADS, ["UPDATE"]), _matched("coordination.k8s.io", ["leases"], ["CREATE", "UPDATE"])]
    spec = {
        "failurePolicy": "Fail",
        "matchConstraints": {"resourceRules": rules},
        "matchConditions": [{"name": "the-agent", "expression": f"request.userInfo.username == '{user}'"}],
        "variables": [{"name": name, "expression": text} for name, text in _variables(model).items()],
        "validations": [{"expression": one, "message": f"edgegpu: {said}"} for one, said in _validations(model)],
    }
    version = "admissionregistration.k8s.io/v1"
    binding = {"policyName": _NAME, "validationActions": ["Deny"]}
    return (
        {"apiVersion": version, "kind": "ValidatingAdmissionPolicy", "metadata": {"name": _NAME}, "spec": spec},
        {
            "apiVersion": version,
            "kind": "ValidatingAdmissionPolicyBinding",
            "metadata": {"name": _NAME},
            "spec": binding,
        },
    )


def _matched(group: str, resources: list[str], operations: list[str]) -> Json:
    return {"apiGroups": [group], "apiVersions": ["*"], "resources": resources, "operations": operations}


def _variables(model: ResourceModel) -> dict[str, str]:
    """Return the policy's variables; the API server evaluates each only when a validation uses it."""
    notes = "!variables.lease && has({0}.metadata.annotations) ? {0}.metadata.annotations : {{}}"
    return {
        "lease": "request.resource.resource == 'leases'",
        "kind": "request.resource.resource",
        "ours": f"['{model.memory_resource}', '{model.core_resource}']",
        "old": "variables.lease ? {} : oldObject.spec",
        "new": "variables.lease ? {} : object.spec",
        "oldPod": "variables.lease ? {} : oldObject.spec.template.spec",
        "newPod": "variables.lease ? {} : object.spec.template.spec",
        "oldMeta": "oldObject == null ? {} : oldObject.metadata",
        "newMeta": "object.metadata",
        "oldNotes": notes.format("oldObject"),
        "newNotes": notes.format("object"),
        "oldAside": f"'{ASIDE}' in variables.oldNotes ? variables.oldNotes['{ASIDE}'] : ''",
        "newAside": f"'{ASIDE}' in variables.newNotes ? variables.newNotes['{ASIDE}'] : ''",
        "oldText": _aside_text("old"),
        "newText": _aside_text("new"),
        "turns": "variables.oldAside != variables.newAside",
        "oldFields": "has(oldObject.metadata.managedFields) ? oldObject.metadata.managedFields : []",
        "newFields": "has(object.metadata.managedFields) ? object.metadata.managedFields : []",
    }


def _validations(model: ResourceModel) -> list[tuple[str, str]]:
    spec = "['template', 'strategy', 'updateStrategy', 'replicas']"
    workload = [
        ("request.namespace != 'kube-system'", "apps in kube-system are never changed"),
        (_same("variables.newMeta", "variables.oldMeta", but=_WRITTEN_BY_SERVER), "an app's metadata stays as it is"),
        (_annotations(), f"of annotations only {ASIDE} may be changed"),
        (_same("variables.new", "variables.old", but=spec), "only limits may be changed in a workload"),
        (_same("object.spec.template", "oldObject.spec.template", but="['spec']"), "a template's metadata is not ours"),
        (
            _same("variables.newPod", "variables.oldPod", but="['initContainers', 'containers']"),
            "pods stay as they are",
        ),
        *((_containers(part), f"of {part} only limits may be changed") for part in ("containers", "initContainers")),
        (
            _interruption(),
            "replicas and how pods are replaced change with a true word of what they were, or not at all",
        ),
        (_managed_fields(_paths(model)), "no field may be written into another manager's name"),
    ]
    found = [(f"variables.lease || ({one})", said) for one, said in workload]
    return [
        *found,
        (f"!variables.lease || ({_lease()})", "no lease but its own, and that with nothing beside its holder"),
    ]


def _same(new: str, old: str, *, but: str) -> str:
    """Return the expression: two maps are equal, except for some keys (`but`, a list)."""
    return (
        f"{new}.all(k, k in {but} || (k in {old} && {new}[k] == {old}[k])) && "
        f"{old}.all(k, k in {but} || k in {new})"
    )  # fmt: skip


def _annotations() -> str:
    ours = f"['{ASIDE}', '{_TEMPLATE_GENERATION}']"
    return _same("variables.newNotes", "variables.oldNotes", but=ours)


def _lease() -> str:
    """Return the expression: this is our lease, and the account adds nothing to its metadata."""
    plain = "['name', 'namespace', 'uid', 'resourceVersion', 'creationTimestamp', 'managedFields']"
    old, new = "variables.oldMeta", "variables.newMeta"
    return (
        f"object.metadata.name == '{LEASE}' && "
        f"{new}.all(k, k in {plain} || (k in {old} && {new}[k] == {old}[k])) && {old}.all(k, k in {new})"
    )


def _containers(part: str) -> str:
    """Return the expression: the containers and their order are the same, and only our resources may differ."""
    new = f"('{part}' in variables.newPod ? variables.newPod['{part}'] : [])"
    old = f"('{part}' in variables.oldPod ? variables.oldPod['{part}'] : [])"

    def of(which: str, kind: str = "") -> str:
        found = f"('resources' in {which} ? {which}['resources'] : {{}})"
        return f"('{kind}' in {found} ? {found}['{kind}'] : {{}})" if kind else found

    pairs = (
        _same("c", "o", but="['resources']"),
        _same(of("c"), of("o"), but="['limits', 'requests']"),
        *(_same(of("c", kind), of("o", kind), but="variables.ours") for kind in ("limits", "requests")),
    )
    same = " && ".join(pairs)
    names = f"{new}.map(c, c.name) == {old}.map(o, o.name)"
    return f"{names} && {new}.all(c, {old}.exists(o, o.name == c.name && {same}))"


def _aside_text(which: str) -> str:
    """Return the expression: the text of ASIDE for a workload, as `patches.py` writes it; empty if it has none."""
    spec = f"variables.{which}"

    def amount(rolling: str, name: str) -> str:
        value = f"{rolling}.{name}"
        return f"(type({value}) == string ? '\"' + string({value}) + '\"' : string({value}))"

    def kept(field: str) -> str:
        rolling = f"{spec}.{field}.rollingUpdate"
        there = f"has({rolling}) && has({rolling}.maxUnavailable) && has({rolling}.maxSurge)"
        begin = f'\'{{"{field}":{{"type":"RollingUpdate","rollingUpdate":{{"maxUnavailable":\''
        most = f"{amount(rolling, 'maxUnavailable')} + ',\"maxSurge\":' + {amount(rolling, 'maxSurge')}"
        return f"{there} ? {begin} + {most} + '}}}}}}' : ''"

    replicas = f"'{{\"replicas\":' + string({spec}.replicas) + '}}'"
    return f"variables.lease ? '' : {_by_kind(kept('strategy'), kept('updateStrategy'), replicas)}"


def _interruption() -> str:
    """Return the expression: nothing is set aside or put back, or ASIDE describes truly what is."""
    old, new, before, after = "variables.old", "variables.new", "variables.oldAside", "variables.newAside"
    fields = ("replicas", "strategy", "updateStrategy")
    stays = " && ".join(_equal(name) for name in fields)

    def alone(field: str) -> str:
        return " && ".join(_equal(name) for name in fields if name != field)

    without_surge = "{'type': dyn('RollingUpdate'), 'rollingUpdate': dyn({'maxSurge': 0, 'maxUnavailable': 1})}"
    with_limits = "variables.newPod != variables.oldPod"
    aside = _by_kind(
        f"{alone('strategy')} && {with_limits} && {new}.strategy == {{'type': dyn('Recreate')}}",
        f"{alone('updateStrategy')} && {with_limits} && {new}.updateStrategy == {without_surge}",
        f"{alone('replicas')} && {new}.replicas < {old}.replicas",
    )
    back = _by_kind(alone("strategy"), alone("updateStrategy"), alone("replicas"))
    key = _by_kind("'{\"strategy\":'", "'{\"updateStrategy\":'", "'{\"replicas\":'")
    foreign = f"!{before}.startsWith({key}) && {stays}"
    return (
        f"!variables.turns ? ({stays}) : "
        f"{before} == '' ? ({after} == variables.oldText && {aside}) : "
        f"({after} == '' && (({before} == variables.newText && {back}) || ({foreign})))"
    )


def _by_kind(deployment: str, daemon_set: str, stateful_set: str) -> str:
    return (
        f"(variables.kind == 'deployments' ? ({deployment}) : "
        f"variables.kind == 'daemonsets' ? ({daemon_set}) : ({stateful_set}))"
    )


def _equal(name: str) -> str:
    """Return the expression: a field of the spec is unchanged, or absent as before."""

    def value(which: str) -> str:
        return f"('{name}' in variables.{which} ? dyn(variables.{which}['{name}']) : dyn(''))"

    return f"{value('new')} == {value('old')}"


def _managed_fields(paths: Json) -> str:
    """Return the expression: a change may take fields over from other managers, but must not give or invent any.

    An account that could write `managedFields` freely could make another manager's next apply remove fields that it
    never named. From ten updaters on, the API server itself merges the oldest entries under one name.
    """
    old, new = "variables.oldFields", "variables.newFields"
    pair = (
        "o.manager == e.manager && o.operation == e.operation && "
        "(has(o.subresource) ? o.subresource : '') == (has(e.subresource) ? e.subresource : '')"
    )
    ours = "{0}.manager == '" + MANAGER + "' && {0}.operation == 'Update' && !has({0}.subresource)"
    many = f"e.operation == 'Update' && {old}.filter(o, o.operation == 'Update').size() >= {_MOST_UPDATERS}"
    taken = f"{old}.exists(o, {pair} && {_no_more('e.fieldsV1', 'o.fieldsV1', paths)})"
    kept = f"{ours.format('o')} || {new}.exists(e, {pair}) || ({_within('o.fieldsV1', paths)})"
    return (
        f"{new}.all(e, ({ours.format('e')}) ? ({_within('e.fieldsV1', paths)}) : (({many}) || {taken})) && "
        f"{old}.all(o, {kept} || (o.operation == 'Update' && {old}.size() >= {_MOST_UPDATERS}))"
    )


def _paths(model: ResourceModel) -> Json:
    """Return the fields that a settlement writes, as in `fieldsV1`; `*` stands for each container, {} for all below."""
    amounts: Json = {".": {}, f"f:{model.memory_resource}": {}, f"f:{model.core_resource}": {}}
    container = {"f:resources": {".": {}, "f:limits": amounts, "f:requests": amounts}}
    template = {"f:spec": {"f:containers": {"*": container}, "f:initContainers": {"*": container}}}
    notes: Json = {".": {}, f"f:{ASIDE}": {}, f"f:{_TEMPLATE_GENERATION}": {}}
    spec = {"f:replicas": {}, "f:strategy": {}, "f:updateStrategy": {}, "f:template": template}
    return {"f:metadata": {"f:annotations": notes}, "f:spec": spec}


def _part(of: str, key: str) -> str:
    return f"('{key}' in {of} ? {of}['{key}'] : {{}})"


def _within(fields: str, paths: Json, depth: int = 0) -> str:
    """Return the expression: a set of fields has none outside these paths."""
    if "*" in paths:
        return f"{fields}.all(c, [{fields}[c]].all(m{depth}, {_within(f'm{depth}', paths['*'], depth + 1)}))"
    name = f"m{depth}"  # `[x].all(name, …)` names a value, so that the expression does not grow with each level
    inner = [
        f"[{_part(fields, key)}].all({name}, {_within(name, below, depth + 1)})"
        for key, below in paths.items()
        if below
    ]
    return " && ".join([f"{fields}.all(k, k in {list(paths)})", *inner])


def _no_more(new: str, old: str, paths: Json, depth: int = 0) -> str:
    """Return the expression: a set of fields is unchanged, except that fields of these paths may be missing."""
    name, was = f"n{depth}", f"w{depth}"

    def below(key: str, paths: Json) -> str:
        inner = _no_more(name, was, paths, depth + 1)
        return f"[{_part(new, key)}].all({name}, [{_part(old, key)}].all({was}, {inner}))"

    if "*" in paths:
        inner = _no_more(name, was, paths["*"], depth + 1)
        each = f"[{new}[c]].all({name}, [{old}[c]].all({was}, {inner}))"
        return f"{new}.all(c, c in {old} && {each}) && {old}.all(c, c in {new})"
    may = list(paths)
    same = f"{new}.all(k, k in {old} && (k in {may} || {new}[k] == {old}[k])) && {old}.all(k, k in {may} || k in {new})"
    return " && ".join([same, *(below(key, paths) for key, paths in paths.items() if paths)])
