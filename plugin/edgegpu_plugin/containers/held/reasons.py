"""The texts that say why a container is not held, or not surely."""

from collections.abc import Iterable, Sequence
from pathlib import Path

from edgegpu_core.choices.pod_choice import ISOLATION_ANNOTATION
from edgegpu_core.reasons import NO_MEMORY_REASON

PRELOAD_ONLY = (
    "preload only: the nvidia runtime brings the driver's files, so that programs are held which ask for the driver by "
    "its usual name, and those that open its file or are static are not; driver.injection cdi or devices hold all"
)
NOT_PRELOADED = "the limiter could not be preloaded when its pod was admitted: delete the pod to have it made anew"
BEFORE = "its pod was admitted before the limiter was laid over containers: delete the pod to have it made anew"
CHOSEN = f"its pod's annotation {ISOLATION_ANNOTATION} chooses none"
ANOTHER_VERSION = (
    "it started with the limiter of another version of edgegpu, which goes on to hold it, and whose figures this one "
    "cannot read: start it again"
)

HIDDEN_LIST = (
    "its image has an /etc/ld.so.preload of its own, which the container's hides at its first start here: start it "
    "again, and both count"
)
UNWRITABLE = (
    f"{NO_MEMORY_REASON}its programs may not write /run/edgegpu/container/usage, which SELinux, AppArmor or a "
    "read-only mount can forbid, and fail; nothing is taken past its limit; allow that file, then start it again"
)
"""Of a container whose usage file its programs may not write."""
NOT_STARTED = "it has not started yet"


def why_unread(folders: Sequence[Path], *, is_of_another_version: bool, has_started: bool = True) -> str:
    """Return why nothing is known of what a container counts in these folders."""
    if is_of_another_version:
        return ANOTHER_VERSION
    if not has_started and not any(folder.exists() for folder in folders):
        return NOT_STARTED
    named = ", ".join(map(str, folders))
    return f"its files in {named} are not whole: its processes get no more card memory until it is started again"


def why_opened(capabilities: Iterable[str]) -> str:
    """Return why a container is not held to all of its limits that has these capabilities; empty without any."""
    named = ", ".join(sorted(capabilities))
    if not named:
        return ""
    return (
        f"its pod has opened {named}: the card memory that this takes counts two seconds late and is not refused, and "
        "its part of the card's time is not held"
    )
