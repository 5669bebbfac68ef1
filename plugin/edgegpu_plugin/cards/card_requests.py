"""The requests on the plugin's socket that let go of a card, so that it can be reset, and that take it back."""

import json
import logging
import re
from collections.abc import Callable, Iterable

from edgegpu_base.http_unix import ChangeRequest, Response
from edgegpu_core.inventory import Card
from edgegpu_plugin.cards.nvml import Nvml
from edgegpu_plugin.errors import NvmlError

_LOG = logging.getLogger(__name__)

_TARGET = re.compile(r"/v1/cards/([0-9a-zA-Z-]{1,64})/(release|accept)")


class CardRequests:
    """Answers PUT of `/v1/cards/{uuid}/release` and `/v1/cards/{uuid}/accept`; only root can open the socket."""

    def __init__(self, nvml: Nvml, *, cards: Callable[[], Iterable[Card]]) -> None:
        """Build the answers.

        Args:
            nvml: the watch over the cards.
            cards: returns the cards that are offered, in order or not.
        """
        self._nvml = nvml
        self._cards = cards

    def takes(self, target: str) -> bool:
        """Return whether a request's target is one of these."""
        return target.startswith("/v1/cards/")

    def answer(self, request: ChangeRequest) -> Response:
        """Let go of the GPU of a card, or take it back; the answer names it, or has `error` with the reason."""
        target = _TARGET.fullmatch(request.target)
        if target is None or request.method != "PUT":
            return _said(404, error="PUT /v1/cards/{uuid}/release or /v1/cards/{uuid}/accept")
        uuid, action = target.groups()
        card = next((card for card in self._cards() if uuid in {card.uuid, card.parent}), None)
        if card is None:
            return _said(404, error=f"this node offers no card {uuid}")
        gpu = card.parent or card.uuid
        try:
            (self._nvml.release if action == "release" else self._nvml.accept)(gpu)
        except NvmlError as error:
            return _said(503, error=str(error))
        _LOG.warning(
            "card %d (%s): %s by an operator", card.index, gpu, "let go" if action == "release" else "accepted"
        )
        return _said(200, gpu=gpu)


def _said(status: int, **answer: str) -> Response:
    return Response(status, json.dumps(answer).encode())
