"""Our lines in the user's configuration file: where they stand, and that every other byte stays."""

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from edgegpu_installer.errors import InstallError
from edgegpu_installer.machine.config_block import holds_block, with_block, without_block

PATH, OURS = "/etc/rancher/k3s/config.yaml", "/etc/rancher/k3s/edgegpu-scheduler.yaml"
ITEM = f"config={OURS}"
KEY = "kube-scheduler-arg"


def put(text: str) -> str:
    return with_block(text, OURS, path=PATH)


def take(text: str) -> str:
    return without_block(text, path=PATH)


@pytest.mark.parametrize(
    ("text", "arguments"),
    [
        ("", [ITEM]),
        ("# nothing yet\n", [ITEM]),
        ("token: x\n", [ITEM]),
        ("token: x", [ITEM]),
        ("token: x\n\n\n", [ITEM]),
        ("token: x   # mine", [ITEM]),
        ("---\ntoken: x\n", [ITEM]),
        ("\ufefftoken: x\n", [ITEM]),
        ("  token: x\n  debug: true\n", [ITEM]),
        ("token: x\r\ndebug: true\r\n", [ITEM]),
        ("token: x\r\ndebug: true", [ITEM]),
        ("note: |\n  one\n  two\n", [ITEM]),
        ("note: |+\n  one\n\n", [ITEM]),
        ("kube-scheduler-arg:\n  - v=2\n", ["v=2", ITEM]),
        ("kube-scheduler-arg:\n- v=2", ["v=2", ITEM]),
        ("kube-scheduler-arg:\r\n  - v=2\r\n  - x=y # why\r\ntoken: x\r\n", ["v=2", "x=y", ITEM]),
        ("kube-scheduler-arg:\n    - 'v=2'\n\n# the token\ntoken: x", ["v=2", ITEM]),
        ("base: &b v=2\nkube-scheduler-arg:\n  - x=y\n", ["x=y", ITEM]),
        ("kube-scheduler-arg:   # the list\n  # first\n  - v=2\ntoken: x\n", ["v=2", ITEM]),
    ],
)
def test_our_argument_is_added_and_can_be_taken_out_to_the_byte(text: str, arguments: list[str]) -> None:
    changed = put(text)
    before, after = (yaml.safe_load(one) or {} for one in (text, changed))
    assert after == before | {KEY: arguments}
    assert put(changed) == changed
    assert take(changed) == text
    assert ("\r\n" in text) == ("\r\n" in changed)
    assert changed.count("\r\n") in {0, changed.count("\n")}


KEYS = st.sampled_from(
    ["token: 'x'", "debug: true # on", "node-label:\n  - a=b", "# words", "", "kube-scheduler-arg:\n  - v=2"]
)


@given(st.lists(KEYS, unique=True, max_size=6), st.sampled_from(["\n", "\r\n"]), st.booleans())
def test_any_file_of_plain_lines_comes_back_to_the_byte(lines: list[str], newline: str, ended: bool) -> None:  # noqa: FBT001
    text = "\n".join(lines) + ("\n" if ended else "")
    text = text.replace("\n", newline)
    changed = put(text)
    assert yaml.safe_load(changed)[KEY][-1] == ITEM
    assert take(changed) == text
    assert text in changed or KEY in text


def test_what_is_edited_beside_our_lines_stays() -> None:
    changed = put("token: x\n") + "debug: true\n"
    assert put(changed) == changed
    assert take(changed) == "token: x\ndebug: true\n"
    joined = put("token: x") + "debug: true\n"
    assert take(joined) == "token: x\ndebug: true\n"
    within = put("kube-scheduler-arg:\n  - v=2\n").replace("- v=2", "- v=3\n  - x=y") + "debug: true\n"
    assert take(within) == "kube-scheduler-arg:\n  - v=3\n  - x=y\ndebug: true\n"


def test_lines_for_another_scheduler_file_are_written_anew() -> None:
    moved = with_block(put("token: x\n"), "/srv/edgegpu-scheduler.yaml", path=PATH)
    assert yaml.safe_load(moved)[KEY] == ["config=/srv/edgegpu-scheduler.yaml"]
    assert take(moved) == "token: x\n"


def test_an_argument_list_of_the_users_that_came_later_takes_ours_in() -> None:
    changed = put("token: x\n") + "kube-scheduler-arg:\n  - v=2\n"
    assert yaml.safe_load(put(changed))[KEY] == ["v=2", ITEM]
    assert take(put(changed)) == "token: x\nkube-scheduler-arg:\n  - v=2\n"


@pytest.mark.parametrize(
    ("text", "why", "remedy"),
    [
        ("kube-scheduler-arg: v=2\n", "is not a list", "\n  - 'v=2'"),
        ("kube-scheduler-arg: [v=2, x=y]\n", "line 1 is not one argument a line", "\n  - 'v=2'\n  - 'x=y'"),
        ("kube-scheduler-arg: []\n", "is not a list with at least", "without an empty"),
        ("kube-scheduler-arg:\n", "is not a list with at least", "without an empty"),
        ("{token: x}\n", "braces", "key: value"),
        ("a: &l\n  - v=2\nkube-scheduler-arg: *l\n", "change other parts", "- 'v=2'"),
        ("kube-scheduler-arg: &l\n  - v=2\na: *l\n", "change other parts", "- 'v=2'"),
        ("a: &m\n  kube-scheduler-arg: [v=2]\n<<: *m\n", "change other parts", "- 'v=2'"),
        ("kube-scheduler-arg:\n  - v=2\nkube-scheduler-arg:\n  - v=3\n", "stands twice", "- 'v=3'"),
        ("kube-scheduler-arg:\n  - |\n    v=2\n", "begins a block of text", ""),
        ("token: x\n---\ndebug: true\n", "means nothing", ""),
        ("token: x\n...\n", "means nothing", ""),
        ("note: |\n  no newline", "change other parts", ""),
        ("- a\n", "not a mapping", ""),
        (
            "kube-scheduler-arg:\n  - config=/etc/mine.yaml\n",
            "a configuration already",
            "take `config=/etc/mine.yaml` out",
        ),
        ("kube-scheduler-arg:\n  - --config=/etc/mine.yaml\n", "a configuration already", "1.21.1"),
    ],
)
def test_what_cannot_be_added_to_without_guessing_is_refused(text: str, why: str, remedy: str) -> None:
    with pytest.raises(InstallError, match=why) as refused:
        put(text)
    assert PATH in refused.value.message
    assert remedy in refused.value.remedy


@pytest.mark.parametrize(
    ("here", "there"),
    [
        ("# END edgegpu\n", ""),
        ("# END edgegpu", "  - v=2\n# END edgegpu"),
        (f"  - '{ITEM}'\n", ""),
    ],
)
def test_lines_that_somebody_wrote_into_are_not_guessed_at(here: str, there: str) -> None:
    broken = put("token: x\n").replace(here, there, 1)
    assert holds_block(broken)
    for action in (put, take):
        with pytest.raises(InstallError, match="somebody has edited these lines"):
            action(broken)
