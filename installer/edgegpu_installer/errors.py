"""The installer's errors: one base, and a class of its own only where a caller reacts to it."""


class InstallError(Exception):
    """Something that cannot be done on this machine: "cannot x: cause", and in `remedy` what to do about it."""

    code = "REFUSED"
    """What `--json` calls it; BUSY: the same may be tried again in a while."""

    def __init__(self, message: str, remedy: str = "") -> None:
        self.message = message
        self.remedy = remedy
        super().__init__(f"{message}: {remedy}" if remedy else message)


class BusyError(InstallError):
    """Another process changes this machine now; `pid` says which (0: it did not say)."""

    code = "BUSY"

    def __init__(self, pid: int) -> None:
        self.pid = pid
        who = f"process {pid}" if pid else "another process"
        super().__init__(f"cannot begin: {who} is changing this machine already", "wait for its end, and try again")


class KnownError(InstallError):
    """A transaction with the id that was given has been: the journal says how it ended."""

    code = "KNOWN"


class TransactionJournalError(InstallError):
    """The journal of the last transaction cannot be read or written."""


class SystemdError(InstallError):
    """Systemd refused, failed or did not answer in time."""


class InterruptedByError(InstallError):
    """A signal asked this process to end; `signal_name` is its name."""

    def __init__(self, signal_name: str) -> None:
        self.signal_name = signal_name
        super().__init__(f"interrupted by {signal_name}")
