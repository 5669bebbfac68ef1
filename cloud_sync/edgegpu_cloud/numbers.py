"""Numbers in texts that anybody may have written."""

LARGEST = 2**53
"""The largest number that anything here has: JSON has it exactly, and both databases too."""


def is_number(text: str, *, digits: int) -> bool:
    """Return whether a text is a whole number of ASCII digits, as many at most: `int` takes more, and takes long."""
    return text.isascii() and text.isdecimal() and len(text) <= digits
