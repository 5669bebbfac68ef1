"""A box for the plugin's state machine: the real process, driver, kubelet's sockets and API server, and their books.

What is judged is read from outside: kubelet's books and PodResources, containers that run, pods and Node in the API,
the plugin's own status. None of the arithmetic here is the plugin's.
"""

from __future__ import annotations

import json
import time
from collections import Counter, defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from contract.bed import EmbeddedBed, main, pod

from edgegpu_agent.cli.clients.plugin import fetch_status
from edgegpu_agent.cli.common import CliError
from edgegpu_sim.cards import make_card
from edgegpu_sim.cluster import EmbeddedCluster
from edgegpu_sim.errors import TimeoutSimError
from edgegpu_sim.node import NodeSpec

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

MEMORY, CORE = "baidu.com/vcuda-memory", "baidu.com/vcuda-core"
NODE = "box"
UNIT_MIB, CORES = 256, 100
START_S, QUIET_S = 60.0, 30.0
Json = dict[str, Any]
Cards = dict[tuple[str, str], frozenset[str]]
"""By pod UID and container."""


@dataclass(frozen=True, slots=True)
class Want:
    """What a container of a pod asks for."""

    name: str
    units: int
    core: int
    init: bool = False
    sidecar: bool = False

    @property
    def cards(self) -> int:
        """How many cards it must lie on: one, or as many as it asks for whole."""
        return max(1, self.core // CORES)


@dataclass(slots=True)
class Made:
    """A pod that the machine has made."""

    name: str
    uid: str
    wants: tuple[Want, ...]
    forced: bool
    due: bool
    """Whether it has to start once it is placed: nothing has disturbed it, kubelet or the plugin since."""
    torn: bool
    """Whether its devices may have to lie on two cards: a card went, or kubelet restarted, while it was on its way.

    kubelet writes its checkpoint at admissions only: right after a restart it holds devices of pods that have ended,
    and what it calls available lies elsewhere.
    """
    raced: bool
    """Whether a forced pod may have been on its way at the same time: it may have been taken for that one."""


class PluginBox:
    """One node with cards of so many units each; the plugin runs and offers them."""

    def __init__(self, units: Sequence[int], *, seed: int, kubelet: Mapping[str, Any] | None = None) -> None:
        self.cards = [make_card(index, "Tesla T4", count * UNIT_MIB) for index, count in enumerate(units)]
        self.units = {card.uuid: count for card, count in zip(self.cards, units, strict=True)}
        self.vanished: set[str] = set()
        self.pods: dict[str, Made] = {}
        self.steps: list[str] = [f"cards of {list(units)} units"]
        """What was done: with threads and processes the same steps need not fail twice, so a failure tells them."""
        self._number = 0
        self._kubelet_is_new = False
        spec = NodeSpec(name=NODE, cards=self.cards, config={"driver": {"poll_s": 0.2}}, kubelet=kubelet or {})
        self.cluster = EmbeddedCluster([spec], seed=seed)
        self.cluster.start()
        self.bed = EmbeddedBed(self.cluster)
        self.node = self.cluster.nodes[NODE]
        try:
            self.start_plugin()
        except BaseException:
            self.close()  # its threads would keep the test's process from ending
            raise

    def close(self) -> None:
        """End everything."""
        self.cluster.stop()

    # What is done to it.

    def make(self, wants: tuple[Want, ...], *, forced: bool, lasts: bool) -> None:
        """Create a pod; `forced`: bound by its nodeName, past the scheduler. One that does not last ends by itself."""
        self._number += 1
        name = f"p{self._number:03d}"
        inits = [_container(want) for want in wants if want.init or want.sidecar]
        spec: Json = pod(name, init=inits)["spec"]
        spec["containers"] = [_container(want) for want in wants if not (want.init or want.sidecar)]
        if not lasts:
            spec["restartPolicy"] = "Never"
            spec["containers"][0]["command"] = ["sleep", "0.3"]
        if forced:
            spec["nodeName"] = NODE
        self.bed.apply({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": spec})
        uid = (self.bed.get("Pod", name) or {})["metadata"]["uid"]
        self.steps.append(f"{name} {'forced' if forced else 'made'}{'' if lasts else ', ends'}: {wants}")
        raced = not forced and self._forcing()
        due = not forced and self.runs and not self.vanished and not raced
        self.pods[name] = Made(
            name, uid, wants, forced, due=due, torn=bool(self.vanished) or self._kubelet_is_new, raced=raced
        )

    def delete(self, name: str, *, by_force: bool) -> None:
        """Delete a pod; by force its object goes at once, its containers a moment later."""
        self.steps.append(f"{name} deleted{' by force' if by_force else ''}")
        self.pods.pop(name)
        self.bed.delete("Pod", name, grace_s=0 if by_force else None)

    def disturb(self) -> None:
        """Excuse the pods that are on their way: kubelet fails those whose plugin or device it does not find."""
        for made in self.pods.values():
            made.due = False

    def race(self) -> None:
        """Excuse the pods that are on their way: a forced one comes, which they may be taken for."""
        self.disturb()
        for made in self.pods.values():
            made.raced = not made.forced

    def excuse_no_longer(self) -> None:
        """Once all is quiet again: whoever has not failed has to start, or waits for room."""
        self._kubelet_is_new = False
        found = {p["metadata"]["uid"]: p for p in self.bed.pods()}
        for made in self.pods.values():
            pod = found.get(made.uid, {"status": {}, "spec": {}})
            made.due = not made.forced and not self.vanished and pod["status"].get("phase") != "Failed"
            made.raced &= bool(pod["spec"].get("nodeName"))  # who waits for room yet comes when no forced one does

    def _forcing(self) -> bool:
        """Say whether the extender may not know yet where some forced pod lies: it has no devices, or none reported."""
        over = {p["metadata"]["uid"] for p in self.bed.pods() if p["status"].get("phase") in {"Succeeded", "Failed"}}
        known = over | self._served()
        return any(made.forced and made.uid not in known for made in self.pods.values())

    @property
    def runs(self) -> bool:
        """Whether the plugin process runs."""
        return self.node.plugin is not None and self.node.plugin.poll() is None

    def start_plugin(self) -> None:
        """Start the process and wait until what it offers is there."""
        self.steps.append("plugin started")
        self.cluster.start_plugin(NODE)
        self._until(lambda: [] if self._offered() else ["not offered"], what="the cards are offered", timeout_s=START_S)

    def kill_plugin(self) -> None:
        """Kill -9."""
        self.steps.append("plugin killed")
        self.disturb()
        self.cluster.kill_plugin(NODE)

    def restart_kubelet(self) -> None:
        """Restart kubelet; containers run on."""
        self.steps.append("kubelet restarted")
        self.disturb()
        self._kubelet_is_new = True
        for made in self.pods.values():
            made.torn = True
        self.node.restart_kubelet()

    def restart_api(self) -> None:
        """Drop every watch; what was missed is listed anew."""
        self.steps.append("API server restarted")
        self.cluster.api.stop()
        self.cluster.api.start()

    def vanish(self, uuid: str) -> None:
        """Let a card fall off the bus."""
        self.steps.append(f"{uuid} vanished")
        self.disturb()
        for made in self.pods.values():
            made.torn = True
        assert self.node.driver is not None
        self.node.driver.vanish(uuid)
        self.vanished.add(uuid)

    def restore(self, uuid: str) -> None:
        """Bring it back."""
        self.steps.append(f"{uuid} came back")
        assert self.node.driver is not None
        self.node.driver.restore(uuid)
        self.vanished.discard(uuid)

    # What must hold at any time.

    def wrong_now(self) -> list[str]:
        """Say what is wrong with pods that run, and which have failed though they were placed."""
        wrong, live = [], {p["metadata"]["uid"]: p for p in self.bed.pods()}
        used: Counter[str] = Counter()
        taken: dict[str, str] = {}
        for made in self.pods.values():
            found = live.get(made.uid)
            if found is None:
                continue
            if found["status"].get("phase") == "Failed" and made.due:
                wrong.append(f"{made.name} was placed and failed: {found['status'].get('message')}")
            ids = self._running_ids(made)
            if not found["metadata"].get("deletionTimestamp"):
                wrong += [line for want in made.wants for line in _misplaced(made, want, ids.get(want.name))]
            for one in frozenset().union(*ids.values()):
                wrong += [f"{one} is used by {made.name} and {taken[one]}"] if one in taken else []
                taken[one] = made.name
                used[_kind(one)] += 1
        wrong += [f"{card} has {n} units in use of {self.units[card]}" for card, n in _over(used, "m", self.units)]
        whole = dict.fromkeys(self.units, CORES)
        return [*wrong, *(f"{card} has {n} hundredths in use" for card, n in _over(used, "c", whole))]

    def _running_ids(self, made: Made) -> dict[str, frozenset[str]]:
        """Return the device ids of the pod's containers that run, as kubelet has booked them."""
        now_s, found = time.time(), {}
        for name, container in self.node.runtime.containers(made.uid).items():
            if container.is_running(now_s):
                booked = self.node.kubelet.manager.devices(made.uid, name)
                found[name] = frozenset(one for ids in booked.values() for one in ids)
        return {name: ids for name, ids in found.items() if ids}

    # What must hold once nothing is under way.

    def settle(self) -> None:
        """Wait until all books say the same, nobody waits for what is free, and nothing is held by who is gone."""
        self.steps.append("quiet")
        if not self.runs:
            self.start_plugin()
        self._until(self.differences, what="all books agree", timeout_s=QUIET_S)

    def differences(self) -> list[str]:
        """Say where two books differ."""
        if not self.node.kubelet.manager.sources_ready:  # till then the Node shows what it offered before the restart
            return ["kubelet has not handled its pods yet"]
        found = {p["metadata"]["uid"]: p for p in self.bed.pods()}
        gone = [p["metadata"]["name"] for uid, p in found.items() if uid not in {m.uid for m in self.pods.values()}]
        if gone or not self._offered():
            return [f"{gone} are still there, offered: {self._allocatable()}"]
        phases = {made.name: str(found[made.uid]["status"].get("phase")) for made in self.pods.values()}
        running = [made for made in self.pods.values() if phases[made.name] == "Running"]
        try:
            told = fetch_status(self.node.run_folder / "plugin.sock").raw["pods"]
        except CliError as error:
            return [str(error)]
        booked = self._checkpoint(running)
        books = {
            "annotations": _promised(found, running),
            "the plugin's status": _status(told, running),
            "PodResources": self._pod_resources(running),
        }
        wrong = [f"{name}: {_unlike(book, booked)}" for name, book in books.items() if _unlike(book, booked)]
        return [*wrong, *self._of_report(found, phases, booked), *self._stuck(found, phases)]

    def _of_report(self, found: Mapping[str, Json], phases: Mapping[str, str], booked: Cards) -> list[str]:
        """Say what is wrong with what the plugin reports to schedulers, in the Node's annotation."""
        cards, held = self._report()
        wrong = []
        sums: defaultdict[str, list[int]] = defaultdict(lambda: [0, 0])
        running = {made.uid for made in self.pods.values() if phases[made.name] == "Running"}
        for uid in held.keys() & running:  # one that is refused may have been given devices of a card held as a whole
            for card, units, core in held[uid]:
                sums[card][0] += units
                sums[card][1] += core
        for card, (units, core) in sums.items():
            if units > self.units[card] or core > CORES:
                wrong.append(f"the report has {units} units and {core} hundredths of {card} held")
        over = {uid for uid, p in found.items() if p["status"].get("phase") in {"Succeeded", "Failed"}}
        ended = held.keys() - (found.keys() - over)
        wrong += [f"the report has {uid} hold {held[uid]}, which has ended" for uid in ended]
        for made in self.pods.values():
            on = {card for card, *_ in held.get(made.uid, ())}
            have = {card for (uid, _), some in booked.items() if uid == made.uid for card in some}
            if phases[made.name] == "Running" and on != have & cards.keys():  # it names no card that it does not list
                wrong.append(f"the report has {made.name} on {sorted(on)}, and it is on {sorted(have)}")
        healthy = {card for card, is_healthy in cards.items() if is_healthy}
        if healthy != self.units.keys() - self.vanished:
            wrong.append(f"the report has {sorted(healthy)} healthy")
        return wrong

    def _stuck(self, found: Mapping[str, Json], phases: Mapping[str, str]) -> list[str]:
        """Say who waits though it was placed, or though there is room; that is plain for pods with one container.

        What a pod asks for counts against the node's sums also when its card is gone, or when it is refused.
        """
        cards, held = self._report()
        left = self._left(found, phases)
        free = {card: [self.units[card], CORES] for card, is_healthy in cards.items() if is_healthy}
        for shares in held.values():
            for card, units, core in shares:
                if card in free:
                    free[card][0] -= units
                    free[card][1] -= core
        wrong = []
        for made in self.pods.values():
            if phases[made.name] != "Pending" or made.forced or self._is_excused(made):
                continue
            bound = bool(found[made.uid]["spec"].get("nodeName"))
            fits = len(made.wants) == 1 and _fits(made.wants[0], left, free.values())
            if bound or fits:
                state = "placed" if bound else "though there is room"
                wrong.append(f"{made.name} waits for {made.wants}, {state}: {free}, {self.bed.events(made.name)[-2:]}")
        return wrong

    def _is_excused(self, made: Made) -> bool:
        """Say whether its devices lie wrong for a reason that is known, and it is told that it may not start.

        A card went in the middle of its admission: kubelet has given it devices of two cards, and keeps to them. Or a
        forced pod was taken for it, and the rest was no longer free on the card that it was promised.
        """
        booked = {want: self.node.kubelet.manager.devices(made.uid, want.name) for want in made.wants}
        ids = {want: frozenset(one for some in kinds.values() for one in some) for want, kinds in booked.items()}
        lies_wrong = any(_misplaced(made, want, some) for want, some in ids.items() if some)
        is_told = any(one.startswith("GPURefused") for one in self.bed.events(made.name))
        return is_told and (made.raced or (made.torn and lies_wrong))

    def _left(self, found: Mapping[str, Json], phases: Mapping[str, str]) -> tuple[int, int]:
        """Return what the scheduler takes for free on the node: its sums less what the pods bound there ask for."""
        units, core = self._allocatable()
        for made in self.pods.values():
            if found[made.uid]["spec"].get("nodeName") and phases[made.name] not in {"Succeeded", "Failed"}:
                asked = _asked(made.wants)
                units, core = units - asked[0], core - asked[1]
        return units, core

    def _served(self) -> set[str]:
        """Return the UIDs of the pods that have their devices by the Node's annotation."""
        value = self._annotation()
        return set() if value is None else value["held"].keys() - set(value["waiting"])

    def _annotation(self) -> Json | None:
        node = self.bed.get("Node", NODE) or {}
        value: Json | None = json.loads(node["metadata"].get("annotations", {}).get("edgegpu.io/cards-of-node", "null"))
        return value

    def _report(self) -> tuple[dict[str, bool], dict[str, list[tuple[str, int, int]]]]:
        """Read the Node's annotation by itself: cards with their health, and who holds what."""
        value = self._annotation()
        if value is None:
            return {}, {}
        names = [card[0] for card in value["cards"]]
        held = {uid: [(names[at], units, core) for at, units, core in some] for uid, some in value["held"].items()}
        return {card[0]: bool(card[3]) for card in value["cards"]}, held

    def _checkpoint(self, running: Sequence[Made]) -> Cards:
        ids: defaultdict[tuple[str, str], set[str]] = defaultdict(set)
        for entry in self.bed.checkpoint(NODE):
            ids[entry.pod_uid, entry.container].update(entry.device_ids)
        live = {made.uid for made in running}
        return {key: frozenset(_card(one) for one in some) for key, some in ids.items() if key[0] in live}

    def _pod_resources(self, running: Sequence[Made]) -> Cards:
        """Return what PodResources tells; it leaves out init containers, whose place is taken from the checkpoint."""
        names = {made.name: made for made in running}
        found: defaultdict[tuple[str, str], set[str]] = defaultdict(set)
        for one in self.bed.pod_resources(NODE):
            if one.ids and (made := names.get(one.pod)):
                found[made.uid, one.container].update(_card(text) for text in one.ids)
        inits = {(made.uid, want.name) for made in running for want in made.wants if want.init}
        booked = self._checkpoint(running)
        return {key: frozenset(cards) for key, cards in found.items()} | {k: booked[k] for k in inits & booked.keys()}

    def _allocatable(self) -> tuple[int, int]:
        status = (self.bed.get("Node", NODE) or {}).get("status", {}).get("allocatable", {})
        return int(status.get(MEMORY, 0)), int(status.get(CORE, 0))

    def _offered(self) -> bool:
        """Say whether the node offers what its healthy cards have."""
        healthy = self.units.keys() - self.vanished
        return self._allocatable() == (sum(self.units[card] for card in healthy), CORES * len(healthy))

    def _until(self, wrong: Callable[[], list[str]], *, what: str, timeout_s: float) -> None:
        last: list[str] = []

        def look() -> bool:
            last[:] = wrong()
            return not last

        try:
            self.bed.wait(look, what=what, timeout_s=timeout_s)
        except TimeoutSimError as error:
            raise AssertionError("\n".join([str(error), *last, *self.told()])) from None

    def told(self, lines: int = 400) -> list[str]:
        """Return what was done, what the plugin said last, and the pods as the API has them."""
        pods = [
            f"{p['metadata']['name']}: {p['metadata']['creationTimestamp']} {p['spec'].get('nodeName', '-')} "
            f"{p['metadata'].get('annotations')} {p['status'].get('phase')} {p['status'].get('message')}"
            for p in self.bed.pods()
        ]
        log = [line for line in self.node.log_tail(20_000).splitlines() if "grpc._cython" not in line]
        return [*self.steps, *log[-lines:], *pods]


def _container(want: Want) -> Json:
    more: Json = {"command": ["true"]} if want.init else {}
    if want.sidecar:
        more["restartPolicy"] = "Always"
    limits = {name: size for name, size in ((MEMORY, want.units), (CORE, want.core)) if size}
    return main(limits, name=want.name, **more)


def _asked(wants: Sequence[Want]) -> tuple[int, int]:
    """Return the most that a pod has at one time: what an init container asks for is free again when it has ended."""
    kept = most = (0, 0)
    for want in wants:
        now = (kept[0] + want.units, kept[1] + want.core)
        most = (max(most[0], now[0]), max(most[1], now[1]))
        kept = kept if want.init else now
    return most


def _fits(want: Want, left: tuple[int, int], free: Iterable[Sequence[int]]) -> bool:
    """Say whether a container is sure to have room: the sums have it, and one card; whole cards are passed over."""
    sums_do = want.units <= left[0] and want.core <= left[1] and want.core < CORES
    return sums_do and any(units >= want.units and core >= want.core for units, core in free)


def _misplaced(made: Made, want: Want, ids: frozenset[str] | None) -> list[str]:
    """Say what is wrong with where a running container lies: one card, or as many whole ones as it asks for."""
    if ids is None:
        return []
    memory = [one for one in ids if "::m" in one]
    core = [one for one in ids if "::c" in one]
    on = {_card(one) for one in core}
    if want.units and (len(memory), len(core)) != (want.units, want.core):
        return [f"{made.name}/{want.name} asks for {want} and has {len(memory)} units and {len(core)} hundredths"]
    if len(on) != want.cards or not {_card(one) for one in memory} <= on:
        return [f"{made.name}/{want.name} asks for {want} and lies on {sorted(ids)}"]
    return []


def _card(text: str) -> str:
    return text.partition("::")[0]


def _kind(text: str) -> str:
    """Return card and letter of an id: what its amount is counted by."""
    return f"{_card(text)}::{text.partition('::')[2][0]}"


def _over(used: Counter[str], letter: str, most: Mapping[str, int]) -> list[tuple[str, int]]:
    return [(card, used[f"{card}::{letter}"]) for card in most if used[f"{card}::{letter}"] > most[card]]


def _promised(found: Mapping[str, Json], running: Sequence[Made]) -> Cards:
    cards: Cards = {}
    for made in running:
        text = (found[made.uid]["metadata"].get("annotations") or {}).get("edgegpu.io/cards", '{"c": {}}')
        cards |= {(made.uid, name): frozenset(some) for name, some in json.loads(text)["c"].items()}
    return cards


def _status(rows: Sequence[Json], running: Sequence[Made]) -> Cards:
    live = {made.uid for made in running}
    return {(r["uid"], r["container"]): frozenset(c["uuid"] for c in r["cards"]) for r in rows if r["uid"] in live}


def _unlike(left: Cards, right: Cards) -> list[str]:
    keys = sorted(key for key in left.keys() | right.keys() if left.get(key) != right.get(key))
    return [f"{key}: {sorted(left.get(key, ()))} against {sorted(right.get(key, ()))}" for key in keys]
