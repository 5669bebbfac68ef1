"""The simulated cluster's own errors."""


class SimError(Exception):
    """Something that the simulated cluster cannot do; the text reads "cannot x: cause"."""


class TimeoutSimError(SimError):
    """What was waited for did not come in time."""
