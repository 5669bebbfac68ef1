"""The configuration file: what it gives, and what people are told when it is wrong."""

from pathlib import Path

import pytest

from edgegpu_core.injection import Injection
from edgegpu_core.model import ResourceModel
from edgegpu_core.placement import Policy
from edgegpu_plugin.config.schema import PluginConfig, ProcessRole, load
from edgegpu_plugin.errors import ConfigError


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "plugin.yaml"


def problems(file: Path, text: str) -> list[str]:
    """The lines that a file's author is shown, less the path."""
    file.write_text(text)
    with pytest.raises(ConfigError) as caught:
        load(file)
    assert str(caught.value) == "\n".join(caught.value.problems)
    assert all(line.startswith(str(file)) for line in caught.value.problems)
    return [line.removeprefix(str(file)) for line in caught.value.problems]


def test_a_version_is_all_that_a_file_needs(file: Path) -> None:
    file.write_text("version: 1\nnode_name: box-1\nresources:\nplacement: {}\n")
    config = load(file)
    assert config == PluginConfig(version=1, node_name="box-1")
    assert config.model() == ResourceModel()
    assert (config.policy, config.exclude) == (Policy.FIRST_FIT, frozenset())
    assert config.driver.injection is Injection.AUTO
    assert config.driver.containerd_config is None
    assert (config.extender.host, config.extender.port) == ("127.0.0.1", 8787)
    assert config.kubelet.checkpoint == Path("/var/lib/kubelet/device-plugins/kubelet_internal_checkpoint")
    assert config.kubelet.pod_resources == Path("/var/lib/kubelet/pod-resources/kubelet.sock")


def test_the_root_of_kubelet_moves_pod_resources_and_not_the_device_plugins(file: Path) -> None:
    file.write_text("version: 1\nkubelet: {folder: /data/kubelet}\n")
    kubelet = load(file).kubelet
    assert kubelet.pod_resources == Path("/data/kubelet/pod-resources/kubelet.sock")
    assert kubelet.device_plugins == Path("/var/lib/kubelet/device-plugins")
    assert kubelet.checkpoint == Path("/var/lib/kubelet/device-plugins/kubelet_internal_checkpoint")


def test_kubelet_waits_at_its_start_unless_that_is_off(file: Path) -> None:
    file.write_text("version: 1\n")
    assert (load(file).kubelet.wait_at_start, load(file).kubelet.resolv_conf) == (True, None)
    file.write_text("version: 1\nkubelet: {wait_at_start: off, resolv_conf: /k/resolv.conf}\n")
    assert (load(file).kubelet.wait_at_start, load(file).kubelet.resolv_conf) == (False, Path("/k/resolv.conf"))
    file.write_text("version: 1\nkubelet: {resolv_conf: resolv.conf}\n")
    with pytest.raises(ConfigError, match=r"kubelet\.resolv_conf"):
        load(file)


@pytest.mark.parametrize("word", ["on", "off", "auto"])
def test_what_yaml_takes_for_true_and_false_is_a_word_where_words_are_asked_for(file: Path, word: str) -> None:
    file.write_text(f"version: 1\nisolation: {{preload: {word}, compute: off}}\n")
    isolation = load(file).isolation
    assert (isolation.preload.value, isolation.compute.value) == (word, "off")
    assert "compute: 'on' should be" in problems(file, "version: 1\nisolation: {compute: on}\n")[0]


def test_every_key_can_be_set(file: Path) -> None:
    file.write_text("""
version: 1
node_name: box-1.example
role: extender-only
resources: {memory: a.example/mem, core: a.example/core, unit_mib: 1, reserve_mib: 512, core_required: false}
placement: {policy: spread, exclude: [0, 1:2, GPU-1]}
kubelet: {folder: /k, device_plugins: /k/d}
kubernetes: {kubeconfig: /c}
driver: {root: /d, injection: cdi, cdi_folder: /etc/cdi, containerd_config: /c.toml, nvml_timeout_s: 0.5, poll_s: 1}
extender: {listen: "[::1]:0", insecure: true, tls: {cert: /1, key: /2, client_ca: /3}}
paths: {state: /s, run: /r}
log_level: debug
""")
    config = load(file)
    assert config.exclude == {"0", "1:2", "GPU-1"}
    assert config.model() == ResourceModel(
        memory_resource="a.example/mem",
        core_resource="a.example/core",
        unit_mib=1,
        reserve_mib=512,
        core_required=False,
    )
    assert (config.extender.host, config.extender.port) == ("::1", 0)
    assert config.driver.containerd_config == Path("/c.toml")


@pytest.mark.parametrize(
    ("role", "has"),
    [
        (ProcessRole.SERVER, (True, True)),
        (ProcessRole.AGENT, (True, False)),
        (ProcessRole.EXTENDER_ONLY, (False, True)),
    ],
)
def test_what_runs_follows_from_the_role(role: ProcessRole, has: tuple[bool, bool]) -> None:
    assert (role.has_plugin, role.has_extender) == has


def test_all_problems_are_told_with_line_value_and_remedy(file: Path) -> None:
    text = """version: 1
resources:
  unit_mib: 0
  unit_mb: 256
placement:
  policy: frist-fit
  exclude:
    - 0
    - {}
"""
    assert problems(file, text) == [
        (
            ":3: resources.unit_mib: '0' should be greater than or equal to 1; "
            "give the MiB of one unit of memory, a whole number from 1 to 1048576"
        ),
        ":4: resources.unit_mb: unknown key; did you mean unit_mib?",
        (
            ":6: placement.policy: 'frist-fit' should be 'first-fit', 'best-fit' or 'spread'; "
            "give one of first-fit, best-fit, spread"
        ),
        (
            ":9: placement.exclude[1]: '{}' should be a valid string; give a list of card numbers (0), MIG devices "
            "(0:1) or UUIDs (GPU-…), none of which is offered"
        ),
    ]


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("", ": the file is empty; write at least `version: 1`"),
        ("# nothing\n", ": the file is empty; write at least `version: 1`"),
        ("- 1\n", ":1: not a list of `key: value`; start with `version: 1`"),
        ("version: 1\nrole: [\n", ":3: not YAML: "),
        ("version: 1\n\trole: agent\n", ":2: not YAML: found character '\\t' that cannot start any token; indent"),
        ("role: agent\n", ":1: version: missing; add 1"),
        ("version: 2\n", ":1: version: '2' should be 1; give 1"),
        ("version: 1\nversion: 1\n", ":2: version: stands in line 1 already; remove one"),
        ("version: 1\nloglevel: 1\n", ":2: loglevel: unknown key; did you mean log_level?"),
        ("version: 1\nzz: 1\n", ":2: zz: unknown key; there are driver, extender, "),
        ("version: 1\nplacement: 3\n", ":2: placement: '3' is not a section; give a section with keys below it"),
        ("version: 1\nresources: {unit_mib: '256'}\n", ":2: resources.unit_mib: '256' should be a valid integer"),
        ("version: 1\nresources: {unit_mib: true}\n", ":2: resources.unit_mib: 'True' should be a valid integer"),
        ("version: 1\nresources: {unit_mib: }\n", ":2: resources.unit_mib: 'nothing' should be a valid integer"),
        ("version: 1\nresources: {memory: vcuda}\n", ":2: resources.memory: 'vcuda' is not a resource name; give"),
        ("version: 1\nresources: {memory: A.b/c}\n", ":2: resources.memory: 'A.b/c' is not a resource name"),
        (
            "version: 1\nresources: {core: kubernetes.io/c}\n",
            ":2: resources.core: 'kubernetes.io/c' is not allowed: Kubernetes reserves",
        ),
        (
            "version: 1\nresources:\n  memory: a.b/c\n  core: a.b/c\n",
            ":4: resources.core: 'a.b/c' is the same name as resources.memory",
        ),
        ("version: 1\nnode_name: Box_1\n", ":2: node_name: 'Box_1' is not a node's name; give the name of this"),
        ("version: 1\ndriver: {root: x}\n", ":2: driver.root: 'x' is not an absolute path; give"),
        ("version: 1\ndriver: {nvml_timeout_s: 0}\n", ":2: driver.nvml_timeout_s: '0' should be greater than 0"),
        ("version: 1\nextender: {listen: 0.0.0.0:1}\n", ":2: extender.listen: '0.0.0.0:1' is reachable from other"),
        ("version: 1\nextender: {listen: box:1}\n", ":2: extender.listen: 'box:1' is not an IP address"),
        ("version: 1\nextender: {listen: 127.0.0.1}\n", ":2: extender.listen: '127.0.0.1' is not an address with a"),
        ("version: 1\ndriver: {poll_s: .inf}\n", ":2: driver.poll_s: 'inf' should be less than or equal to 31536000"),
        ("version: 1\ndriver: {absent_s: .nan}\n", ":2: driver.absent_s: 'nan' should be less than or equal to"),
        (
            f"version: 1\nresources: {{unit_mib: {'9' * 23}}}\n",
            ":2: resources.unit_mib: '99999999999999999999999' should be less than or equal to 1048576; give the MiB",
        ),
        ("version: 1\nresources: {reserve_mib: 1048577}\n", ":2: resources.reserve_mib: '1048577' should be less"),
        ("version: 1\nisolation: {context_mib: 1048577}\n", ":2: isolation.context_mib: '1048577' should be less"),
        ("version: 1\nplacement: {exclude: ['']}\n", ":2: placement.exclude[0]: '' is not the name of a card; give"),
        ("version: 1\nplacement: {exclude: [-1]}\n", ":2: placement.exclude[0]: '-1' is not the name of a card"),
        ("version: 1\nplacement: {exclude: ['0:0:0']}\n", ":2: placement.exclude[0]: '0:0:0' is not the name of"),
        ("version: 1\nplacement: {exclude: [gpu0]}\n", ":2: placement.exclude[0]: 'gpu0' is not the name of a card"),
        ("version: 1\nextender: {listen: 127.0.0.1:70000}\n", ":2: extender.listen: '127.0.0.1:70000' is not"),
    ],
)
def test_one_problem(file: Path, text: str, told: str) -> None:
    (line,) = problems(file, text)
    assert line.startswith(told)


@pytest.mark.parametrize("part", ["[", "{", "- "])
def test_what_is_nested_too_deep(file: Path, part: str) -> None:
    (line,) = problems(file, part * 100_000)
    assert line == ": brackets or lists within each other, too deep to read; remove them"


@pytest.mark.parametrize(
    "name",
    ["0", "15", "0:1", "GPU-8fc258b8-6789-500c-b804-d13a579cd5a1", "MIG-GPU-8fc258b8-6789-500c-b804-d13a579cd5a1/1/0"],
)
def test_names_of_cards(file: Path, name: str) -> None:
    file.write_text(f"version: 1\nplacement: {{exclude: ['{name}']}}\n")
    assert load(file).exclude == {name}


def test_a_file_that_is_not_there(file: Path) -> None:
    with pytest.raises(ConfigError, match="there is no such file; write one that says `version: 1`"):
        load(file)


def test_a_file_that_is_no_text(file: Path) -> None:
    file.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(ConfigError, match="it must be a text file that the plugin may read"):
        load(file)


def test_a_long_value_is_cut(file: Path) -> None:
    (line,) = problems(file, f"version: 1\nrole: {'x' * 1000}\n")
    assert len(line) < 250
