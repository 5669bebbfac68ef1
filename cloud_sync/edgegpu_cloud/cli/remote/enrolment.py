"""The enrolment of a controller on another machine: what the commands use of `LocalEnrolment`, by the API."""

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from edgegpu_cloud.cli.remote.client import ApiClient, name_in_path, read_as
from edgegpu_cloud.enrolment.install_lines import EnrolLine
from edgegpu_cloud.enrolment.manager import PAGE, AttemptView, TokenRequest
from edgegpu_cloud.store.records import ONLY_FOR, RequestState, Token

_ASKED = ("host", "instance", "address", "versions")


class RemoteEnrolment:
    """One person's view of enrolment on another machine; each method does what that of `LocalEnrolment` does."""

    def __init__(self, client: ApiClient) -> None:
        """Take who sends the requests."""
        self._client = client

    def make_line(self, wanted: TokenRequest) -> EnrolLine:
        """Make a token; return the line that holds it."""
        body = {name: value for name, value in asdict(wanted).items() if value is not None}
        made = self._client.send("POST", "/enrolment/tokens", body)
        return read_as(EnrolLine, {**made, "expires_at": int(made["expires_at_s"])})

    def tokens(self, *, limit: int = PAGE) -> Sequence[Token]:
        """Return the tokens that a box may still come with, oldest first: of each the beginning of its hash alone."""
        return [_token(one) for one in self._client.items("/enrolment/tokens", most=limit)]

    def take_back(self, id_: str) -> Token:
        """Make a valid token worthless at once."""
        path = name_in_path(id_, what="a token", remedy="`edgegpu-cloud tokens` lists them")
        return _token(self._client.send("DELETE", f"/enrolment/tokens/{path}"))

    def attempts(self, state: RequestState, *, limit: int = PAGE) -> Sequence[AttemptView]:
        """Return attempts of boxes to enrol in a state, oldest first."""
        found = self._client.items("/enrolment/attempts", most=limit, state=state.value)
        return [_attempt(one) for one in found]

    def decide(self, id_: str, state: RequestState) -> AttemptView:
        """Approve or refuse a box that waits."""
        path = name_in_path(id_, what="a box that waits as", remedy="`edgegpu-cloud pending` lists them")
        verb = "approve" if state is RequestState.APPROVED else "refuse"
        return _attempt(self._client.send("POST", f"/enrolment/attempts/{path}/{verb}"))


def _token(body: Any) -> Token:  # noqa: ANN401  (whatever JSON has)
    only_for = {ONLY_FOR: body["only_for"]} if body["only_for"] else {}
    return read_as(Token, {**body, "digest": body["id"], "labels": {**body["labels"], **only_for}})


def _attempt(body: Any) -> AttemptView:  # noqa: ANN401  (whatever JSON has)
    """Return an attempt without the hashes, which the API does not tell."""
    asked = {**{name: body[name] for name in _ASKED}, "name": body["given_name"]}
    attempt = {**body, "asked": asked, "token": "", "digest": ""}
    return read_as(AttemptView, {"attempt": attempt, "made_by": body["token_by"]})
