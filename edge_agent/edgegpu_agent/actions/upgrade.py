"""agent.upgrade: download a signed release, unpack it beside the one that runs, and run its own installer."""

import json
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import cast

from edgegpu_agent.actions.bundles import (
    BundleError,
    Bundles,
    ReleaseError,
    check_not_older,
    check_signature,
    sha256_of,
)
from edgegpu_agent.actions.https import HttpsClient, WebError
from edgegpu_agent.actions.transactions import (
    End,
    InstallerRunner,
    RefusedTransaction,
    TransactionBroken,
    TransactionCommitted,
    TransactionRolledBack,
    TransactionUnknown,
)
from edgegpu_agent.ports import ActionOutcome
from edgegpu_installer.layout import Layout
from edgegpu_sync.ids import CommandId
from edgegpu_sync.rules.ops import Args, Evidence, LinkMove, UpgradeArgs
from edgegpu_sync.states import CommandState, ResultCode

RELEASE_KEY = "release.pub"
"""A file of the running version: the public key that releases are signed with, 43 characters of base64url."""

_KEEP_FREE = 64 * 1024 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class Upgrade:
    """The action `agent.upgrade`; the transaction's id is the command's."""

    layout: Layout
    installer: InstallerRunner
    bundles: Bundles
    web: HttpsClient
    folder: Path
    """The folder for downloads until they are unpacked."""

    def token(self, id_: CommandId, args: Args) -> str:
        """Return the version to which the link `current` leads, and the one to which it shall lead."""
        del id_
        wanted = cast("UpgradeArgs", args).version
        return json.dumps({"before": self._link() or "", "wanted": wanted})

    def act(self, id_: CommandId, args: Args, token: str) -> ActionOutcome:
        """Check, download, unpack and install the release; the installation restarts the agent, and outlives it."""
        release, move = cast("UpgradeArgs", args), _read(token)
        if move.before == move.wanted:
            return ActionOutcome(state=CommandState.SUCCEEDED, text=f"version {move.wanted} runs here already")
        try:
            self._check(release)
            self._download_and_unpack(release)
        except ReleaseError as error:
            return ActionOutcome.rejected(error.code, str(error))
        except (BundleError, WebError, OSError) as error:
            return ActionOutcome.failed(f"nothing was changed: {error}")
        program = (str(self.layout.version(release.version) / "bin/edgegpu"),)
        words = ("install", "--yes") if self.layout.has_sharing else ("install", "--yes", "--agent-only")
        outcome = _outcome(self.installer.carry_out(id_, words, program=program))
        if outcome.state is not CommandState.VERIFYING:
            self.bundles.remove(release.version)
        return outcome

    def _check(self, release: UpgradeArgs) -> None:
        path = self.layout.current / RELEASE_KEY
        try:
            key = path.read_text(encoding="ascii")
        except (OSError, UnicodeDecodeError) as error:
            text = f"this version has no release key ({path}): it can be upgraded on the box alone, by the install line"
            raise ReleaseError(ResultCode.NO_RELEASE_KEY, text) from error
        check_signature(key, version=release.version, sha256=release.sha256, signature=release.signature)
        check_not_older(self._link() or "", release.version)

    def _download_and_unpack(self, release: UpgradeArgs) -> None:
        if self.bundles.is_here(release.version, release.sha256):
            return
        self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        archive = self.folder / f"{release.sha256}.part"
        for other in self.folder.iterdir():
            if other != archive:
                other.unlink(missing_ok=True)
        self.web.fetch(release.url, archive, free_bytes=shutil.disk_usage(self.folder).free - _KEEP_FREE)
        try:
            _check_sum(archive, release.sha256)
            self.bundles.unpack(archive, version=release.version, sha256=release.sha256)
        except BundleError:
            archive.unlink()  # another try would end the same, and k3s needs the disk space
            raise
        archive.unlink()

    def evidence(self, id_: CommandId, token: str) -> Evidence:
        """Return what became of the installation; before it was begun the link `current` decides."""
        found = self.installer.evidence(id_)
        return found if found is not Evidence.NOT_DONE else _read(token).evidence(self._link())

    def verify(self, id_: CommandId, args: Args, token: str) -> ActionOutcome | None:
        """Return SUCCEEDED once the installation is done and the link leads to the new version; None while it runs."""
        del args
        move = _read(token)
        match self.evidence(id_, token):
            case Evidence.DONE if self._link() == move.wanted:
                return ActionOutcome(state=CommandState.SUCCEEDED, data={"before": move.before, "version": move.wanted})
            case Evidence.DONE:
                text = f"it was installed, and /opt/edgegpu/current leads to {self._link()} since"
                return ActionOutcome.failed(text, ResultCode.SUPERSEDED)
            case Evidence.PUT_BACK | Evidence.BROKEN:
                return _outcome(self.installer.await_end(id_))
            case Evidence.NOT_DONE | Evidence.OTHER:
                return ActionOutcome.failed("the link leads elsewhere than it should")
            case _:
                return None

    def _link(self) -> str | None:
        try:
            return self.layout.current.readlink().name
        except OSError:
            return None


def _check_sum(archive: Path, sha256: str) -> None:
    if (found := sha256_of(archive)) != sha256:
        raise BundleError(f"cannot use what was fetched: its sha256 is {found}")


def _outcome(end: End) -> ActionOutcome:
    match end:
        case TransactionCommitted():
            return ActionOutcome(state=CommandState.VERIFYING)
        case TransactionRolledBack(why):
            return ActionOutcome(state=CommandState.ROLLED_BACK, code=ResultCode.ERROR, text=why)
        case TransactionBroken(why):
            return ActionOutcome.failed(why, ResultCode.INCONSISTENT)
        case RefusedTransaction(why):
            return ActionOutcome.rejected(ResultCode.PRECHECK, why)
        case TransactionUnknown(why):
            return ActionOutcome.failed(f"nothing was changed: {why}")


def _read(token: str) -> LinkMove:
    value = json.loads(token)
    return LinkMove(before=str(value["before"]), wanted=str(value["wanted"]))
