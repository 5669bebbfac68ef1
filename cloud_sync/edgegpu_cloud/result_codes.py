"""The codes by which boxes say why something ended as it did, in words for pages; pure."""

from collections.abc import Mapping

from edgegpu_cloud.phrases import Phrase, Verbatim, on_pages, phrase
from edgegpu_sync.states import ResultCode

_WORDS: Mapping[str, Phrase] = {
    ResultCode.UNKNOWN_OP: phrase("no such command there"),
    ResultCode.UNSUPPORTED: phrase("the box cannot do this"),
    ResultCode.BAD_ARGUMENTS: phrase("wrong arguments"),
    ResultCode.OUTBOX_FULL: phrase("too many results wait on the box"),
    ResultCode.SUPERSEDED: phrase("changed by somebody else meanwhile"),
    ResultCode.PRECHECK: phrase("refused before any change"),
    ResultCode.NO_ROOM: phrase("no room"),
    ResultCode.NOT_INSTALLED: phrase("no GPU sharing"),
    ResultCode.INSTALLED: phrase("installed on the box itself"),
    ResultCode.TOO_LATE: phrase("not begun in time"),
    ResultCode.TIMED_OUT: phrase("took too long"),
    ResultCode.CUT_SHORT: phrase("the agent ended meanwhile"),
    ResultCode.ATTEMPTS: phrase("the agent ended at each try"),
    ResultCode.FORGOTTEN: phrase("too old"),
    ResultCode.REIMAGED: phrase("the box was set up anew"),
    ResultCode.REVOKED: phrase("the box was revoked"),
    ResultCode.SET_ASIDE: phrase("the box was set aside"),
    ResultCode.NO_RELEASE_KEY: phrase("the box has no release key"),
    ResultCode.BAD_SIGNATURE: phrase("signed by another key"),
    ResultCode.DOWNGRADE: phrase("older than what the box has"),
    ResultCode.INCONSISTENT: phrase("neither done nor put back"),
    ResultCode.ERROR: phrase("an error"),
    ResultCode.STALE_EPOCH: phrase("signed before the box has started anew"),
    ResultCode.BEHIND: phrase("its number is used already"),
    ResultCode.OLD_ENROLMENT: phrase("signed before the box was enrolled anew"),
}


def code_words(code: str) -> str:
    """Return a code as a text that pages show in words; one that a newer agent may send stays as it is."""
    found = _WORDS.get(code)
    return code if found is None else on_pages(code, found)


def reported(state: str, code: str | None, text: str | None) -> str:
    """Return what a box has reported of something: its state, a code, and its words or a phrase for them.

    The state is one of an enumeration: where a page has a word for it, it shows that.
    """
    found = Phrase(state, one=state, many="", fields={})
    if code:
        found = phrase("%(state)s: %(words)s", state=found, words=code_words(code))
    words = text if isinstance(text, Phrase) else Verbatim(text or "")
    return phrase("%(state)s: %(words)s", state=found, words=words) if text else found
