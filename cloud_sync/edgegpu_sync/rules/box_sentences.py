"""The sentences in which an agent refuses an item: it writes them, and a controller reads them back; pure.

A report carries a text and a code, no fields. So that a page can say a refusal in another language, both sides take the
sentence from here. A text that is none of these is the box's own words.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

_FIELD = re.compile(r"%\((\w+)\)s")


@dataclass(frozen=True)
class BoxSentence:
    """A sentence with named fields, `%(name)s`; each field is text."""

    template: str

    def of(self, **fields: str) -> str:
        """Return the sentence with these fields.

        Raises:
            KeyError: a field is missing.
        """
        return self.template % fields

    def read(self, text: str) -> Mapping[str, str] | None:
        """Return the fields of a text that is this sentence; None where it is another."""
        found = self._pattern.fullmatch(text)
        return found.groupdict() if found else None

    @cached_property
    def _pattern(self) -> re.Pattern[str]:
        parts = _FIELD.split(self.template)
        named = (f"(?P<{one}>.+?)" if at % 2 else re.escape(one) for at, one in enumerate(parts))
        return re.compile("".join(named), re.DOTALL)


def box_sentence(template: str) -> BoxSentence:
    """Return a sentence; `tools/messages.py` takes its text for translation from this call."""
    return BoxSentence(template)


NEVER_CHANGED = box_sentence("apps in %(namespace)s are never changed")
OTHER_CLUSTER = box_sentence("this box is in cluster %(cluster)s, the limits are for %(meant)s")
NO_SHARES = box_sentence("no node of the cluster offers GPU shares: `edgegpu doctor` says why")
NO_WORKLOAD = box_sentence("there is no Deployment, StatefulSet or DaemonSet %(app)s")
SEVERAL_WORKLOADS = box_sentence("%(app)s is a %(kinds)s: it is not clear which one is meant; rename one")
NO_CONTAINER = box_sentence("%(workload)s has no container %(container)s; it has %(containers)s")
CHANGED_MEANWHILE = box_sentence("somebody else has changed its limits at the same moment: try again")
NOT_AT_FAULT = box_sentence("the rollout has not ended, and its limits are not at fault, so they stay: %(why)s")
NO_PERMISSION = box_sentence(
    "edgegpu may not change apps in namespace %(namespace)s: grant it (docs/app-limits.md): %(why)s"
)
LIVE_ELSEWHERE = box_sentence(
    "no live limit reaches %(count)s of its %(all)s pods, which are not on %(node)s, whose agent sets the limits: "
    "%(pods)s; set them without live, and new pods are made"
)
APP_GONE = box_sentence("%(app)s is gone: %(why)s")
SETTLED_ELSEWHERE = box_sentence("%(agent)s settles the app limits of its cluster")
SHARES_HELD = box_sentence("pods hold shares in units of %(unit)s MiB, stop them: %(pods)s")
SO_ALREADY = box_sentence("it was so already")
LIVE_HELD = box_sentence("live: %(units)s of %(held)s units held")
LIVE_APPLIED = box_sentence("live: %(units)s of %(held)s units held; no pod was touched")

BOX_SENTENCES = (
    *(NEVER_CHANGED, OTHER_CLUSTER, NO_SHARES, NO_WORKLOAD, SEVERAL_WORKLOADS, NO_CONTAINER, CHANGED_MEANWHILE),
    *(NOT_AT_FAULT, NO_PERMISSION, LIVE_ELSEWHERE, APP_GONE, SETTLED_ELSEWHERE, SHARES_HELD, SO_ALREADY),
    *(LIVE_HELD, LIVE_APPLIED),
)
"""Each of them; no text is two of them."""
