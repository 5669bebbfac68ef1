"""The installer's errors: one base, and a class of its own only where a caller reacts to it."""


class InstallError(Exception):
    """Something cannot be done on this machine; the message is "cannot x: cause", `remedy` says what to do."""

    code = "REFUSED"
    """The error's code in `--json`; after BUSY the same call can succeed later."""

    def __init__(self, message: str, remedy: str = "") -> None:
        self.message = message
        self.remedy = remedy
        super().__init__(f"{message}: {remedy}" if remedy else message)


class BusyError(InstallError):
    """Another process is changing this machine; `pid` is 0 when it is not known."""

    code = "BUSY"

    def __init__(self, pid: int) -> None:
        self.pid = pid
        who = f"process {pid}" if pid else "another process"
        super().__init__(f"cannot begin: {who} is changing this machine already", "wait for its end, and try again")


class KnownError(InstallError):
    """A transaction with the given id has already run; the journal says how it ended."""

    code = "KNOWN"


class TransactionJournalError(InstallError):
    """The journal of the last transaction cannot be read or written."""


class SystemdError(InstallError):
    """Systemd refused a call, failed, or did not answer in time."""


class InterruptedByError(InstallError):
    """A signal asked this process to end; `signal_name` is the signal's name."""

    def __init__(self, signal_name: str) -> None:
        self.signal_name = signal_name
        super().__init__(f"interrupted by {signal_name}")
