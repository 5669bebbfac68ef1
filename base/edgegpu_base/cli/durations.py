"""Lengths of time on command lines: 90, 30m, 12h, 7d."""

import re

import typer

_UNITS_S = {"": 1, "s": 1, "m": 60, "min": 60, "h": 3_600, "d": 86_400, "w": 604_800}
_FORM = re.compile(r"([0-9]{1,9})([a-z]{0,3})")
_MOST_S = 366 * 86_400


def waiting_s(text: str | None, *, wait: bool, default: str) -> int:
    """Return how long `--wait` waits; 0 without it.

    Raises:
        typer.BadParameter: `--timeout` is no length of time, or is given without `--wait`.
    """
    found = seconds(text or default, option="--timeout")
    if text is not None and not wait:
        raise typer.BadParameter("it limits --wait; give --wait too, or leave it out", param_hint="--timeout")
    return found if wait else 0


def seconds(text: str, *, option: str) -> int:
    """Return a length of time in seconds.

    Raises:
        typer.BadParameter: the text is no length of time, is 0, or is more than a year.
    """
    found = _FORM.fullmatch(text.strip())
    if found is None or found[2] not in _UNITS_S:
        raise typer.BadParameter(f"no length of time: {text!r}; write 90s, 30m, 12h, 7d", param_hint=option)
    value = int(found[1]) * _UNITS_S[found[2]]
    if not 0 < value <= _MOST_S:
        raise typer.BadParameter(f"{text!r} is not between a second and a year", param_hint=option)
    return value
