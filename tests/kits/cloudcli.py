"""Runs `edgegpu-cloud` in this process, with no terminal."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from typer.testing import CliRunner

from edgegpu_cloud.cli.tree import app

if TYPE_CHECKING:
    from pathlib import Path


@dataclass(frozen=True)
class Done:
    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:  # noqa: ANN401  (whatever the command prints)
        return json.loads(self.out)


def run(*words: str, folder: Path | None = None, stdin: str = "") -> Done:
    env: dict[str, str | None] = {"EDGEGPU_CLOUD": str(folder) if folder else None, "COLUMNS": None, "USER": "anna"}
    done = CliRunner().invoke(app, list(words), prog_name="edgegpu-cloud", env=env, input=stdin)
    assert done.exception is None or isinstance(done.exception, SystemExit), done.exception
    assert "Traceback" not in done.stderr
    return Done(done.exit_code, done.stdout, done.stderr)


def ok(*words: str, folder: Path | None = None, stdin: str = "") -> Done:
    done = run(*words, folder=folder, stdin=stdin)
    assert done.code == 0, done.err + done.out
    return done
