"""The names in topics: device ids, names of ops, command ids. None of them can hold `+`, `#` or `/`."""

import re
from typing import Annotated, NewType

from pydantic import AfterValidator

from edgegpu_sync.errors import SyncError

DeviceId = NewType("DeviceId", str)
"""The id of a box, minted by the controller: also its client-id, its user name and its certificate's common name."""

OpName = NewType("OpName", str)
"""The name of a verb, such as `k3s.restart`. Any well-formed name can be parsed; only those of `rules.ops` are done."""

CommandId = NewType("CommandId", str)
"""The id of a command, minted by the controller and kept when the command is signed again.

The command's transaction and upload have the same id.
"""

_DEVICE = re.compile(r"[a-z0-9]{16}")
_OP = re.compile(r"[a-z0-9]{1,24}(\.[a-z0-9]{1,24}){0,2}")
_COMMAND = re.compile(r"[a-z0-9][a-z0-9-]{7,39}")


def device_id(text: str) -> DeviceId:
    """Read a device id: 16 of `a-z0-9`.

    Raises:
        SyncError: for anything else.
    """
    return DeviceId(_whole(_DEVICE, text, "device id", "16 of a-z and 0-9"))


def op_name(text: str) -> OpName:
    """Read the name of an op: one to three words of `a-z0-9` with dots between.

    Raises:
        SyncError: for anything else.
    """
    return OpName(_whole(_OP, text, "op", "words of a-z and 0-9 with dots between"))


def command_id(text: str) -> CommandId:
    """Read a command id: 8 to 40 of `a-z0-9-`, so a UUID or a ULID in lower case.

    Raises:
        SyncError: for anything else.
    """
    return CommandId(_whole(_COMMAND, text, "command id", "8 to 40 of a-z, 0-9 and -"))


def _whole(pattern: re.Pattern[str], text: str, what: str, right: str) -> str:
    if pattern.fullmatch(text) is None:
        raise SyncError(f"no {what}: {text[:64]!r} is not {right}")
    return text


CommandIdField = Annotated[CommandId, AfterValidator(command_id)]
OpNameField = Annotated[OpName, AfterValidator(op_name)]
