"""A program that looks at the cards of one driver root, as the plugin does: a process can load only one driver.

Each line on stdout is one JSON object: {"cards": …} when the cards changed, or the answer to a line on stdin.
"""

import json
import logging
import sys
import threading
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from edgegpu_core.inventory import Card
from edgegpu_plugin.cards.nvml import Nvml
from edgegpu_plugin.cards.nvml_library import CardProcess
from edgegpu_plugin.config.schema import Driver
from edgegpu_plugin.errors import NvmlError

_lock = threading.Lock()


def _say(value: dict[str, Any]) -> None:
    with _lock:
        sys.stdout.write(json.dumps(value) + "\n")
        sys.stdout.flush()


def _changed(cards: tuple[Card, ...]) -> None:
    _say({"cards": [asdict(card) for card in cards]})


_processes: list[dict[str, Any]] = []
"""What the driver listed, each time."""


def _listed(found: Mapping[str, tuple[CardProcess, ...]]) -> None:
    _processes.append({uuid: [asdict(one) for one in some] for uuid, some in found.items()})


def _answer(nvml: Nvml, command: str) -> dict[str, Any]:
    if command == "processes":
        return {"processes": _processes}
    action, _, gpu = command.partition(" ")
    try:
        if gpu:
            (nvml.release if action == "release" else nvml.accept)(gpu)
            return {"done": gpu}
        if command == "look":
            return {"look": [asdict(card) for card in nvml.cards()]}
    except NvmlError as error:
        return {"kind": error.kind.name, "text": str(error)}
    return {"problem": nvml.problem, "version": nvml.driver_version}


def main() -> None:
    """Run until stdin ends."""
    logging.basicConfig(level=logging.INFO, stream=sys.stderr, format="%(message)s")
    settings = Driver.model_validate(json.loads(sys.argv[1]))
    nvml = Nvml(settings, on_cards=_changed, on_processes=_listed)
    task = threading.Thread(target=nvml.run, daemon=True)
    if sys.argv[2:] == ["run"]:
        task.start()
    for line in sys.stdin:
        _say(_answer(nvml, line.strip()))
    nvml.stop()
    if task.is_alive():
        task.join(30)


if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).resolve().parents[2]))
    main()
