"""The errors of the simulated cluster."""


class SimError(Exception):
    """Something that the simulated cluster cannot do; the text reads "cannot x: cause"."""


class TimeoutSimError(SimError):
    """An awaited condition did not hold in time."""
