"""The base class of edgegpu's errors; an error has its own class only where a caller reacts to it."""


class EdgegpuError(Exception):
    """Something that a process of edgegpu cannot do; the text reads "cannot x: cause" and says what to do about it."""
