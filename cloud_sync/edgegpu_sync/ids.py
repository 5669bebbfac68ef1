"""The names in topics: device ids, names of ops, command ids. None of them can hold `+`, `#` or `/`."""

import re
from typing import Annotated, NewType

from pydantic import AfterValidator

from edgegpu_core.sentences import sentence
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
    if _DEVICE.fullmatch(text) is None:
        raise SyncError(sentence("no device id: %(text)r is not 16 of a-z and 0-9", text=text[:64]))
    return DeviceId(text)


def op_name(text: str) -> OpName:
    """Read the name of an op: one to three words of `a-z0-9` with dots between.

    Raises:
        SyncError: for anything else.
    """
    if _OP.fullmatch(text) is None:
        raise SyncError(sentence("no op: %(text)r is not words of a-z and 0-9 with dots between", text=text[:64]))
    return OpName(text)


def command_id(text: str) -> CommandId:
    """Read a command id: 8 to 40 of `a-z0-9-`, so a UUID or a ULID in lower case.

    Raises:
        SyncError: for anything else.
    """
    if _COMMAND.fullmatch(text) is None:
        raise SyncError(sentence("no command id: %(text)r is not 8 to 40 of a-z, 0-9 and -", text=text[:64]))
    return CommandId(text)


CommandIdField = Annotated[CommandId, AfterValidator(command_id)]
OpNameField = Annotated[OpName, AfterValidator(op_name)]
