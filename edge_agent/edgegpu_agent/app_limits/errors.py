"""The error that keeps an app's limits from being set."""

from edgegpu_sync.rules.settle import Settlement


class LimitsRefusedError(Exception):
    """An item that is refused: nothing was changed, and nothing will be; `settlement` says why."""

    def __init__(self, settlement: Settlement) -> None:
        super().__init__(settlement.text)
        self.settlement = settlement


def refused(code: str, text: str) -> LimitsRefusedError:
    """Return the error for an item that is rejected before anything is changed."""
    return LimitsRefusedError(Settlement.rejected(code, text))
