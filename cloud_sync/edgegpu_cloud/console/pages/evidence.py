"""The evidence on the page of a box: what containers see of their cards, and the request to check it again."""

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Annotated, Any

from fastapi import APIRouter, Depends, Path, Request
from starlette.responses import RedirectResponse, Response

from edgegpu_cloud.console.visitor import Operator, SignedIn
from edgegpu_cloud.fleet.history.evidence import BoxEvidence, CannotCheck, EvidenceService
from edgegpu_sync.messages.evidence import SeenCards

if TYPE_CHECKING:
    from edgegpu_cloud.console.web import ConsoleParts

router = APIRouter()


def _evidence(request: Request, visitor: SignedIn) -> EvidenceService:
    parts: ConsoleParts = request.state.parts
    return parts.evidence(visitor)


VisitorEvidence = Annotated[EvidenceService, Depends(_evidence)]


def evidence_values(found: BoxEvidence, words: Callable[[str], str]) -> dict[str, Any]:
    """Return what `evidence.html` shows; `words` is gettext."""
    return {
        "evidence": found,
        "cannot": _why_not(words)[found.cannot] if found.cannot else {},
        "verdicts": {
            SeenCards.OWN.value: words("its own cards"),
            SeenCards.MORE.value: words("more than its cards"),
            SeenCards.OTHER.value: words("other cards"),
            SeenCards.NONE.value: words("no card"),
            SeenCards.UNKNOWN.value: words("not known"),
        },
    }


def _why_not(words: Callable[[str], str]) -> Mapping[CannotCheck, Mapping[str, str]]:
    """Return why a box cannot be asked, and what to do about it."""
    return {
        CannotCheck.NOT_ENROLLED: {
            "why": words("The box is not enrolled: it cannot be asked."),
            "remedy": words("Enrol it anew."),
        },
        CannotCheck.BLOCKED: {
            "why": words("The box is blocked: it cannot be asked."),
            "remedy": words("Look at it first, then unblock it."),
        },
        CannotCheck.UNINSTALLED: {
            "why": words("edgegpu was taken off the box: it cannot be asked."),
            "remedy": words("Install it there again: the page Enrol has the line."),
        },
        CannotCheck.OFFLINE: {
            "why": words("The box is offline: it cannot be asked."),
            "remedy": words("Check again when it is connected."),
        },
        CannotCheck.OLD_AGENT: {
            "why": words("The agent of the box cannot check this."),
            "remedy": words("Upgrade it."),
        },
        CannotCheck.NO_CONTAINER: {
            "why": words("No container on the box holds a share of a card."),
            "remedy": "",
        },
    }


@router.post("/boxes/{device}/evidence")
def check(
    device: Annotated[str, Path(min_length=1, max_length=253)], _: Operator, evidence: VisitorEvidence
) -> Response:
    """Ask a box what its containers see; the page shows the answer when it comes."""
    evidence.check(device)
    return RedirectResponse(f"/boxes/{device}#evidence", 303)
