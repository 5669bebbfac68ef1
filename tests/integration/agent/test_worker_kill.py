"""A process that holds the journal is killed with SIGKILL at its writes; another one goes on with the file."""

import json
import os
import pickle
import signal
import subprocess
import sys
from pathlib import Path

from kits.worker import Box, Wire, fast_folder, wired
from kits.workercontroller import INSTALL, RESTART, Controller
from kits.workerworld import World

from edgegpu_sync.messages.spec import Sharing, Spec

CUTS = range(1, 40, 2)


def without(value: object, *names: str) -> dict[str, object]:
    return {name: part for name, part in vars(value).items() if name not in names}


class MortalWorld(World):
    """Kills its process at one step; what it and the controller know by then lies in a file."""

    left: Path
    controller: Controller

    def step(self) -> None:
        self.steps += 1
        if self.steps == self.cut_at:
            self.left.write_bytes(
                pickle.dumps((without(self, "controller"), without(self.controller, "world", "signer")))
            )
            os.kill(os.getpid(), signal.SIGKILL)


def live(folder: Path, cut: int) -> None:
    """Be killed at a step; returns when there are fewer."""
    world = MortalWorld()
    wire = wired(folder, world=world, hook=lambda _when, _change: world.step())
    world.left, world.controller = folder / "left", wire.controller
    controller = wire.controller
    rev = controller.desire(Spec(sharing=Sharing(rev=1, installed=True)))
    controller.command(RESTART)
    controller.command(INSTALL, {"min_rev": rev})
    wire.down += controller.desired_message()
    world.steps, world.cut_at = 0, cut
    wire.pass_time(5)
    os._exit(0)


def go_on(folder: Path) -> dict[str, object]:
    """Go on with what a killed process has left; returns what came of it."""
    world = World()
    controller = Controller(world)
    mine, its = pickle.loads((folder / "left").read_bytes())  # noqa: S301  (written above)
    vars(world).update({name: value for name, value in mine.items() if name in vars(world)})
    vars(controller).update(its)
    world.cut_at = -1
    wire = Wire(Box(folder, world=world).start(), controller)
    wire.connect()
    wire.pass_time(150, 10)
    return {
        "ends": [[state.value for state in states] for states in controller.ends.values()],
        "restarts": list(world.restarted_by.values()),
        "transactions": list(world.transactions.values()),
        "waiting": wire.box.worker.status().results_waiting,
    }


def main(folder: Path) -> None:
    """Fork a process for each cut, let it be killed, and go on here."""
    told = []
    for cut in CUTS:
        place = folder / str(cut)
        place.mkdir()
        child = os.fork()
        if not child:
            live(place, cut)
        status = os.waitpid(child, 0)[1]
        if os.WIFSIGNALED(status):
            told.append(go_on(place))
    sys.stdout.write(json.dumps(told))


def test_what_a_killed_process_has_left_is_brought_to_its_end() -> None:
    with fast_folder() as folder:
        paths = os.pathsep.join([str(Path(__file__).parents[1]), str(Path(__file__).parents[2])])
        done = subprocess.run(
            [sys.executable, __file__, str(folder)],
            stdout=subprocess.PIPE,
            check=True,
            timeout=240,
            env={**os.environ, "PYTHONPATH": paths},
        )
    told = json.loads(done.stdout)
    assert len(told) >= 15
    right = {"ends": [["SUCCEEDED"]] * 2, "restarts": [1], "transactions": [1], "waiting": 0}
    assert all(one == right for one in told), told


if __name__ == "__main__":
    main(Path(sys.argv[1]))
