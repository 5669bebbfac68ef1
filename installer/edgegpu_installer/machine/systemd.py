"""The client of systemd: systemctl and systemd-run without a shell, each call with a time limit."""

import os
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Self

from edgegpu_installer.errors import SystemdError

DEADMAN = "edgegpu-deadman"
RECOVER = "edgegpu-recover.service"

_CALL_S = 30.0
_UNIT_S = 120.0
_PROPERTIES = (
    "LoadState",
    "ActiveState",
    "SubState",
    "UnitFileState",
    "Result",
    "InvocationID",
    "NRestarts",
    "Job",
    "NeedDaemonReload",
    "InactiveExitTimestampMonotonic",
    "ActiveEnterTimestampMonotonic",
    "ExecMainStartTimestampMonotonic",
    "ExecStartPre",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class UnitState:
    """The state of a unit, by `systemctl show`; texts are systemd's own, empty when it does not give them.

    `invocation` changes at each start, `restarts` counts systemd's own restarts. `job`: whether systemd has a job for
    the unit. `stale`: whether its files changed after systemd had read them. `started_s`, `up_since_s`, `main_since_s`:
    when its last start began, when it became active, and when its main process started, by the monotonic clock; 0 when
    that has not happened.
    """

    name: str
    load: str
    active: str
    sub: str
    enabled: str
    result: str
    invocation: str
    restarts: int
    job: bool
    stale: bool
    started_s: float
    up_since_s: float
    main_since_s: float
    exec_start_pre: str

    @classmethod
    def parse(cls, name: str, shown: str) -> Self:
        """Return the state of a unit from the output of `show_command`."""
        values = dict(line.partition("=")[::2] for line in shown.splitlines())

        def number(key: str) -> int:
            text = values.get(key, "")
            return int(text) if text.isdigit() else 0

        return cls(
            name=name,
            load=values.get("LoadState", ""),
            active=values.get("ActiveState", ""),
            sub=values.get("SubState", ""),
            enabled=values.get("UnitFileState", ""),
            result=values.get("Result", ""),
            invocation=values.get("InvocationID", ""),
            restarts=number("NRestarts"),
            job=values.get("Job", "") not in {"", "0"},
            stale=values.get("NeedDaemonReload") == "yes",
            started_s=number("InactiveExitTimestampMonotonic") / 1e6,
            up_since_s=number("ActiveEnterTimestampMonotonic") / 1e6,
            main_since_s=number("ExecMainStartTimestampMonotonic") / 1e6,
            exec_start_pre=values.get("ExecStartPre", ""),
        )

    @property
    def is_active(self) -> bool:
        """Whether the unit is active, which means started and ready."""
        return self.active == "active"

    @property
    def is_running(self) -> bool:
        """Whether the unit is active and its main process runs."""
        return self.is_active and self.sub == "running"

    @property
    def is_changing(self) -> bool:
        """Whether systemd is starting or stopping the unit, or is about to."""
        return self.job or self.active in {"activating", "deactivating", "reloading"}

    @property
    def is_there(self) -> bool:
        """Whether systemd has loaded the unit's file."""
        return self.load == "loaded"


def show_command(name: str) -> tuple[str, ...]:
    """Return the command whose output `UnitState.parse` takes."""
    return ("systemctl", "show", f"--property={','.join(_PROPERTIES)}", "--", name)


class Systemd:
    """Systemd on this machine. `environment` replaces this process's own, so that PATH can name other programs."""

    def __init__(self, environment: Mapping[str, str] | None = None) -> None:
        self.environment = dict(os.environ if environment is None else environment)

    def unit(self, name: str) -> UnitState:
        """Return the state of a unit, which need not exist.

        Raises:
            SystemdError: systemd does not answer.
        """
        return UnitState.parse(name, self._call(*show_command(name)))

    def daemon_reload(self) -> None:
        """Let systemd read its unit files again. The device links must exist before (see cards.make_device_links).

        Raises:
            SystemdError: the reload failed.
        """
        self._call("systemctl", "daemon-reload", timeout_s=_UNIT_S)

    def restart(self, name: str) -> None:
        """Start or restart a unit and wait until it is ready.

        Raises:
            SystemdError: the unit did not become ready.
        """
        self._call("systemctl", "restart", "--", name, timeout_s=_UNIT_S)

    def restart_no_block(self, name: str) -> None:
        """Request a restart of a unit without waiting, because the unit may never become ready.

        Raises:
            SystemdError: systemd refused the request.
        """
        self._call("systemctl", "restart", "--no-block", "--", name)

    def stop(self, name: str) -> None:
        """Stop a unit and wait for its end; a unit that does not exist is no error.

        Raises:
            SystemdError: the unit does not end.
        """
        unit = self.unit(name)
        if unit.is_there or unit.is_active:  # a unit whose file is gone may still run
            self._call("systemctl", "stop", "--", name, timeout_s=_UNIT_S)

    def arm_deadman(self, seconds: float) -> None:
        """Let systemd start edgegpu-recover.service after some seconds; a timer that is already armed is replaced.

        The timer is transient: it is lost at a boot, which starts that service anyway.

        Raises:
            SystemdError: systemd refused the timer.
        """
        self.disarm_deadman()
        self._call(
            "systemd-run",
            f"--unit={DEADMAN}",
            "--description=edgegpu: undo a change that nobody has finished",
            f"--on-active={seconds:.0f}s",
            "--timer-property=AccuracySec=1s",
            "--collect",
            "--quiet",
            *("systemctl", "start", "--no-block", RECOVER),
        )

    def disarm_deadman(self) -> None:
        """Stop the dead-man's timer; it is no error when none is armed.

        Raises:
            SystemdError: systemd does not answer.
        """
        self.stop(f"{DEADMAN}.timer")

    def _call(self, *command: str, timeout_s: float = _CALL_S) -> str:
        words = " ".join(command)
        try:
            done = subprocess.run(
                command,
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                check=False,
                timeout=timeout_s,
                env=self.environment,
                start_new_session=True,  # a Ctrl-C at our terminal must not reach systemctl
            )
        except subprocess.TimeoutExpired as error:
            raise SystemdError(f"cannot {words}: no answer in {timeout_s:.0f} s", "systemctl list-jobs") from error
        except OSError as error:
            raise SystemdError(f"cannot run {command[0]}: {error.strerror}", "systemd is needed") from error
        if done.returncode:
            said = " ".join((done.stderr or done.stdout).split()) or f"exit status {done.returncode}"
            raise SystemdError(f"cannot {words}: {said}", f"journalctl -e -u {command[-1]}")
        return done.stdout
