"""Secrets taken out of what goes up by the link: out of the words for people in a message, whoever wrote them."""

import json
from collections.abc import Callable
from functools import partial
from typing import cast

from pydantic import JsonValue

from edgegpu_agent.actions.redact import Redactor

Clean = Callable[[bytes], bytes]
"""Makes a message's body one without secrets."""

_TEXT, _DATA = "text", "data"
"""The fields with words: a text at whatever depth, and all that an act has put into its result."""


def cleaned(body: bytes, *, redactor: Callable[[], Redactor]) -> bytes:
    """Return a body without secrets in its words; no text is longer than it was, so that it still fits.

    Args:
        body: JSON, as `wire.encode` writes it.
        redactor: made anew for each message that has words: a token may have come since the last one.
    """
    if not any(f'"{name}":'.encode() in body for name in (_TEXT, _DATA)):
        return body
    said = cast("JsonValue", json.loads(body))
    clean = _cleaned(said, redactor(), words=False)
    return body if clean == said else json.dumps(clean, separators=(",", ":"), ensure_ascii=False).encode()


BY_FORM: Clean = partial(cleaned, redactor=Redactor)
"""Knows no box: takes out what looks like a secret."""


def _cleaned(value: JsonValue, redactor: Redactor, *, words: bool) -> JsonValue:
    match value:
        case str() if words:
            return redactor.text(value)[: len(value)]
        case dict():
            return {name: _cleaned(one, redactor, words=words or name in {_TEXT, _DATA}) for name, one in value.items()}
        case list():
            return [_cleaned(one, redactor, words=words) for one in value]
        case _:
            return value
