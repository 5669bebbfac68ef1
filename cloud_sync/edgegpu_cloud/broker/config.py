"""mosquitto's configuration, rendered from the templates in `brokerfiles`."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from importlib.resources import files
from pathlib import Path
from string import Template

from edgegpu_cloud.errors import CloudError

_OLDER_BOXES = """\
# Older agents send each command's results under a topic of its own: a box may have the broker keep any number of
# messages there. `edgegpu-cloud broker` leaves this line out when no such box is left.
pattern write edgegpu/v1/%u/up/cmd/+
"""

_GUARD = "mosquitto_guard.c"

TEMPLATES = ("mosquitto.conf", "boxes.acl", "controllers.acl")


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerPaths:
    """The paths of the broker's files; its user can read each of them."""

    folder: Path
    """The folder for the rendered files."""
    data: Path
    """The folder in which the broker keeps what must last; its user writes there."""
    boxes_ca: Path
    controllers_ca: Path
    crl: Path
    """The boxes' certificates that are revoked; the list must exist, though empty, and be in date."""
    cert: Path
    key: Path


@dataclass(frozen=True, slots=True, kw_only=True)
class Listeners:
    """The two ports, and the address that they are bound to; empty: every address."""

    boxes: int = 8883
    controllers: int = 8884
    bind: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerLimits:
    """The limits of what the broker accepts and keeps: docs/broker.md's figures, for a fleet of ten thousand boxes."""

    max_inflight_messages: int = 100
    max_queued_messages: int = 100_000
    max_queued_bytes: int = 64 * 1_048_576
    memory_limit: int = 1024 * 1_048_576
    max_packet_size: int = 65_536 + 1_024
    autosave_on_changes: bool = False
    """Save after so many changes (`autosave_interval`) instead of seconds.

    Each save writes everything: for one to a hundred boxes 1 is good, at ten thousand it leaves room for 15 messages a
    second.
    """
    autosave_interval: int = 60
    """A kill -9 loses at most what came since: sessions, retained messages, queues. Both sides send it again."""


def render(
    listeners: Listeners,
    paths: BrokerPaths,
    *,
    limits: BrokerLimits | None = None,
    user: str = "mosquitto",
    older_boxes: bool = False,
    guard: str = "",
    blocked: Sequence[str] = (),
) -> dict[str, str]:
    """Return the texts of the files by name, to be put into `paths.folder`.

    Args:
        listeners: ports of boxes and of controllers.
        paths: of the broker's files.
        limits: what the broker may keep.
        user: the user that mosquitto becomes when it is started as root.
        older_boxes: whether boxes may send results under topics that end with a command's id.
        guard: the path of the plugin that both listeners load; empty: none.
        blocked: device ids of boxes that may nothing, for a broker without the guard too.

    Raises:
        CloudError: a path or a word that would break a line of the configuration.
    """
    limits = limits or BrokerLimits()
    words = {
        **asdict(paths),
        **asdict(limits),
        "user": user,
        "older_boxes": "",
        "guard": guard,
        "blocked": "",
        "boxes_port": listeners.boxes,
        "controllers_port": listeners.controllers,
        "bind": listeners.bind and f" {listeners.bind}",
        "autosave_on_changes": str(limits.autosave_on_changes).lower(),
    }
    for name, word in words.items():
        if not str(word).isprintable():
            text = f"cannot write the broker's configuration: {name} is {str(word)!r}"
            raise CloudError(text, remedy="name it without line breaks")
    words["guard"] = f"plugin {guard}\n" if guard else ""
    words["control"] = f"plugin {guard}\nplugin_opt_blocked {paths.data}/blocked\n" if guard else ""
    words["blocked"] = blocked_rights(blocked)
    words["older_boxes"] = _OLDER_BOXES if older_boxes else ""
    templates = files("edgegpu_cloud") / "brokerfiles"
    return {name: Template((templates / name).read_text()).substitute(words) for name in TEMPLATES}


def blocked_rights(devices: Sequence[str]) -> str:
    """Return the lines of the access list by which blocked boxes may neither write nor read."""
    return "".join(f"# Blocked.\nuser {device}\ntopic deny edgegpu/#\n" for device in devices)


def guard_source() -> str:
    """Return the source of the plugin for the boxes' listener, in C; it is compiled on the broker's machine."""
    return (files("edgegpu_cloud") / "brokerfiles" / _GUARD).read_text()
