"""What the broker drops without a word to anybody: its own counter, watched."""

from dataclasses import dataclass

TOPIC = "$SYS/broker/publish/messages/dropped"
"""mosquitto's: how many messages it has dropped since its start, every `sys_interval` seconds."""


@dataclass(slots=True)
class DropCounter:
    """Sees the counter rise; a broker that was started anew counts from 0 again."""

    last: int | None = None

    def rose(self, payload: bytes) -> int:
        """Return by how much it has since it was seen last; 0 where it has not, or where this is no number."""
        try:
            now = int(payload)
        except ValueError:
            return 0
        before, self.last = self.last, now
        return max(0, now - before) if before is not None else 0


def told(count: int) -> str:
    """Return the sentence for people."""
    return f"the broker has dropped {count} messages: something is away longer, or slower, than it has room for"
