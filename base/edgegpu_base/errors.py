"""The base of the errors that plumbing raises; a class of its own only where a caller reacts to it."""


class EdgegpuError(Exception):
    """Something that a process of edgegpu cannot do; the text reads "cannot x: cause" and says what to do about it."""
