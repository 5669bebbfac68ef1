"""Programs of the box, asked with a deadline; a failure is an answer."""

import os
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

SYSTEM_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
_MOST_WORDS = 300


@dataclass(frozen=True, slots=True)
class CommandOutput:
    """What a program said; `why` is empty where it ended well, else one line."""

    out: str
    why: str = ""

    @property
    def well(self) -> bool:
        """Whether it ended with exit status 0."""
        return not self.why


def run(
    words: Sequence[str], *, timeout_s: float, path: str = SYSTEM_PATH, environment: Mapping[str, str] | None = None
) -> CommandOutput:
    """Run a program to its end; one that hangs is killed after timeout_s, with its children."""
    env = {"PATH": path, "LC_ALL": "C", "HOME": "/root"} | dict(environment or {})
    try:
        child = subprocess.Popen(
            words, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=env, process_group=0
        )
    except OSError as error:
        return CommandOutput("", f"cannot run {words[0]}: {error.strerror}")
    with child:
        try:
            out, err = child.communicate(timeout=timeout_s)
        except subprocess.TimeoutExpired:
            os.killpg(child.pid, 9)
            return CommandOutput("", f"{' '.join(words)[:_MOST_WORDS]} did not end within {timeout_s:g} s")
    text = out.decode(errors="replace")
    if child.returncode == 0:
        return CommandOutput(text)
    said = err.decode(errors="replace").strip().rpartition("\n")[2] or f"exit status {child.returncode}"
    return CommandOutput(text, f"{' '.join(words)[:_MOST_WORDS]}: {said[:_MOST_WORDS]}")
