"""The ops: their arguments, and how each is settled when the agent dies in the middle of it."""

import json
from dataclasses import dataclass
from enum import StrEnum
from typing import Annotated

from pydantic import Field, ValidationError

from edgegpu_sync.errors import SyncError
from edgegpu_sync.faults import first_fault, not_known
from edgegpu_sync.ids import OpName, op_name
from edgegpu_sync.messages.telemetry import Uid
from edgegpu_sync.rules.evidence import MOST_PODS
from edgegpu_sync.states import ResultCode
from edgegpu_sync.wire import Count, CriticalPiece, Https, Json, Seconds, Sha256


class RestartRule(StrEnum):
    """The rule for a command that was RUNNING when the agent died."""

    IDEMPOTENT = "idempotent"
    """It is done again: twice has the same effect as once."""
    VERIFIABLE = "verifiable"
    """A token is in the journal before the action, and a probe finds whether the action took place."""
    NEITHER = "neither"
    """It ends UNKNOWN, and is never done again."""


class Evidence(StrEnum):
    """The finding of a probe about a verifiable action."""

    NOT_DONE = "not done"
    UNDER_WAY = "under way"
    DONE = "done"
    PUT_BACK = "put back"
    BROKEN = "broken"
    OTHER = "other"
    UNREADABLE = "unreadable"


class NoArgs(CriticalPiece):
    """An op that takes none."""


class SharingArgs(CriticalPiece):
    """The order to settle the revision in which sharing stands so; the command's result is that settlement."""

    min_rev: Annotated[Count, Field(ge=1)]


class LogsArgs(CriticalPiece):
    """Where the archive goes, by PUT with the box's certificate, to a name made of the command's id."""

    url: Https
    since_s: Seconds = 86_400
    max_mib: Annotated[int, Field(ge=1, le=1_024)] = 64


class UpgradeArgs(CriticalPiece):
    """A release; its signature is that of the release key, which is not the controller's."""

    version: Annotated[str, Field(pattern=r"^[0-9][0-9a-zA-Z.+-]{0,63}$")]
    url: Https
    sha256: Sha256
    signature: Annotated[str, Field(pattern=r"^[A-Za-z0-9_-]{86}$")]


class EvidenceArgs(CriticalPiece):
    """The pods whose containers are asked, by UID; none: those that hold shares."""

    pods: Annotated[tuple[Uid, ...], Field(max_length=MOST_PODS)] = ()


Args = NoArgs | SharingArgs | LogsArgs | UpgradeArgs | EvidenceArgs


@dataclass(frozen=True, slots=True, kw_only=True)
class Declaration:
    """An op; `proof` names the token that is journalled before the action; after `lasts_s` it counts as stuck."""

    op: OpName
    settling: RestartRule
    args: type[Args]
    lasts_s: int
    proof: str = ""

    @property
    def alone(self) -> bool:
        """Whether no other such op may be under way: the traces of two at once could be confused."""
        return self.settling is not RestartRule.IDEMPOTENT


def _declare(
    op: str, settling: RestartRule, lasts_s: int, *, args: type[Args] = NoArgs, proof: str = ""
) -> Declaration:
    return Declaration(op=op_name(op), settling=settling, args=args, lasts_s=lasts_s, proof=proof)


_RESTART = "boot id and InvocationID of the unit: either changed, it is done"
_LINK = "where the symlink led, and where it shall lead"
_TRANSACTION = "the transaction, whose id is the command's"

OPS: dict[OpName, Declaration] = {
    one.op: one
    for one in (
        _declare("sharing.install", RestartRule.VERIFIABLE, 1_800, args=SharingArgs, proof=_TRANSACTION),
        _declare("sharing.uninstall", RestartRule.VERIFIABLE, 1_800, args=SharingArgs, proof=_TRANSACTION),
        _declare("k3s.restart", RestartRule.VERIFIABLE, 900, proof=_RESTART),
        _declare("plugin.restart", RestartRule.VERIFIABLE, 300, proof=_RESTART),
        _declare("inventory.refresh", RestartRule.IDEMPOTENT, 60),
        _declare("logs.collect", RestartRule.IDEMPOTENT, 900, args=LogsArgs),
        _declare("doctor.run", RestartRule.IDEMPOTENT, 300),
        _declare("evidence.check", RestartRule.IDEMPOTENT, 180, args=EvidenceArgs),
        _declare("agent.upgrade", RestartRule.VERIFIABLE, 1_800, args=UpgradeArgs, proof=_LINK),
        _declare("identity.rotate", RestartRule.IDEMPOTENT, 300),
    )
}
"""Every op of this version. Any other is REJECTED with UNKNOWN_OP."""


class BadArgumentsError(SyncError):
    """Arguments that cannot be used; `code` is the result's."""

    def __init__(self, code: ResultCode, text: str) -> None:
        super().__init__(text)
        self.code = code


def read_args(op: Declaration, args: Json) -> Args:
    """Read a command's arguments.

    Raises:
        BadArgumentsError: BAD_ARGUMENTS, or UNSUPPORTED for a critical field that this version does not know.
    """
    try:
        read = op.args.model_validate_json(json.dumps(args))
    except ValidationError as error:
        raise BadArgumentsError(ResultCode.BAD_ARGUMENTS, first_fault(error)) from error
    if missing := read.not_understood():
        raise BadArgumentsError(ResultCode.UNSUPPORTED, not_known(missing))
    return read


@dataclass(frozen=True, slots=True)
class UnitRun:
    """One run of a systemd unit: the token of k3s.restart and plugin.restart."""

    boot: str
    invocation: str

    def evidence(self, now: "UnitRun | None") -> Evidence:
        """Return whether the unit was restarted since this run; `now` is None where systemd does not answer."""
        if now is None:
            return Evidence.UNREADABLE
        return Evidence.NOT_DONE if now == self else Evidence.DONE


@dataclass(frozen=True, slots=True)
class LinkMove:
    """The target of `/opt/edgegpu/current` before and after: the token of agent.upgrade."""

    before: str
    wanted: str

    def evidence(self, now: str | None, *, put_back: bool = False) -> Evidence:
        """Return whether the link was moved.

        Args:
            now: its present target; None: it cannot be read.
            put_back: a note beside it says that the new version was not well, and that the link was moved back.
        """
        if put_back:
            return Evidence.PUT_BACK
        if now is None:
            return Evidence.UNREADABLE
        if now == self.wanted:
            return Evidence.DONE
        return Evidence.NOT_DONE if now == self.before else Evidence.OTHER


_TRANSACTIONS = {
    "COMMITTED": Evidence.DONE,
    "ROLLED_BACK": Evidence.PUT_BACK,
    "INCONSISTENT": Evidence.BROKEN,
}


def transaction_evidence(state: str | None) -> Evidence:
    """Return what the installer's transaction with the command's id proves; None: there is none with this id."""
    if state is None:
        return Evidence.NOT_DONE
    return _TRANSACTIONS.get(state, Evidence.UNDER_WAY)
