"""Whether limits fit on the boxes of a planned rollout, as its page follows them: part by part, counted as a whole."""

import hashlib
import hmac
import json
import re
from collections.abc import Sequence
from dataclasses import astuple, dataclass
from urllib.parse import urlencode

from edgegpu_cloud.rollouts.fit import FitCounts
from edgegpu_cloud.rollouts.fit_walk import JudgedBox
from edgegpu_cloud.rollouts.rollouts import JudgedOutline

COUNTED, EACH, ALL = "counted", "each", "all"
"""Fields of the address that the form has not: what the parts before have counted, and which rows are shown."""

_MARK_LETTERS = 32
_TEXT = re.compile(rf"((?:[0-9]{{1,9}}\.){{5}})([0-9a-f]{{{_MARK_LETTERS}}})\.(.+)", re.DOTALL)


@dataclass(frozen=True, slots=True)
class FitProgress:
    """What the parts before have counted, and the place in the walk where the next one begins."""

    counts: FitCounts
    after: str


NOTHING_COUNTED = FitProgress(FitCounts(), "")


@dataclass(frozen=True, slots=True, kw_only=True)
class FitSeal:
    """What an address of counts is of: a session, a form and the boxes that it concerned.

    An address with counts of anything else counts nothing: nobody can be sent one that says "all fit", and where boxes
    have joined or left, they are counted anew.
    """

    session: str
    query: str
    seen: str

    def text(self, progress: FitProgress) -> str:
        """Return progress as an address carries it; nothing where nothing is counted."""
        if not progress.after:
            return ""
        return f"{'.'.join(map(str, astuple(progress.counts)))}.{self._mark(progress)}.{progress.after}"

    def read(self, text: str, *, most: int) -> FitProgress:
        """Read progress from an address; nothing where it is not of this, or of more than `most` boxes."""
        found = _TEXT.fullmatch(text)
        if found is None:
            return NOTHING_COUNTED
        progress = FitProgress(FitCounts(*map(int, found[1].split(".")[:-1])), found[3])
        whole = hmac.compare_digest(found[2], self._mark(progress)) and progress.counts.judged <= most
        return progress if whole else NOTHING_COUNTED

    def _mark(self, progress: FitProgress) -> str:
        content = json.dumps([self.query, self.seen, astuple(progress.counts), progress.after])
        return hmac.new(self.session.encode(), content.encode(), hashlib.sha256).hexdigest()[:_MARK_LETTERS]


@dataclass(frozen=True, slots=True, kw_only=True)
class FitPart:
    """Whether limits fit on a part of the boxes of a plan, after those that the parts before have counted (`before`).

    `boxes`: those of the part that are shown; `every`: these are all. `counts`: of this part and those before it.
    `total`: how many boxes the plan has. `anew`: what the parts before had counted does not hold any more, for other
    boxes are concerned by now.
    """

    seal: FitSeal
    boxes: Sequence[JudgedBox]
    every: bool
    before: FitProgress
    after: FitProgress
    total: int
    anew: bool

    @property
    def counts(self) -> FitCounts:
        """What is counted so far."""
        return self.after.counts

    @property
    def more(self) -> bool:
        """Whether a part follows."""
        return bool(self.after.after)

    @property
    def left(self) -> int:
        """How many boxes are not judged yet."""
        return max(0, self.total - self.counts.judged)

    @property
    def has_moved(self) -> bool:
        """Whether the walk has ended, and boxes were not judged, or judged twice: they have changed their clusters."""
        return not self.more and self.counts.judged != self.total

    @property
    def all_fit(self) -> bool:
        """Whether each of the boxes was judged, and the limits fit there."""
        return not self.more and not self.has_moved and self.counts.fits == self.total

    @property
    def first(self) -> str:
        """Return the address of the first part."""
        return self._url(NOTHING_COUNTED, every=self.every)

    @property
    def next(self) -> str:
        """Return the address of the next part."""
        return self._url(self.after, every=self.every)

    def rows(self, *, every: bool) -> str:
        """Return the address of this part with all of its boxes, or with those alone where the limits do not fit."""
        return self._url(self.before, every=every)

    def _url(self, progress: FitProgress, *, every: bool) -> str:
        counted = self.seal.text(progress)
        more = ({COUNTED: counted} if counted else {}) | ({EACH: ALL} if every else {})
        return f"/rollouts/new?{self.seal.query}{'&' if more else ''}{urlencode(more)}"


def fit_part(seal: FitSeal, found: JudgedOutline, before: FitProgress, *, every: bool, anew: bool) -> FitPart:
    """Return a part of the walk for the page."""
    return FitPart(
        seal=seal,
        boxes=[box for box in found.part.boxes if every or box.fit is None or not box.fit.fits],
        every=every,
        before=before,
        after=FitProgress(before.counts + found.counts, found.part.next),
        total=found.plan.boxes,
        anew=anew,
    )
