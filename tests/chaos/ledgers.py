"""What a booted box really did: systemd's journal, the installer's history, the API server's audit log. Pure."""

from __future__ import annotations

import calendar
import json
import re
import time
from collections import Counter, defaultdict
from dataclasses import dataclass
from itertools import takewhile
from typing import TYPE_CHECKING, Any

from chaos.verdict import Start

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence

STARTING = "7d4958e842da4a758f6c1cdc7b36dcc5"
AGAIN = "5eb03494b6584870a536b337290809b3"
"""Messages of systemd's: a unit is being started; it will be started again, since it ended by itself."""

MEMORY, CORE = "baidu.com/vcuda-memory", "baidu.com/vcuda-core"
_ITEM = re.compile(r"(?P<item>[a-z-]+?)-(?P<rev>\d+)-[a-z0-9]+")


@dataclass(frozen=True, slots=True)
class Transaction:
    """One of the installer's: its states in their order, and between which seconds since 1970 it was at work."""

    id: str
    states: tuple[str, ...]
    from_s: float
    until_s: float

    @property
    def item(self) -> str:
        """The item and the revision that it was for; empty where it was for none."""
        found = _ITEM.fullmatch(self.id)
        return f"{found['item']}-{found['rev']}" if found else ""


def transactions(lines: Iterable[str]) -> list[Transaction]:
    """Read the installer's history; its stamps are whole seconds."""
    said: dict[str, list[tuple[float, str]]] = defaultdict(list)
    for line in lines:
        words = line.split()
        if len(words) > 3 and words[0].endswith("Z") and words[3].isupper():
            stamp_s = calendar.timegm(time.strptime(words[0], "%Y-%m-%dT%H:%M:%SZ"))
            said[words[1]].append((float(stamp_s), words[3]))
    return [Transaction(id_, tuple(state for _, state in of), min(of)[0], max(of)[0] + 1.0) for id_, of in said.items()]


def starts(
    entries: Iterable[Mapping[str, Any]],
    at_work: Sequence[Transaction],
    *,
    since_s: float,
    named: Collection[str] = (),
) -> dict[str, list[Start]]:
    """Return the starts of each unit with who began them; what was before `since_s` (since 1970) was nobody's.

    Args:
        entries: of the journal, those of PID 1, as `journalctl -o json` has them, oldest first.
        at_work: the installer's transactions. What starts while one is under way is its own, for nobody else restarts
            anything then.
        named: the starts that commands say were theirs: asked where the stamps of an installer, which are whole
            seconds, leave open whether it had begun, or had ended.
    """
    found: dict[str, list[Start]] = defaultdict(list)
    again: set[str] = set()
    boots: dict[str, str] = {}
    for one in entries:
        unit, boot = str(one.get("UNIT", "")), str(one.get("_BOOT_ID", ""))
        if one.get("MESSAGE_ID") == AGAIN:
            again.add(unit)
        if one.get("MESSAGE_ID") != STARTING:
            continue
        at_s = int(one["__REALTIME_TIMESTAMP"]) / 1e6
        if at_s < since_s:
            by = "before"
        elif unit in boots and boots[unit] != boot:
            by = "boot"
        elif unit in again:
            by = "systemd"
        else:
            open_ = str(one["INVOCATION_ID"]) in named
            by = next((f"installer {tx.id}" for tx in at_work if _within(tx, at_s, surely=open_)), "systemctl")
        boots[unit] = boot
        again.discard(unit)
        start = Start(str(one["INVOCATION_ID"]), by)
        replaced = _replaced_by(start, found[unit], named)
        if replaced is not None:
            found[unit].remove(replaced)
            start = Start(start.id, "systemctl")
        found[unit].append(start)
    return found


def _replaced_by(start: Start, before: Sequence[Start], named: Collection[str]) -> Start | None:
    """Return the start of a command that names this start, which systemd or an installer began, in its place.

    An agent that was killed after it had asked for a restart finds the run that there is now. By then systemd may have
    started the unit once more, or an installer has restarted it.
    """
    if start.id not in named or not start.by.startswith(("systemd", "installer")):
        return None
    unnamed = takewhile(lambda one: one.id not in named, reversed(before))
    return next((one for one in unnamed if one.by == "systemctl"), None)


def _within(tx: Transaction, at_s: float, *, surely: bool) -> bool:
    border_s = 1.0 if surely else 0.0
    return tx.from_s + border_s <= at_s <= tx.until_s - border_s


@dataclass(frozen=True, slots=True)
class Written:
    """Limits that were written into an app, by whom; `version`: of the workload, by uid and generation."""

    app: str
    by: str
    version: str
    amounts: tuple[int, int]


def written(lines: Iterable[str]) -> list[Written]:
    """Return each write that changed an app's limits, from the audit log, oldest first."""
    found: list[Written] = []
    last: dict[str, tuple[int, int]] = {}
    for line in lines:
        event = json.loads(line)
        code, ref = event.get("responseStatus", {}).get("code"), event.get("objectRef", {})
        made = event.get("responseObject") or {}
        if code not in {200, 201} or ref.get("resource") != "deployments" or "spec" not in made:
            continue
        app, amounts = str(ref["name"]), amounts_of(made)
        meta = made["metadata"]
        if last.get(app, amounts) != amounts:
            version = f"{meta['uid']} {meta['generation']}"
            found.append(Written(app, str(event["user"]["username"]), version, amounts))
        last[app] = amounts
    return found


def amounts_of(workload: Mapping[str, Any]) -> tuple[int, int]:
    """Return the limits of an app's first container."""
    limits = workload["spec"]["template"]["spec"]["containers"][0].get("resources", {}).get("limits", {})
    return _number(limits.get(MEMORY, "0")), _number(limits.get(CORE, "0"))


def _number(quantity: str) -> int:
    return int(quantity.removesuffix("k")) * (1000 if quantity.endswith("k") else 1)


def too_often(writes: Iterable[Written]) -> list[str]:
    """Return, in words, what was written into an app more than once. No two revisions ask for the same amounts.

    Amounts that stood before the last write may come back once: those of a revision that was put back.
    """
    found: list[str] = []
    by_app: dict[str, list[Written]] = defaultdict(list)
    for one in writes:
        if all(one.version != other.version for other in by_app[one.app]):  # a power cut takes the last ones back
            by_app[one.app].append(one)
    for app, ones in by_app.items():
        back: set[int] = set()
        for at, one in enumerate(ones):
            if all(one.amounts != other.amounts for other in ones[:at]):
                continue
            if at >= 2 and ones[at - 2].amounts == one.amounts and at - 1 not in back:
                back.add(at)
            else:
                found.append(f"{app} got limits {one.amounts} again, by {one.by}, in generation {one.version}")
    return found


def restarted_twice(found: Mapping[str, Iterable[Start]], committed: Iterable[Transaction]) -> list[str]:
    """Return, in words, each unit that a transaction which came to its end in order has restarted more than once."""
    told = []
    for unit, ones in found.items():
        by = Counter(one.by for one in ones)
        told += [f"{tx.id} started {unit} {n} times" for tx in committed if (n := by[f"installer {tx.id}"]) > 1]
    return told
