"""Ownership of the controller's folder: its owner works there, never root, whatever the folder holds.

Root follows no link and opens no file that another user has put in its way: `become_owner` gives root up for good
before the folder is touched. What the caller named elsewhere (a backup, a broker's folder) is opened before that, or
written by `CallersFiles`, a process that stays root and knows those tasks alone.
"""

import fcntl
import json
import os
import pwd
import signal
import socket
import stat
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NoReturn

from edgegpu_base.lock_files import open_lock
from edgegpu_cloud.errors import CloudError

ROOT = 0

Json = Any
Task = Callable[[Json], None]
"""Work outside of the controller's folder, done as the calling user; takes JSON, raises CloudError."""


def account(uid: int) -> str:
    """Return the name of a user from the user database; the environment may hold another."""
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return str(uid)


def owner(folder: Path) -> int:
    """Return the uid that owns a folder or its nearest readable ancestor; that of a link, unless that is root."""
    try:
        link, there = folder.lstat().st_uid, folder.stat().st_uid
    except OSError:
        return owner(folder.parent) if folder.parent != folder else os.geteuid()
    return link if link != ROOT else there


def become_owner(folder: Path) -> None:
    """Give root up for good where the controller's folder belongs to another user, and continue as that user.

    Raises:
        CloudError: the system refuses.
    """
    uid = owner(folder.absolute())
    if os.geteuid() != ROOT or uid == ROOT:
        return
    os.environ.setdefault("LOGNAME", account(ROOT))  # the caller, for the audit
    try:
        entry = pwd.getpwuid(uid)
        gid, groups = entry.pw_gid, os.getgrouplist(entry.pw_name, entry.pw_gid)
        os.environ["HOME"] = entry.pw_dir
    except KeyError:  # a user without a name
        gid, groups = folder.stat().st_gid, []
    try:
        os.setgroups(groups)
        os.setresgid(gid, gid, gid)
        os.setresuid(uid, uid, uid)
    except OSError as error:
        remedy = f"run this as {account(uid)}: runuser -u {account(uid)} -- edgegpu-cloud ..."
        raise CloudError(f"cannot work in {folder} as its owner {account(uid)}: {error}", remedy=remedy) from error


_LAST = "drop"


class CallersFiles:
    """The tasks that run as the calling user, while this process has become the owner of the controller's folder.

    The task `drop` runs last, also where this process was killed.
    """

    def __init__(self, folder: Path, tasks: Mapping[str, Task]) -> None:
        self._tasks = tasks
        self._channel: socket.socket | None = None
        self._child = 0
        if os.geteuid() == ROOT and owner(folder.absolute()) != ROOT:
            ours, theirs = socket.socketpair()
            self._child = os.fork()
            if self._child == 0:
                ours.close()
                _serve(theirs, tasks)
            theirs.close()
            self._channel = ours

    def do(self, name: str, value: Json) -> None:
        """Run a task and wait for its end. Raises CloudError."""
        if self._channel is None:
            self._tasks[name](value)
            return
        with self._channel.makefile("rw", encoding="utf-8") as lines:
            lines.write(json.dumps({"task": name, "value": value}) + "\n")
            lines.flush()
            answer = json.loads(lines.readline() or '{"error": "its process has ended", "remedy": "try again"}')
        if "error" in answer:
            raise CloudError(answer["error"], remedy=answer["remedy"])

    def close(self) -> None:
        """Run the last task, and let its process end."""
        if self._channel is not None:
            self._channel.close()
            os.waitpid(self._child, 0)
        elif _LAST in self._tasks:
            self._tasks[_LAST](None)


@contextmanager
def outside(folder: Path, **tasks: Task) -> Iterator[CallersFiles]:
    """Keep a process that runs these tasks as the caller; enter this before `become_owner` of the same folder."""
    found = CallersFiles(folder, tasks)
    try:
        yield found
    finally:
        found.close()


def _serve(channel: socket.socket, tasks: Mapping[str, Task]) -> NoReturn:
    """Run tasks until the other end is closed, in a process of its own."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the other process ends, and this one after it
    status = 1
    try:
        with channel, channel.makefile("rw", encoding="utf-8") as lines:
            while line := lines.readline():
                asked, answer = json.loads(line), {}
                try:
                    tasks[asked["task"]](asked["value"])
                except CloudError as error:
                    answer = {"error": error.text, "remedy": error.remedy}
                except OSError as error:
                    answer = {"error": f"cannot go on: {error}", "remedy": "see what stands in its way there"}
                lines.write(json.dumps(answer) + "\n")
                lines.flush()
        status = 0
    finally:
        if _LAST in tasks:
            tasks[_LAST](None)
        os._exit(status)


def open_regular(path: Path, flags: int) -> int:
    """Open a regular file; a pipe or a device is refused, and never waited for. Raises OSError."""
    handle = os.open(path, flags | os.O_NONBLOCK | os.O_CLOEXEC, 0o600)
    if stat.S_ISREG(os.fstat(handle).st_mode):
        return handle
    os.close(handle)
    raise OSError(f"{path} is not a regular file")


@contextmanager
def locked(path: Path, target: Path) -> Iterator[None]:
    """Hold the lock of a file, created where missing, while `target` is written; other processes wait.

    Raises:
        CloudError: the file cannot be opened.
    """
    try:
        handle = os.fdopen(open_lock(path), "r+")
    except OSError as error:
        raise CloudError(f"cannot write {target}: {error}", remedy=remedy_for(path)) from error
    with handle:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield


def remedy_for(path: Path) -> str:
    """Return the remedy for a file that may not be read or written: whom to run as, or to whom to give the file."""
    folder = path.parent
    uid = owner(folder)
    if uid == os.geteuid():
        return f"it is not yours: as root, chown -R {account(uid)}: {folder}"
    return f"run this as {account(uid)}: runuser -u {account(uid)} -- edgegpu-cloud ..."
