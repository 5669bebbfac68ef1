"""What is kept of images that need more than a mount, by their digests, on the disk over restarts."""

import json
import logging
import threading
from collections.abc import Iterable
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from edgegpu_base.errors import EdgegpuError
from edgegpu_base.files import write_if_changed

_LOG = logging.getLogger(__name__)

_VERSION = 1
_FILE_MODE = 0o600
_MOST_IMAGES, _MOST_REFERENCES = 256, 16
"""The earliest go: an image that is seen again comes back."""


@dataclass(frozen=True, slots=True)
class ImageVerdict:
    """What was found of an image."""

    digest: str
    references: tuple[str, ...] = ()
    """By which names pods have asked for it, the newest last."""
    own_driver: str = ""
    """The path of a driver of its own that programs there load in the limiter's place; empty where none was seen."""
    own_list: tuple[str, ...] = ()
    """The libraries in its own /etc/ld.so.preload, which a container's list hides."""


class ImageVerdicts:
    """The file `images.json` in the state folder; safe to use from several threads.

    Only images that need something are kept. Which image a container will have is not known before its start: pods name
    it by a tag, which may have moved. So all digests count that a name has had: a verdict that is too much preloads a
    library.
    """

    def __init__(self, state: Path) -> None:
        self._path = state / "images.json"
        self._lock = threading.Lock()
        self._verdicts: dict[str, ImageVerdict] | None = None
        self._is_written = True

    def of(self, digests: Iterable[str], reference: str = "") -> tuple[ImageVerdict, ...]:
        """Return the verdicts on images with these digests, and on those that were asked for by this name."""
        wanted = set(digests)
        with self._lock:
            known = self._read().values()
        return tuple(one for one in known if one.digest in wanted or (reference and reference in one.references))

    def put(self, verdict: ImageVerdict) -> None:
        """Keep what was found of an image, beside what was found before; a failed write is tried at the next call."""
        with self._lock:
            known = self._read()
            before = known.get(verdict.digest, ImageVerdict(verdict.digest))
            references = dict.fromkeys((*before.references, *verdict.references))
            merged = replace(
                before,
                references=tuple(references)[-_MOST_REFERENCES:],
                own_driver=verdict.own_driver or before.own_driver,
                own_list=verdict.own_list or before.own_list,
            )
            if merged == known.get(verdict.digest) and self._is_written:
                return
            kept = [one for digest, one in known.items() if digest != verdict.digest][-_MOST_IMAGES + 1 :]
            verdicts = {one.digest: one for one in (*kept, merged)}
            self._verdicts = verdicts
            text = json.dumps({"version": _VERSION, "images": [asdict(one) for one in verdicts.values()]}, indent=1)
            try:
                write_if_changed(self._path, text + "\n", mode=_FILE_MODE)
            except EdgegpuError as error:
                if self._is_written:  # once, and not at each look
                    _LOG.warning("cannot keep what was found of an image over a restart: %s", error)
                self._is_written = False
            else:
                self._is_written = True

    def _read(self) -> dict[str, ImageVerdict]:
        if self._verdicts is None:
            self._verdicts = {one.digest: one for one in self._load()}
        return self._verdicts

    def _load(self) -> list[ImageVerdict]:
        try:
            return _verdicts(json.loads(self._path.read_bytes()))
        except FileNotFoundError:
            return []
        except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
            _LOG.warning("cannot read %s: %s: images are looked at anew", self._path, error)
            return []


def _verdicts(value: Any) -> list[ImageVerdict]:  # noqa: ANN401  (JSON)
    if value["version"] != _VERSION:
        raise ValueError(f"it has version {value['version']}, not {_VERSION}")
    return [_verdict(one) for one in value["images"]]


def _verdict(value: Any) -> ImageVerdict:  # noqa: ANN401  (JSON)
    return ImageVerdict(
        str(value["digest"]),
        tuple(map(str, value["references"])),
        str(value["own_driver"]),
        tuple(map(str, value["own_list"])),
    )
