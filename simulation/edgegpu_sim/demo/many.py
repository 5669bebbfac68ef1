"""Many simpler boxes beside the demo's own: they connect, report and take requests, and have no agent or plugin."""

import sys
from pathlib import Path

from edgegpu_agent.demo.model import DemoError
from edgegpu_agent.demo.run import Say
from edgegpu_cloud.layout import CloudLayout, load, store_url
from edgegpu_cloud.store.store import ControllerStore
from edgegpu_sim.demo.controller import DemoController
from edgegpu_sim.demo.processes import Processes
from edgegpu_sim.manyboxes.enrolled import devices_of, enrol_all
from edgegpu_sim.manyboxes.profiles import PROFILES

_PROFILE = "shop-floor"


def start_many(number: int, controller: DemoController, processes: Processes, folder: Path, say: Say) -> None:
    """Let so many boxes join a demo's cloud.

    Raises:
        DemoError: they cannot be enrolled.
    """
    layout = CloudLayout(controller.folder)
    store = ControllerStore.open(store_url(layout, load(layout.config).database))
    try:
        enrol_all(store, layout, devices_of(number), folder, profile=PROFILES[_PROFILE], by="make demo")
    except OSError as error:
        raise DemoError(f"cannot enrol {number} boxes: {error}") from error
    finally:
        store.close()
    words = ["--port", str(controller.broker_port), "--ca", str(layout.ca_cert("servers")), "--folder", str(folder)]
    command = [sys.executable, "-m", "edgegpu_sim.manyboxes", *words, "--profile", _PROFILE]
    processes.start("many boxes", command)
    say(f"  {number} simpler boxes connect: they report and take requests, and carry out no commands")
