"""The profiles of a scheduler's configuration: plugins, their points and their arguments; pure.

Source: Kubernetes 1.33, `pkg/scheduler/framework/plugins` and `validation_pluginargs.go`. Listed are the plugins that
every version since 1.25 has, at the points that they have had since then. A k3s has no others.
"""

import itertools
from collections.abc import Iterator
from typing import Any

from edgegpu_installer.scheduler.rules import (
    API_VERSION,
    PERCENTAGE,
    Check,
    flag,
    label_name,
    listed,
    one_of,
    qualified,
    small,
    table,
    text,
    whole,
)
from edgegpu_installer.scheduler.yaml import Problem

_POINTS: dict[str, tuple[str, ...]] = {
    "PrioritySort": ("queueSort",),
    "ImageLocality": ("score",),
    "InterPodAffinity": ("preFilter", "filter", "preScore", "score"),
    "NodeAffinity": ("preFilter", "filter", "preScore", "score"),
    "NodeName": ("filter",),
    "NodePorts": ("preFilter", "filter"),
    "NodeResourcesBalancedAllocation": ("score",),
    "NodeResourcesFit": ("preFilter", "filter", "score"),
    "NodeUnschedulable": ("filter",),
    "NodeVolumeLimits": ("filter",),
    "PodTopologySpread": ("preFilter", "filter", "preScore", "score"),
    "TaintToleration": ("filter", "preScore", "score"),
    "VolumeBinding": ("preFilter", "filter", "reserve", "preBind", "score"),
    "VolumeRestrictions": ("preFilter", "filter"),
    "VolumeZone": ("filter",),
    "DefaultPreemption": ("postFilter",),
    "DefaultBinder": ("bind",),
}
_ALL_POINTS = (
    "preEnqueue", "queueSort", "preFilter", "filter", "postFilter", "preScore", "score", "reserve", "permit", "preBind",
    "bind", "postBind", "multiPoint",
)  # fmt: skip
_VITAL = {"queueSort": "PrioritySort", "bind": "DefaultBinder"}
"""The points at which a scheduler without a plugin exits, each with its default plugin."""

_MOST_WEIGHT, _MOST_SCORE = 100, 10

_PLUGIN = table({"name": text, "weight": small(1, _MOST_WEIGHT)}, "name")
_PLUGIN_SET = table({"enabled": listed(_PLUGIN), "disabled": listed(_PLUGIN)})
_PLUGINS = table(dict.fromkeys(_ALL_POINTS, _PLUGIN_SET))
_SHAPE = listed(table({"utilization": small(0, 100), "score": small(0, _MOST_SCORE)}, "utilization", "score"), least=1)
_RESOURCES = listed(table({"name": text, "weight": whole(1, _MOST_WEIGHT)}, "name"))
_EVEN_RESOURCES = listed(table({"name": text, "weight": whole(1, 1)}, "name"))
_CONSTRAINT = table(
    {
        "maxSkew": small(1),
        "topologyKey": label_name,
        "whenUnsatisfiable": one_of("DoNotSchedule", "ScheduleAnyway"),
    },
    "maxSkew",
    "topologyKey",
    "whenUnsatisfiable",
)
_HEAD: dict[str, Check] = {"apiVersion": one_of(API_VERSION), "kind": text}
_ARGS: dict[str, Check] = {
    "DefaultPreemption": table(
        _HEAD | {"minCandidateNodesPercentage": small(0, 100), "minCandidateNodesAbsolute": small(1)}
    ),
    "InterPodAffinity": table(
        _HEAD | {"hardPodAffinityWeight": small(0, 100), "ignorePreferredTermsOfExistingPods": flag}
    ),
    "NodeAffinity": table(_HEAD),
    "NodeResourcesBalancedAllocation": table(_HEAD | {"resources": _EVEN_RESOURCES}),
    "NodeResourcesFit": table(
        _HEAD
        | {
            "ignoredResources": listed(label_name),
            "ignoredResourceGroups": listed(label_name),
            "scoringStrategy": table(
                {
                    "type": one_of("LeastAllocated", "MostAllocated", "RequestedToCapacityRatio"),
                    "resources": _RESOURCES,
                    "requestedToCapacityRatio": table({"shape": _SHAPE}, "shape"),
                },
                "type",
            ),
        }
    ),
    "PodTopologySpread": table(
        _HEAD | {"defaultConstraints": listed(_CONSTRAINT), "defaultingType": one_of("System", "List")}
    ),
    "VolumeBinding": table(_HEAD | {"bindTimeoutSeconds": whole(0)}),
}
_PROFILE = table(
    {
        "schedulerName": text,
        "percentageOfNodesToScore": PERCENTAGE,
        "plugins": _PLUGINS,
        "pluginConfig": listed(
            table({"name": one_of(*_ARGS), "args": lambda _value, _where: iter(())}, "name", "args")
        ),
    }
)
_PROFILES = listed(_PROFILE)
_NAMED = listed(table({"schedulerName": text}))


def named_profiles(value: Any, where: str) -> Iterator[Problem]:  # noqa: ANN401  (YAML)
    """Check that profiles have names and nothing else: plugins of schedulers before 1.25 are not known here."""
    shapes = list(_NAMED(value, where))
    yield from shapes or profiles(value, where)


def profiles(value: Any, where: str) -> Iterator[Problem]:  # noqa: ANN401  (YAML)
    """Check the profiles of a configuration."""
    shapes = list(_PROFILES(value, where))
    yield from shapes
    if shapes:
        return
    names = [profile.get("schedulerName", "") for profile in value]
    for index, profile in enumerate(value):
        here = f"{where}[{index}]"
        if len(value) > 1 and not names[index]:
            yield Problem(f"{here}.schedulerName", "is missing: with more than one profile each needs its name")
        elif "schedulerName" in profile and not names[index]:
            yield Problem(f"{here}.schedulerName", "is empty")
        if names[index] in names[:index]:
            yield Problem(f"{here}.schedulerName", f"{names[index]!r} is the name of another profile too")
        if _queue_sort(profile) != _queue_sort(value[0]):
            yield Problem(f"{here}.plugins.queueSort", "must be the same in all profiles")
        yield from _plugins(profile.get("plugins", {}), f"{here}.plugins")
        yield from _plugin_config(profile.get("pluginConfig", []), f"{here}.pluginConfig")


def _queue_sort(profile: dict[str, Any]) -> object:
    return profile.get("plugins", {}).get("queueSort", {})


def _plugins(plugins: dict[str, Any], where: str) -> Iterator[Problem]:
    for point, chosen in plugins.items():
        here = f"{where}.{point}"
        enabled = [plugin["name"] for plugin in chosen.get("enabled", [])]
        disabled = [plugin["name"] for plugin in chosen.get("disabled", [])]
        for name in enabled:
            if name not in _POINTS:
                yield Problem(f"{here}.enabled", f"no plugin {name!r} in k3s's scheduler")
            elif point not in {"multiPoint", *_POINTS[name]}:
                yield Problem(f"{here}.enabled", f"the plugin {name} has no part at {point}")
        for names, which in ((enabled, "enabled"), (disabled, "disabled")):
            if len(set(names)) < len(names):
                yield Problem(f"{here}.{which}", "names a plugin twice")
        if point in _VITAL and disabled and not enabled:
            yield Problem(f"{here}.disabled", f"without {_VITAL[point]} nothing is scheduled")
        if point == "multiPoint" and {"*", *_VITAL.values()} & set(disabled):
            yield Problem(f"{here}.disabled", f"without {' and '.join(_VITAL.values())} nothing is scheduled")


def _plugin_config(config: list[dict[str, Any]], where: str) -> Iterator[Problem]:
    names = [one["name"] for one in config]
    for index, one in enumerate(config):
        here, name, args = f"{where}[{index}]", one["name"], one["args"]
        if name in names[:index]:
            yield Problem(f"{here}.name", f"{name} is configured twice")
        found = list(_ARGS[name](args, f"{here}.args"))
        yield from found
        if found:
            continue
        if args.get("kind", f"{name}Args") != f"{name}Args":
            yield Problem(f"{here}.args.kind", f"must be {name}Args")
        yield from _args(name, args, f"{here}.args")


def _args(name: str, args: dict[str, Any], where: str) -> Iterator[Problem]:
    """Yield the problems of a plugin's arguments that concern several fields."""
    match name:
        case "PodTopologySpread":
            constraints = args.get("defaultConstraints", [])
            pairs = [(one["topologyKey"], one["whenUnsatisfiable"]) for one in constraints]
            if len(set(pairs)) < len(pairs):
                yield Problem(f"{where}.defaultConstraints", "has a constraint twice")
            if constraints and args.get("defaultingType") != "List":
                yield Problem(f"{where}.defaultingType", "must be List where there are defaultConstraints")
        case "NodeResourcesBalancedAllocation":
            yield from _resources(args.get("resources", []), f"{where}.resources")
        case "NodeResourcesFit":
            for index, group in enumerate(args.get("ignoredResourceGroups", [])):
                if "/" in group:
                    yield Problem(f"{where}.ignoredResourceGroups[{index}]", "is a group, so it must not have a /")
            strategy = args.get("scoringStrategy", {})
            yield from _resources(strategy.get("resources", []), f"{where}.scoringStrategy.resources")
            yield from _ratio(strategy, f"{where}.scoringStrategy")
        case _:
            pass


def _resources(resources: list[dict[str, Any]], where: str) -> Iterator[Problem]:
    names = [one["name"] for one in resources]
    if len(set(names)) < len(names):
        yield Problem(where, "has a resource twice")
    for index, name in enumerate(names):
        if not qualified(name):
            yield Problem(f"{where}[{index}].name", f"{name!r} is not a valid resource name")


def _ratio(strategy: dict[str, Any], where: str) -> Iterator[Problem]:
    ratio = strategy.get("requestedToCapacityRatio")
    if strategy.get("type") == "RequestedToCapacityRatio" and ratio is None:
        yield Problem(f"{where}.requestedToCapacityRatio", "is missing")
    points = [point["utilization"] for point in (ratio or {}).get("shape", [])]
    if any(later <= earlier for earlier, later in itertools.pairwise(points)):
        yield Problem(f"{where}.requestedToCapacityRatio.shape", "utilization must rise from point to point")
