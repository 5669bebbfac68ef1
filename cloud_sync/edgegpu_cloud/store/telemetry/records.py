"""What the store returns of evidence and of the use of cards."""

from dataclasses import dataclass

from edgegpu_sync.messages.evidence import SeenCards
from edgegpu_sync.messages.telemetry import CardSample, Metrics

QUARTER_S = 900
"""A quarter of an hour."""

LATE_S, EARLY_S = 26 * 3_600, 300
"""A box keeps a day of samples. By its clock they are at most so old, or so far ahead; else its clock is wrong."""


def clock_shift_s(message: Metrics, heard_s: float) -> int:
    """Return what is added to a message's times to have them by the controller's clock, which heard it at `heard_s`.

    It is 0 unless the box's clock is plainly wrong: then the newest sample counts as taken when it was heard.
    """
    newest_s = max((sample.at for sample in message.samples), default=int(heard_s))
    return 0 if heard_s - LATE_S <= newest_s <= heard_s + EARLY_S else int(heard_s) - newest_s


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredEvidence:
    """What a container saw when it was checked at `at_s` (seconds since 1970); see `ContainerEvidence`."""

    uid: str
    namespace: str
    pod: str
    container: str
    verdict: SeenCards
    held: tuple[str, ...]
    seen: tuple[str, ...]
    lines: str
    text: str
    at_s: float


@dataclass(frozen=True, slots=True)
class CardMoment:
    """A sample of one card, `at_s` seconds since 1970."""

    at_s: int
    sample: CardSample

    @property
    def quarter_s(self) -> int:
        """The beginning of its quarter of an hour."""
        return self.at_s - self.at_s % QUARTER_S


@dataclass(frozen=True, slots=True, kw_only=True)
class CardUse:
    """The use of a card in the quarter of an hour that began `quarter_s`, over its samples."""

    card: str
    quarter_s: int
    samples: int
    core_sum: float
    core_max: float
    memory_sum_mib: float
    memory_max_mib: int

    @classmethod
    def of(cls, one: CardMoment) -> "CardUse":
        """Return the use of one sample."""
        core, memory_mib = one.sample.core_used, one.sample.memory_used_mib
        return cls(
            card=one.sample.uuid,
            quarter_s=one.quarter_s,
            samples=1,
            core_sum=core,
            core_max=core,
            memory_sum_mib=memory_mib,
            memory_max_mib=memory_mib,
        )

    def plus(self, other: "CardUse") -> "CardUse":
        """Return the use over the samples of both, of one card; the quarter is that of the first."""
        return CardUse(
            card=self.card,
            quarter_s=self.quarter_s,
            samples=self.samples + other.samples,
            core_sum=self.core_sum + other.core_sum,
            core_max=max(self.core_max, other.core_max),
            memory_sum_mib=self.memory_sum_mib + other.memory_sum_mib,
            memory_max_mib=max(self.memory_max_mib, other.memory_max_mib),
        )

    @property
    def core_mean(self) -> float:
        """The mean of its core, 0 to 100."""
        return self.core_sum / self.samples

    @property
    def memory_mean_mib(self) -> float:
        """The mean of its memory in MiB."""
        return self.memory_sum_mib / self.samples
