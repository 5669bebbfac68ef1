"""What lies are made of: messages that were really sent, the keys of the run, and the numbers that are in effect."""

from __future__ import annotations

import json
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from edgegpu_sync.topics import TopicKind, parse

if TYPE_CHECKING:
    from collections.abc import Sequence

    from edgegpu_sync.ids import DeviceId
    from edgegpu_sync.messages.downlink import KeySetLink
    from edgegpu_sync.signing import Signer


@dataclass(frozen=True, slots=True)
class Heard:
    """A message as it was on the wire."""

    topic: str
    payload: bytes = field(repr=False)

    @property
    def kind(self) -> TopicKind:
        return parse(self.topic).kind

    @property
    def device(self) -> DeviceId:
        return parse(self.topic).device

    @property
    def body(self) -> bytes:
        return self.payload.partition(b"\n")[2]

    @property
    def value(self) -> dict[str, Any]:
        value: dict[str, Any] = json.loads(self.body)
        return value


@dataclass(frozen=True, slots=True, kw_only=True)
class Material:
    """`down` came down to `me`, `other_down` to another box of the same controller; `up` came up from both.

    `controller` is the key that boxes obey, `stranger` one that nobody knows. `epoch`, `enrolment` and `rev` are those
    in effect on `me` for the whole run, `seq` is that of the last command before it, `link` the newest key set; each
    `desired` among `down` is below `rev`.
    """

    me: DeviceId
    down: Sequence[Heard]
    other_down: Sequence[Heard]
    up: Sequence[Heard]
    controller: Signer
    stranger: Signer
    enrolment: int
    epoch: dict[str, Any]
    older_epochs: Sequence[dict[str, Any]]
    rev: int
    seq: int
    link: KeySetLink

    def _repr_pretty_(self, printer: Any, _cycle: bool) -> None:  # noqa: ANN401, FBT001
        """Be short: hypothesis names its strategies by their arguments."""
        printer.text("have")

    def of(self, kind: TopicKind) -> list[Heard]:
        """Return what came down to this box of a kind."""
        return [one for one in self.down if one.kind is kind]

    def mirrored(self) -> Material:
        """Return what to lie to the controller with: what this box has said in the place of what came down to it."""
        return replace(self, down=[one for one in self.up if one.device == self.me])

    @property
    def signed(self) -> list[Heard]:
        """What came down to this box under a controller's signature."""
        return [one for one in self.down if one.kind is not TopicKind.KEYS]
