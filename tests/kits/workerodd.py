"""A simulated box whose restart and settler do what a test says."""

from collections.abc import Iterator
from contextlib import contextmanager

from kits.worker import Box, Wire, fast_folder, wired
from kits.workercontroller import RESTART
from kits.workerworld import RestartAct, SharingSettler, World

from edgegpu_agent.ports import ActionOutcome, Acts, SettlerNotes, Settlers
from edgegpu_sync.ids import CommandId
from edgegpu_sync.messages.spec import AskedItem, Sharing
from edgegpu_sync.rules.ops import Args, Evidence
from edgegpu_sync.rules.settle import Settlement
from edgegpu_sync.states import CommandState


class OddAct(RestartAct):
    """A verifiable act that does what the test says."""

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self.raises: dict[str, Exception] = {}
        self.before_it = False
        self.found: Evidence | None = None
        self.says: ActionOutcome | None = None

    def token(self, id_: CommandId, args: Args) -> str:
        self._raise("token")
        return super().token(id_, args)

    def act(self, id_: CommandId, args: Args, token: str) -> ActionOutcome:
        if self.before_it:
            self._raise("act")
        outcome = super().act(id_, args, token)
        self._raise("act")
        return self.says or outcome

    def evidence(self, id_: CommandId, token: str) -> Evidence:
        self._raise("evidence")
        return self.found or super().evidence(id_, token)

    def verify(self, id_: CommandId, args: Args, token: str) -> ActionOutcome | None:
        self._raise("verify")
        return super().verify(id_, args, token)

    def _raise(self, where: str) -> None:
        if where in self.raises:
            raise self.raises[where]


class OddSettler(SharingSettler):
    """A settler that does what the test says."""

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self.raises: Exception | None = None
        self.says: Settlement | None = None
        self.seen: list[tuple[int, object]] = []
        self.abandoned: list[tuple[str, object]] = []

    def abandon(self, one: AskedItem, notes: SettlerNotes) -> None:
        self.abandoned.append((one.name, notes.read()))
        if self.raises is not None:
            raise self.raises

    def settle(self, one: AskedItem, notes: SettlerNotes) -> Settlement:
        self.seen.append((one.key.rev, notes.read()))
        settlement = super().settle(one, notes)
        if self.raises:
            raise self.raises
        return self.says or settlement


class OddBox(Box):
    """A box with both."""

    def acts(self) -> Acts:
        self.act = OddAct(self.world)
        return {**super().acts(), RESTART: self.act}

    def settlers(self) -> Settlers:
        self.settler = OddSettler(self.world)
        return {Sharing: self.settler}


@contextmanager
def odd_wire() -> Iterator[Wire]:
    """Yield such a box that is connected to a controller; it dies at the end."""
    with fast_folder() as folder:
        wire = wired(OddBox(folder))
        yield wire
        wire.box.crash()


def odd(wire: Wire) -> OddBox:
    """Return the box of `odd_wire`."""
    assert isinstance(wire.box, OddBox)
    return wire.box


def end(wire: Wire, id_: CommandId) -> tuple[CommandState, str | None]:
    """Return state and code with which a command ended, as its controller was told."""
    result = wire.controller.results[id_]
    return result.state, result.code
