"""The broker's counter of messages that it has dropped, of which it informs nobody else."""

from dataclasses import dataclass

TOPIC = "$SYS/broker/publish/messages/dropped"
"""The topic of mosquitto's counter: messages dropped since its start, sent every `sys_interval` seconds."""


@dataclass(slots=True)
class DropCounter:
    """The counter's last value, to see it rise; a broker that was started anew counts from 0 again."""

    last: int | None = None

    def rose(self, payload: bytes) -> int:
        """Return by how much the counter has risen since the last value; 0 where it has not, or is no number."""
        try:
            now = int(payload)
        except ValueError:
            return 0
        before, self.last = self.last, now
        return max(0, now - before) if before is not None else 0
