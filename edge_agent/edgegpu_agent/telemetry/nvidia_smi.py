"""The cards and their measurements, from the output of nvidia-smi. Pure."""

from dataclasses import dataclass

from edgegpu_sync.messages.telemetry import CardSample
from edgegpu_sync.wire import MAX_COUNT

FIELDS = (
    "uuid",
    "index",
    "name",
    "memory.total",
    "driver_version",
    "utilization.gpu",
    "memory.used",
    "temperature.gpu",
    "power.draw",
)
QUERY = ("nvidia-smi", f"--query-gpu={','.join(FIELDS)}", "--format=csv,noheader,nounits")

_MOST_CELSIUS, _LEAST_CELSIUS, _MOST_WATT = 200, -50, 10_000


@dataclass(frozen=True, slots=True, kw_only=True)
class CardReading:
    """The reading of one card; a value that the driver does not report is None."""

    uuid: str
    label: str
    name: str
    memory_mib: int
    driver: str
    core_used: float | None
    memory_used_mib: int | None
    temperature_c: int | None
    power_w: float | None

    def sample(self) -> CardSample | None:
        """Return the card's measurements; None where the driver reports no load or memory."""
        if self.core_used is None or self.memory_used_mib is None:
            return None
        return CardSample(
            uuid=self.uuid,
            core_used=min(100.0, max(0.0, self.core_used)),
            memory_used_mib=self.memory_used_mib,
            temperature_c=self.temperature_c,
            power_w=self.power_w,
        )


def read(text: str) -> tuple[CardReading, ...]:
    """Return the cards in the output of `QUERY`; lines that are not one card's are left out."""
    rows = (tuple(part.strip() for part in line.split(",")) for line in text.splitlines())
    return tuple(
        _seen(dict(zip(FIELDS, row, strict=True))) for row in rows if len(row) == len(FIELDS) and _is_card(row)
    )


def _is_card(row: tuple[str, ...]) -> bool:
    return row[0].startswith("GPU-") and len(row[0]) <= 64 and row[1].isdigit()  # noqa: PLR2004  (wire.Token)


def _seen(row: dict[str, str]) -> CardReading:
    celsius, watt = _number(row["temperature.gpu"]), _number(row["power.draw"])
    used, total = _number(row["memory.used"]), _number(row["memory.total"])
    return CardReading(
        uuid=row["uuid"],
        label=row["index"],
        name=row["name"],
        memory_mib=_count(total) or 0,
        driver=row["driver_version"],
        core_used=_number(row["utilization.gpu"]),
        memory_used_mib=_count(used),
        temperature_c=int(celsius) if celsius is not None and _LEAST_CELSIUS <= celsius <= _MOST_CELSIUS else None,
        power_w=watt if watt is not None and 0 <= watt <= _MOST_WATT else None,
    )


def _count(value: float | None) -> int | None:
    return int(value) if value is not None and 0 <= value <= MAX_COUNT else None


def _number(text: str) -> float | None:
    """Return a number; None for `[N/A]`, `[Not Supported]`, `[Unknown Error]`."""
    try:
        value = float(text)
    except ValueError:
        return None
    return value if value == value and abs(value) != float("inf") else None  # noqa: PLR0124  (NaN)
