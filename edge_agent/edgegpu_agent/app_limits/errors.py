"""What can keep an app's limits from being set."""

from edgegpu_sync.rules.settle import Settlement


class LimitsError(Exception):
    """The base of this component's errors."""


class LimitsRefusedError(LimitsError):
    """Nothing was changed, and nothing will be; `settlement` says why."""

    def __init__(self, settlement: Settlement) -> None:
        super().__init__(settlement.text)
        self.settlement = settlement


def refused(code: str, text: str) -> LimitsRefusedError:
    """Return the error of an item that is not begun."""
    return LimitsRefusedError(Settlement.rejected(code, text))
