"""A link on a thread of its own, and what came out of it; for tests."""

from __future__ import annotations

import random
import threading
import time
from typing import TYPE_CHECKING, Any, Self, TypeVar

from edgegpu_sync.link.events import FiltersGranted, LinkDown, LinkEvent, LinkUp, MessageArrived, PublishAcknowledged
from edgegpu_sync.link.link import Link
from edgegpu_sync.link.rules import STRIKES

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from edgegpu_sync.link.events import Address
    from edgegpu_sync.link.rules import Message, Quarantine


class Hasty(random.Random):
    """Chance that always means the shortest wait: tests need not wait for a fleet."""

    def random(self) -> float:
        return 0.0


E = TypeVar("E", LinkUp, LinkDown, MessageArrived, PublishAcknowledged, FiltersGranted)


def held_in(quarantine: Quarantine) -> list[Message]:
    """Return the messages that were followed by the connection's end twice."""
    return [one.message for one in quarantine.strikes.values() if one.strikes >= STRIKES]


class LinkRun:
    """Use it with `with`: the thread ends with the block, and what ended it early is raised there."""

    def __init__(
        self,
        address: Address | Callable[[], Address],
        subscribe: Sequence[str] | None = None,
        **more: Any,  # noqa: ANN401
    ) -> None:
        self.events: list[LinkEvent] = []
        self.error: BaseException | None = None
        self._new = threading.Condition()
        self._seen = 0
        known = address if callable(address) else lambda: address
        first = known()
        self.rng = Hasty()
        options: dict[str, Any] = {"will": lambda: None, "rng": self.rng, "clock": time.monotonic} | more
        filters = [f"edgegpu/v1/{first.client_id}/down/#"] if subscribe is None else subscribe
        self.link = Link(known, subscribe=filters, put=self._put, **options)
        self._thread = threading.Thread(target=self._run, name=f"link {first.client_id}")

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.link.stop()
        self._thread.join(30)
        assert not self._thread.is_alive(), "the link does not stop"

    def _run(self) -> None:
        try:
            self.link.run()
        except BaseException as error:  # noqa: BLE001 - shown by `events` and `error`
            self.error = error
        with self._new:
            self._new.notify_all()

    def _put(self, event: LinkEvent) -> None:
        with self._new:
            self.events.append(event)
            self._new.notify_all()

    def next(self, kind: type[E], *, timeout_s: float = 30.0, where: Callable[[E], bool] = lambda _: True) -> E:
        """Return the next event of a kind, passing over others; each is returned once."""
        end = time.monotonic() + timeout_s
        with self._new:
            while True:
                while self._seen < len(self.events):
                    event = self.events[self._seen]
                    self._seen += 1
                    if isinstance(event, kind) and where(event):
                        return event
                assert self.error is None, f"the link has ended: {self.error!r}"
                if not self._new.wait(end - time.monotonic()):
                    raise TimeoutError(f"no {kind.__name__} in {timeout_s:g} s; there were {self.events[-5:]}")

    def following(self, *, timeout_s: float = 30.0) -> LinkEvent:
        """Return the next event of any kind."""
        with self._new:
            assert self._new.wait_for(lambda: self._seen < len(self.events), timeout_s), "nothing more comes out"
            self._seen += 1
            return self.events[self._seen - 1]

    def ended(self, *, timeout_s: float = 30.0) -> BaseException | None:
        """Wait for the end of `run`; return what it raised."""
        self._thread.join(timeout_s)
        assert not self._thread.is_alive()
        return self.error

    def so_far(self, kind: type[E]) -> list[E]:
        """Return all events of a kind until now."""
        with self._new:
            return [event for event in self.events if isinstance(event, kind)]

    def send(self, topic: str, payload: bytes, **more: Any) -> None:  # noqa: ANN401
        """Publish, and wait until the broker has acknowledged it."""
        token = self.link.publish(topic, payload, **more)
        assert token is not None, "it is not up, or its window is full"
        self.next(PublishAcknowledged, where=lambda event: event.token == token)
