"""The live limits of this node: containers that are held to less than they hold, on the disk over restarts."""

import json
import logging
from collections.abc import Container, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from edgegpu_base.errors import EdgegpuError
from edgegpu_base.files import write_if_changed
from edgegpu_plugin.errors import PluginError

_LOG = logging.getLogger(__name__)
_VERSION = 1
_FILE_MODE = 0o600
_MOST_UNITS = 1 << 24


@dataclass(frozen=True, slots=True)
class LiveLimit:
    """The limit of one container below what it holds, in units by card; `uid` is the pod's in kubelet's records."""

    uid: str
    container: str
    memory_units: Mapping[str, int]


class LiveLimits:
    """The file `live-limits.json` in the state folder; the caller sees to it that one thread at a time uses it."""

    def __init__(self, state: Path) -> None:
        self._path = state / "live-limits.json"
        self._limits: dict[tuple[str, str], LiveLimit] | None = None

    def all(self) -> tuple[LiveLimit, ...]:
        """Return every live limit."""
        return tuple(self._read().values())

    def units(self, uid: str, container: str) -> Mapping[str, int]:
        """Return the units by card that a container is held to; empty where it has no live limit."""
        found = self._read().get((uid, container))
        return {} if found is None else found.memory_units

    def put(self, limit: LiveLimit) -> None:
        """Keep a container's live limit; without units it has none.

        Raises:
            PluginError: the file cannot be written; nothing has changed.
        """
        limits = {**self._read(), (limit.uid, limit.container): limit}
        self._write({key: one for key, one in limits.items() if one.memory_units})

    def keep(self, uids: Container[str]) -> None:
        """Forget the containers of all other pods.

        Raises:
            PluginError: the file cannot be written; nothing has changed.
        """
        self._write({key: one for key, one in self._read().items() if one.uid in uids})

    def _read(self) -> dict[tuple[str, str], LiveLimit]:
        if self._limits is None:
            self._limits = {(one.uid, one.container): one for one in self._load()}
        return self._limits

    def _load(self) -> list[LiveLimit]:
        try:
            return _limits(json.loads(self._path.read_bytes()))
        except FileNotFoundError:
            return []
        except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
            _LOG.warning("cannot read %s: %s: containers are held to all that they hold", self._path, error)
            return []

    def _write(self, limits: dict[tuple[str, str], LiveLimit]) -> None:
        if limits == self._read():
            return
        rows = [
            {"uid": one.uid, "container": one.container, "memory_units": dict(one.memory_units)}
            for one in limits.values()
        ]
        text = json.dumps({"version": _VERSION, "limits": rows}, indent=1) + "\n"
        try:
            write_if_changed(self._path, text, mode=_FILE_MODE)
        except EdgegpuError as error:
            raise PluginError(f"cannot keep the live limits: {error}") from error
        self._limits = limits


def _limits(value: Any) -> list[LiveLimit]:  # noqa: ANN401  (JSON)
    if value["version"] != _VERSION:
        raise ValueError(f"it has version {value['version']}, not {_VERSION}")
    return [_limit(one) for one in value["limits"]]


def _limit(value: Any) -> LiveLimit:  # noqa: ANN401  (JSON)
    units = {str(card): int(count) for card, count in value["memory_units"].items()}
    if not all(0 <= count <= _MOST_UNITS for count in units.values()):
        raise ValueError("a number of units that no card has")
    return LiveLimit(str(value["uid"]), str(value["container"]), units)
