import re
from collections.abc import Mapping
from pathlib import Path

import pytest

from edgegpu_installer.machine.k3s_config import (
    COMMAND_LINE,
    SCHEDULER_ARG,
    CommandLine,
    ConfigFile,
    ConfigValue,
    command_line,
    config_path,
    effective,
    is_drop_in,
    render_drop_in,
    replaces_ours,
    scheduler_file,
)

MAIN = "/etc/rancher/k3s/config.yaml"
FOLDER = MAIN + ".d"
OURS = f"{FOLDER}/90-edgegpu.yaml"
SERVER = CommandLine("server")


def arguments(files: Mapping[str, str], line: CommandLine = SERVER, **more: str) -> list[str]:
    read = [ConfigFile(path, text) for path, text in files.items()]
    return [value.text for value in effective(line, {}, read, **more).values(SCHEDULER_ARG)]


def test_a_plus_appends_and_without_it_a_later_file_replaces() -> None:
    main = {MAIN: "kube-scheduler-arg: [v=2]\n"}
    assert arguments(main | {OURS: "kube-scheduler-arg+: [config=/a]\n"}) == ["v=2", "config=/a"]
    assert arguments(main | {OURS: "kube-scheduler-arg: config=/a\n"}) == ["config=/a"]


def test_a_plus_with_nothing_before_it_is_the_list() -> None:
    assert arguments({OURS: "kube-scheduler-arg+: config=/a\n"}) == ["config=/a"]


def test_lists_of_files_and_command_line_add_up_and_the_command_line_is_last() -> None:
    line = command_line(["server", "--kube-scheduler-arg", "v=4"])
    flags = effective(line, {}, [ConfigFile(OURS, "kube-scheduler-arg+: [config=/a]\n")])
    assert flags.values(SCHEDULER_ARG) == (ConfigValue("config=/a", OURS), ConfigValue("v=4", COMMAND_LINE))


def test_the_list_that_takes_the_place_of_another_leaves_the_command_line_where_it_is() -> None:
    before = [ConfigValue("config=/x", MAIN), ConfigValue("v=2", MAIN), ConfigValue("v=4", COMMAND_LINE)]
    assert render_drop_in("/a", "/x", before).endswith("kube-scheduler-arg:\n  - 'v=2'\n  - 'config=/a'\n")


def test_our_own_drop_in_can_be_left_out() -> None:
    files = {MAIN: "kube-scheduler-arg: [v=2]\n", OURS: "kube-scheduler-arg+: [config=/a]\n"}
    assert arguments(files, without=OURS) == ["v=2"]


@pytest.mark.parametrize(
    ("words", "flags"),
    [
        (["server", "--docker", "--data-dir", "/x"], {"docker": ("true",), "data-dir": ("/x",)}),
        (["server", "-d", "/x", "--docker=false"], {"docker": ("false",), "data-dir": ("/x",)}),
        (["server", "-kube-scheduler-arg=a=b"], {"kube-scheduler-arg": ("a=b",)}),
        (["agent", "--new-switch", "--docker"], {"new-switch": ("true",), "docker": ("true",)}),
        (["server", "--new-switch", "-d", "/x"], {"new-switch": ("true",), "data-dir": ("/x",)}),
        (["server", "--new-switch", "--node-name=a"], {"new-switch": ("true",), "node-name": ("a",)}),
        (["server", "--docker", "--new-flag", "agent"], {"docker": ("true",), "new-flag": ("agent",)}),
        (["server", "--kubelet-arg", "--root-dir=/x"], {"kubelet-arg": ("--root-dir=/x",)}),
        (["server", "--new-arg", "-v=3", "--new-switch"], {"new-arg": ("-v=3",), "new-switch": ("true",)}),
    ],
)
def test_flags_are_read_in_every_form(words: list[str], flags: dict[str, tuple[str, ...]]) -> None:
    line = command_line(words)
    assert (line.role, dict(line.flags)) == (words[0], flags)


def test_a_switch_before_the_role_does_not_swallow_it() -> None:
    line = command_line(["--new-switch", "server", "--data-dir", "/x"])
    assert (line.role, line.flags["data-dir"]) == ("server", ("/x",))


def test_the_page_of_refusals_names_each_flag_that_needs_a_plain_value() -> None:
    lines = (Path(__file__).resolve().parents[3] / "docs/box/refused.md").read_text().splitlines()
    (row,) = [line for line in lines if "without a plain value" in line]
    named = set(re.findall(r"`--([a-z-]+)`", row))
    flags = {*named, "data-dir", "container-runtime-endpoint", "server", "token", "write-kubeconfig", "node-ip"}
    assert set(command_line(["server", *(f"--{name}=" for name in flags)]).unclear) == named


@pytest.mark.parametrize(
    ("words", "unclear"),
    [
        (["--data-dir"], ("data-dir",)),
        (["--data-dir", "--docker"], ("data-dir",)),
        (["--node-name="], ("node-name",)),
        (["--node-name", "%H"], ("node-name",)),
        (["--new-flag", "--token=", "-d", "/x"], ()),
    ],
)
def test_a_flag_that_is_needed_and_has_no_plain_value_is_unclear(words: list[str], unclear: tuple[str, ...]) -> None:
    assert command_line(["server", *words]).unclear == unclear


def test_the_file_may_be_moved_and_the_variable_wins() -> None:
    line = command_line(["server", "--config", "/x/k.yaml"])
    assert config_path(line, {}, MAIN) == "/x/k.yaml"
    assert config_path(line, {"K3S_CONFIG_FILE": "/y.yaml"}, MAIN) == "/y.yaml"
    assert config_path(SERVER, {}, MAIN) == MAIN


def test_variables_count_least() -> None:
    environment = {"K3S_DATA_DIR": "/env"}
    file = ConfigFile(MAIN, "data-dir: /file\n")
    assert effective(SERVER, environment, []).last("data-dir") == "/env"
    assert effective(SERVER, environment, [file]).last("data-dir") == "/file"
    assert effective(command_line(["server", "-d", "/cli"]), environment, [file]).last("data-dir") == "/cli"


def test_switches_numbers_and_nothing() -> None:
    found = effective(SERVER, {}, [ConfigFile(MAIN, "docker: true\nhttps-listen-port: 7443\nnode-name:\n")])
    assert found.on("docker")
    assert not found.on("selinux")
    assert found.last("https-listen-port") == "7443"
    assert found.last("node-name", "default") == "default"


@pytest.mark.parametrize("text", ["a: [", "- a\n", "just words"])
def test_a_file_that_k3s_would_end_about_is_named(text: str) -> None:
    (problem,) = effective(SERVER, {}, [ConfigFile(MAIN, text)]).problems
    assert MAIN in problem
    assert "k3s would not start" in problem


def test_a_file_that_cannot_be_read_is_named() -> None:
    (problem,) = effective(SERVER, {}, [ConfigFile(MAIN, None, "Permission denied")]).problems
    assert problem == f"{MAIN} cannot be read: Permission denied"


def test_only_the_first_document_counts() -> None:
    assert arguments({MAIN: "kube-scheduler-arg: [a=1]\n---\nkube-scheduler-arg: [b=2]\n"}) == ["a=1"]


def test_a_later_drop_in_without_plus_takes_ours_away() -> None:
    ours = ConfigFile(OURS, "kube-scheduler-arg+: [config=/a]\n")
    earlier = ConfigFile(f"{FOLDER}/10-x.yaml", "kube-scheduler-arg: [v=1]\n")
    later = ConfigFile(f"{FOLDER}/99-x.yaml", "kube-scheduler-arg: [v=1]\n")
    adds = ConfigFile(f"{FOLDER}/99-x.yaml", "kube-scheduler-arg+: [v=1]\n")
    assert replaces_ours([earlier, ours, adds], OURS) is None
    assert replaces_ours([earlier, ours, later], OURS) == later.path


def test_the_scheduler_file_is_found_among_the_arguments() -> None:
    given = [
        ConfigValue("v=2", "a"),
        ConfigValue("config=/x", "b"),
        ConfigValue("--config=/y", "c"),
        ConfigValue("config-x=/z", "d"),
    ]
    assert scheduler_file(given) == (ConfigValue("/x", "b"), ConfigValue("/y", "c"))


def test_what_is_a_drop_in() -> None:
    assert [name for name in ("a.yaml", "b.YML", "c.yaml.bak", "d.txt", "e") if is_drop_in(name)] == ["a.yaml", "b.YML"]
