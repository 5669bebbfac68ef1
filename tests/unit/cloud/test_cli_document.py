"""docs/cloud against the code: each command that it shows can be typed; each code, file and key is there."""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from typing import TYPE_CHECKING, get_args

import pytest
from kits.cloudcli import ok
from pydantic import BaseModel

from edgegpu_cloud.enrolment.bodies import EnrolAsk, EnrolmentGranted, RenewAsk
from edgegpu_cloud.enrolment.tokens import RefusalCode
from edgegpu_cloud.layout import CloudConfig, CloudLayout

if TYPE_CHECKING:
    from collections.abc import Iterator

PAGES = {
    path.stem: path.read_text(encoding="utf-8")
    for path in Path(__file__).parents[3].joinpath("docs/cloud").glob("*.md")
}
TEXT = "\n".join(PAGES.values())
_COMMAND = re.compile(r"(?:^|\s)edgegpu-cloud ([a-z].*)")


def shown() -> Iterator[str]:
    for block in re.findall(r"```sh[^\n]*\n(.*?)```", TEXT, re.DOTALL):
        for line in block.replace("\\\n", " ").splitlines():  # a line may go on in the next
            found = _COMMAND.search(re.sub(r"\s[<>]\s\S+|\s\|\s.*", "", line))
            if found and not line.startswith(("useradd", "systemctl")):
                yield found[1]
    yield from re.findall(r"`edgegpu-cloud ([a-z][^`]*)`", TEXT)


@pytest.mark.parametrize("line", sorted(set(shown())))
def test_each_command_can_be_typed(line: str) -> None:
    """With --help at its end the whole line is read, and nothing is done."""
    assert "Usage: edgegpu-cloud" in ok(*shlex.split(line, comments=True), "--help").out


def test_each_code_is_explained() -> None:
    for code in RefusalCode:
        assert f"| `{code}` |" in PAGES["enrol"]


def keys(model: type[BaseModel], prefix: str = "") -> Iterator[str]:
    for name, field in model.model_fields.items():
        inner = next((one for one in get_args(field.annotation) if one is not type(None)), field.annotation)
        if isinstance(inner, type) and issubclass(inner, BaseModel):
            yield from keys(inner, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}"


def test_each_key_of_the_configuration_is_there() -> None:
    table = PAGES["configure"] + PAGES["alerts"]  # the first names the second
    for key in keys(CloudConfig):
        assert f"`{key}`" in table or f"`{key.rpartition('.')[2]}`" in table or key == "version", key


def test_each_file_is_there() -> None:
    layout = CloudLayout(Path("/f"))
    paths = (layout.config, layout.database, layout.root_key, layout.signing_key, layout.crl, layout.release)
    for path in paths:
        assert f"`{path.relative_to('/f')}" in TEXT, path


def test_what_boxes_ask_is_told_field_by_field() -> None:
    for model in (EnrolAsk, RenewAsk, EnrolmentGranted):
        lists = [set(re.findall(r"[a-z_]+", found)) for found in re.findall(r"`\{([^`]*)\}`", TEXT)]
        assert any(set(model.model_fields) <= one for one in lists), model
