"""Scheduler configurations, good and bad, with what a real kube-scheduler makes of each."""

import copy
import json
from collections.abc import Iterator

import yaml
from kits.scheduler import (
    Case,
    Edit,
    Json,
    Materials,
    Verdict,
    args,
    base64_of,
    by_file,
    client,
    drop,
    first,
    kubeconfig,
    managed,
    ours,
    points,
    profiles,
    put,
    second,
    tls,
)

from edgegpu_installer.scheduler.file import render

_BUSY = {"type": "MostAllocated", "resources": [{"name": "cpu", "weight": 1}]}
_RATIO = {
    "type": "RequestedToCapacityRatio",
    "requestedToCapacityRatio": {"shape": [{"utilization": 0, "score": 0}, {"utilization": 100, "score": 10}]},
}

GOOD: dict[str, Edit] = {
    "no extenders": drop("extenders"),
    "no extender in the list": put(extenders=[]),
    "all plain fields": put(
        parallelism=8, percentageOfNodesToScore=50, podInitialBackoffSeconds=2, podMaxBackoffSeconds=20,
        enableProfiling=False, enableContentionProfiling=False,
    ),
    "connection": client(qps=20.5, burst=30, contentType="application/json", acceptContentTypes=""),
    "a second extender": second(weight=2, prioritizeVerb="p", managedResources=[{"name": "example.com/x"}]),
    "a second extender without resources": second(),
    "a long timeout": ours(httpTimeout="1m30s"),
    "certificates by file": by_file("client.crt", "client.key", "ca.crt"),
    "an authority alone": tls(certData="", keyData=""),
    "no prioritizing, no weight": lambda document, _: (
        first(document).pop("prioritizeVerb"), first(document).pop("weight")
    ),
    "two profiles": profiles({"schedulerName": "default-scheduler"}, {"schedulerName": "packed"}),
    "a packing profile": args("NodeResourcesFit", scoringStrategy=_BUSY),
    "a ratio": args("NodeResourcesFit", scoringStrategy=_RATIO),
    "args with a head": args(
        "InterPodAffinity", apiVersion="kubescheduler.config.k8s.io/v1", kind="InterPodAffinityArgs",
        hardPodAffinityWeight=5,
    ),
    "preemption": args("DefaultPreemption", minCandidateNodesPercentage=5, minCandidateNodesAbsolute=1),
    "spread": args(
        "PodTopologySpread", defaultingType="List",
        defaultConstraints=[{"maxSkew": 1, "topologyKey": "example.com/zone", "whenUnsatisfiable": "ScheduleAnyway"}],
    ),
    "volumes": args("VolumeBinding", bindTimeoutSeconds=60),
    "balanced": args("NodeResourcesBalancedAllocation", resources=[{"name": "cpu", "weight": 1}]),
    "a score of its own weight": points("score", enabled=({"name": "ImageLocality", "weight": 5},)),
    "a score disabled": points("score", disabled=("ImageLocality",)),
    "all scores disabled but one": points("score", enabled=("NodeResourcesFit",), disabled=("*",)),
    "a plugin disabled everywhere": points("multiPoint", disabled=("ImageLocality",)),
    "weights everywhere": points("multiPoint", enabled=({"name": "NodeAffinity", "weight": 7},)),
    "preemption disabled": points("postFilter", disabled=("DefaultPreemption",)),
    "its own binder again": points("bind", enabled=("DefaultBinder",), disabled=("*",)),
}  # fmt: skip

BAD: dict[str, Edit] = {
    "version v1beta1": put(apiVersion="kubescheduler.config.k8s.io/v1beta1"),
    "version v1beta3": put(apiVersion="kubescheduler.config.k8s.io/v1beta3"),
    "version v2": put(apiVersion="kubescheduler.config.k8s.io/v2"),
    "no version": drop("apiVersion"),
    "no kind": drop("kind"),
    "another kind": put(kind="Policy"),
    "a kind of its args": put(kind="NodeAffinityArgs"),
    "an unknown field": put(extender=[]),
    "a field in the wrong case": put(Extenders=[]),
    "an unknown field of an extender": ours(timeout="30s"),
    "an unknown field of its tls": tls(ca="x"),
    "no client connection": drop("clientConnection"),
    "no kubeconfig": drop("clientConnection", "kubeconfig"),
    "a kubeconfig that is not there": kubeconfig("gone"),
    "an empty kubeconfig": kubeconfig("empty"),
    "a broken kubeconfig": kubeconfig("broken"),
    "a kubeconfig without its context": kubeconfig("no-context"),
    "a number as kubeconfig": client(kubeconfig=3),
    "a negative burst": client(burst=-1),
    "a text as qps": client(qps="20"),
    "no parallelism": put(parallelism=0),
    "parallelism as a text": put(parallelism="8"),
    "parallelism as a fraction": put(parallelism=1.5),
    "parallelism beyond 32 bits": put(parallelism=1 << 31),
    "101 percent of nodes": put(percentageOfNodesToScore=101),
    "no first backoff": put(podInitialBackoffSeconds=0),
    "a first backoff over the most": put(podInitialBackoffSeconds=11),
    "extenders as a table": put(extenders={}),
    "an extender as a text": put(extenders=["http://127.0.0.1:1"]),
    "two binders": second(bindVerb="bind"),
    "weight 0": ours(weight=0),
    "weight below 0": ours(weight=-1),
    "no weight": drop("extenders", "weight"),
    "weight as a text": ours(weight="1"),
    "ignorable as a text": ours(ignorable="false"),
    "a timeout without a unit": ours(httpTimeout="30"),
    "a timeout as a number": ours(httpTimeout=30),
    "a timeout in days": ours(httpTimeout="1d"),
    "no timeout": ours(httpTimeout=None),
    "a resource twice": managed("baidu.com/vcuda-core", "baidu.com/vcuda-core"),
    "a resource of two extenders": second(managedResources=[{"name": "baidu.com/vcuda-core"}]),
    "a resource without a domain": managed("vcuda-core"),
    "a resource of kubernetes": managed("kubernetes.io/gpu"),
    "a quota's resource": managed("requests.baidu.com/gpu"),
    "a resource with a blank": managed("baidu.com/vcuda core"),
    "a resource with two slashes": managed("baidu.com/vcuda/core"),
    "a resource with a domain in capitals": managed("Baidu.com/vcuda-core"),
    "a resource without a name": managed("baidu.com/"),
    "an empty resource": managed(""),
    "a resource as a number": managed(8),
    "resources as texts": ours(managedResources=["baidu.com/vcuda-core"]),
    "bad base64": tls(caData="***"),
    "base64 cut off": tls(caData="YWJj ZA"),
    "no pem in the authority": tls(caData="YWJj"),
    "no pem in the certificate": tls(certData="YWJj"),
    "no pem in the key": tls(keyData="YWJj"),
    "another key": lambda document, given: tls(keyData=base64_of(given.other_key))(document, given),
    "certificates that are not there": by_file("gone.crt", "client.key", "ca.crt"),
    "an authority that is not there": by_file("client.crt", "client.key", "gone.crt"),
    "an authority that is none": by_file("client.crt", "client.key", "words"),
    "insecure with an authority": tls(insecure=True),
    "tls as a text": ours(tlsConfig="yes"),
    "two profiles without names": profiles({}, {}),
    "two profiles of one name": profiles({"schedulerName": "a"}, {"schedulerName": "a"}),
    "an empty name of two": profiles({"schedulerName": "a"}, {"schedulerName": ""}),
    "an empty name": profiles({"schedulerName": ""}),
    "a profile's 101 percent": profiles({"percentageOfNodesToScore": 101}),
    "an unknown plugin": points("score", enabled=("Nonsense",)),
    "an unknown plugin everywhere": points("multiPoint", enabled=("Nonsense",)),
    "an unknown point": points("preScoring", enabled=("ImageLocality",)),
    "a plugin at a point that it has not": points("bind", enabled=("ImageLocality",)),
    "a plugin twice": points("score", enabled=("ImageLocality", "ImageLocality")),
    "a plugin that went": points("filter", enabled=("EBSLimits",)),
    "no queue sort": points("queueSort", disabled=("*",)),
    "two queue sorts": points("queueSort", enabled=("PrioritySort", "PrioritySort")),
    "no binder": points("bind", disabled=("*",)),
    "nothing at all": points("multiPoint", disabled=("*",)),
    "no weight left": points("score", enabled=({"name": "ImageLocality", "weight": -1},), disabled=("*",)),
    "unequal queue sorts": profiles(
        {"schedulerName": "a", "plugins": {"queueSort": {"enabled": [{"name": "PrioritySort"}]}}},
        {"schedulerName": "b"},
    ),
    "args twice": profiles({"pluginConfig": [{"name": "NodeAffinity", "args": {}}] * 2}),
    "args of another": args("NodeAffinity", kind="VolumeBindingArgs", apiVersion="kubescheduler.config.k8s.io/v1"),
    "an unknown field of args": args("VolumeBinding", timeout=3),
    "a negative time": args("VolumeBinding", bindTimeoutSeconds=-1),
    "preemption of nothing": args("DefaultPreemption", minCandidateNodesPercentage=0, minCandidateNodesAbsolute=0),
    "a heavy affinity": args("InterPodAffinity", hardPodAffinityWeight=101),
    "an unknown strategy": args("NodeResourcesFit", scoringStrategy={"type": "Fullest"}),
    "a ratio without a shape": args("NodeResourcesFit", scoringStrategy={"type": "RequestedToCapacityRatio"}),
    "a ratio that falls": args(
        "NodeResourcesFit",
        scoringStrategy=_RATIO | {"requestedToCapacityRatio": {"shape": [{"utilization": 9, "score": 1}] * 2}},
    ),
    "a group with a slash": args("NodeResourcesFit", ignoredResourceGroups=["baidu.com/x"]),
    "unbalanced": args("NodeResourcesBalancedAllocation", resources=[{"name": "cpu", "weight": 2}]),
    "constraints of the system": args(
        "PodTopologySpread", defaultingType="System",
        defaultConstraints=[{"maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "DoNotSchedule"}],
    ),
    "a skew of 0": args(
        "PodTopologySpread", defaultingType="List",
        defaultConstraints=[{"maxSkew": 0, "topologyKey": "zone", "whenUnsatisfiable": "DoNotSchedule"}],
    ),
}  # fmt: skip

STRICTER: dict[str, Edit] = {
    "leader election off": put(leaderElection={"leaderElect": False}),
    "leader election on": put(leaderElection={"leaderElect": True}),
    "no address": drop("extenders", "urlPrefix"),
    "an address of no protocol": ours(urlPrefix="127.0.0.1:8787"),
    "a negative timeout": ours(httpTimeout="-1s"),
    "a certificate without its key": tls(keyData=""),
    "plugin args of nobody": args("Nonsense", anything=1),
    "a field without a value": put(parallelism=None),
    "a plugin of later versions": points("preEnqueue", enabled=("SchedulingGates",)),
    "a field of later versions": put(delayCacheUntilActive=True),
    "nodes preferred by a profile": args("NodeAffinity", addedAffinity={}),
}


def corpus(given: Materials) -> Iterator[Case]:
    """Yield all cases."""
    base: Json = yaml.safe_load(render(given.extender, kubeconfig=given.kubeconfig))
    for verdict, table in ((Verdict.GOOD, GOOD), (Verdict.BAD, BAD), (Verdict.STRICTER, STRICTER)):
        for name, edit in table.items():
            document = copy.deepcopy(base)
            edit(document, given)
            yield Case(name, yaml.safe_dump(document, sort_keys=False), verdict)
    text = yaml.safe_dump(base, sort_keys=False)
    yield Case("as rendered", render(given.extender, kubeconfig=given.kubeconfig), Verdict.GOOD)
    yield from _texts(text)


def _texts(text: str) -> Iterator[Case]:
    bad = {
        "empty": "",
        "only a comment": "# nothing\n",
        "only a word": "hello\n",
        "a list": "- 1\n",
        "open bracket": text + "profiles: [\n",
        "a tab as indent": text.replace("  kubeconfig", "\tkubeconfig"),
        "a key twice": text + "kind: KubeSchedulerConfiguration\n",
        "a nested key twice": text.replace("  weight: 1\n", "  weight: 1\n  weight: 1\n"),
        "cut in the middle": text[: len(text) // 3],
        "zeros": "\0" * 512,
        "an unknown alias": text + "parallelism: *x\n",
        "braces without quotes": yaml.safe_dump(yaml.safe_load(text), default_flow_style=True, width=1 << 20),
        "a word for a switch": text.replace("ignorable: false", "ignorable: maybe"),
    }
    stricter = {
        "two documents": text + "---\n" + text,
        "an anchor": text.replace("weight: 1", "weight: &one 1"),
        "yes for true": text.replace("nodeCacheCapable: true", "nodeCacheCapable: yes"),
        "octal": text + "parallelism: 0o17\n",
        "hexadecimal": text + "parallelism: 0x10\n",
        "a tag": text.replace("weight: 1", "weight: !!int 1"),
    }
    good = {
        "comments and a document start": "# by hand\n---\n" + text,
        "json": json.dumps(yaml.safe_load(text)),
        "json over lines": json.dumps(yaml.safe_load(text), indent=2),
        "in quotes": text.replace("bindVerb: bind", "bindVerb: 'bind'"),
    }
    for verdict, table in ((Verdict.BAD, bad), (Verdict.STRICTER, stricter), (Verdict.GOOD, good)):
        for name, content in table.items():
            yield Case(name, content, verdict)
