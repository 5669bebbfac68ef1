"""The documents: README's first commands are a newcomer's, what the code makes stands in them."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from pathlib import Path

import pytest
import yaml
from kits.scheduler import KUBECONFIG
from typer.main import get_command

from edgegpu_agent.app_limits import rbac
from edgegpu_agent.cli.tree import app
from edgegpu_core import nodereport, podview
from edgegpu_core.model import ResourceModel
from edgegpu_installer import layout
from edgegpu_installer.changes import FileChange
from edgegpu_installer.cluster import lease, nodes
from edgegpu_installer.cluster.rbac import read_rights
from edgegpu_installer.machine import systemd
from edgegpu_installer.plan import certificates
from edgegpu_installer.plan.plan import plan_install
from edgegpu_installer.plan.release import LIBRARY, Recovery, Release
from edgegpu_installer.plan.site import InstallOptions, PlanCredentials, Site, SiteKind
from edgegpu_installer.scheduler.manifest import MANIFEST, SCHEDULER_FILE
from edgegpu_installer.transaction import farewell, lock
from edgegpu_installer.transaction.farewell import Farewell
from edgegpu_installer.transaction.states import TransactionState

ROOT = Path(__file__).resolve().parents[2]
DOCUMENTS = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])
CONFIGURE, FILES, INSTALL, TRANSACTION, UNINSTALL = (
    (ROOT / f"docs/box/{name}.md").read_text(encoding="utf-8")
    for name in ("configure", "files", "install", "transaction", "uninstall")
)
OPTION = re.compile(r"^ {2}(--[a-z0-9-]+)", re.MULTILINE)
READMES = ("README.md", "README.zh-CN.md")


def read(path: str) -> str:
    return (ROOT / path).read_text(encoding="utf-8")


def commands(path: Path) -> list[str]:
    """Return the lines of a document's shell blocks, without what is said about them."""
    blocks = re.findall(r"```sh\n(.*?)```", path.read_text(encoding="utf-8"), re.DOTALL)
    lines = [re.sub(r" *#.*", "", line) for block in blocks for line in block.splitlines()]
    return [line for line in lines if line]


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: path.name)
def test_commands_that_are_named_exist(path: Path) -> None:
    text = "\n".join([*re.findall(r"`([^`\n]+)`", path.read_text(encoding="utf-8")), *commands(path)])
    targets = set(re.findall(r"^([a-z0-9]+):", read("Makefile"), re.MULTILINE))
    assert set(re.findall(r"^(?:[A-Z_]+=\S* )*make ([a-z0-9]+)", text, re.MULTILINE)) <= targets
    known = set(getattr(get_command(app), "commands"))  # noqa: B009  (typer's groups have it, its type does not say so)
    assert set(re.findall(r"^(?:sudo )?edgegpu ([a-z]+)", text, re.MULTILINE)) <= known


@pytest.mark.parametrize("name", READMES)
def test_the_first_commands_are_demo_and_test(name: str) -> None:
    first = re.search(r"```sh\n(.*?)```", read(name), re.DOTALL)
    assert first is not None
    assert first[1].splitlines() == ["make demo", "make test"]


def test_both_readmes_have_the_same_commands() -> None:
    english, chinese = (commands(ROOT / name) for name in READMES)
    assert english == chinese


def test_both_readmes_have_the_same_parts_and_pictures() -> None:
    def parts(name: str) -> list[str]:
        found = re.findall(r"^(#+) |^!\[[^]]*\]\((.*)\)$|^(\d)\. ", read(name), re.MULTILINE)
        return ["".join(one).replace("-zh.png", ".png") for one in found]

    english, chinese = (parts(name) for name in READMES)
    assert english == chinese
    assert "docs/images/limits-refused.png" in english


def test_pictures_are_light_and_each_is_shown_somewhere() -> None:
    pictures = {one.name: one.stat().st_size for one in (ROOT / "docs/images").glob("*.png")}
    assert pictures
    assert {name: size for name, size in pictures.items() if size > 200 * 1024} == {}
    assert set(re.findall(r"images/([a-z-]+\.png)", read("docs/cloud/console.md"))) == set(pictures)


@pytest.mark.parametrize("name", [*READMES, "docs/box/install.md", "docs/box/nodes.md", "docs/box/offline.md"])
def test_the_line_has_options_that_there_are(name: str) -> None:
    known = options_of_the_script() | options_of("install")
    lines = [line for line in commands(ROOT / name) if "install.sh" in line]
    assert lines
    for line in lines:
        assert set(re.findall(r" (--[a-z0-9-]+)", line.partition("install.sh")[2])) <= known


def options_of(command: str) -> set[str]:
    found = getattr(get_command(app), "commands")[command]  # noqa: B009  (as above)
    return {word for option in found.params for word in option.opts if word.startswith("--")}


def options_of_the_script() -> set[str]:
    return set(OPTION.findall(read("installer/install.sh")))


def test_every_package_is_in_architecture() -> None:
    packages = re.findall(r'"(edgegpu_[a-z]+)"', read("pyproject.toml").partition("root_packages")[2].partition("]")[0])
    assert packages
    assert not [name for name in packages if f"/{name}`" not in read("ARCHITECTURE.md")]


def test_every_configuration_key_is_documented() -> None:
    keys = re.findall(r"^ *([a-z_]+):", read("docs/examples/plugin.yaml"), re.MULTILINE)
    assert not [key for key in keys if not re.search(rf"[`.]{key}[`.]", CONFIGURE)]


@pytest.mark.parametrize(("command", "page"), [("install", INSTALL), ("uninstall", UNINSTALL)])
def test_every_option_is_documented(command: str, page: str) -> None:
    known = options_of(command) | (options_of_the_script() if command == "install" else set())
    text = page if command == "install" else f"{page}{INSTALL}"  # some are the same for both
    assert not [option for option in known - {"--help"} if f"{option}`" not in text and f"{option} " not in text]


def test_every_state_is_documented() -> None:
    assert not [state.value for state in TransactionState if f"`{state.value}`" not in TRANSACTION]


def is_documented(path: str) -> bool:
    """Whether a path stands there, as it is or by its name and that of its folder."""
    place = Path(path)
    words = (place.parent.name, place.name)
    return stands(path) or (
        stands(str(layout.WANTS)) and place.parent.name in words and all(stands(word) for word in words)
    )


def stands(word: str) -> bool:
    return re.search(rf"(?<![\w.-]){re.escape(word)}(?![\w-]|\.\w)", FILES) is not None


def test_every_path_of_the_layout_is_documented() -> None:
    paths = [value for name, value in vars(layout).items() if name.isupper() and value.startswith("/")]
    more = [layout.unit_drop_in("k3s"), lock.LOCK, lock.BEGUN, lock.UNPACK, MANIFEST, SCHEDULER_FILE]
    more += re.findall(r"=\$ROOT(/run/\S+)", read("installer/edgegpu-recover") + read("installer/edgegpu-farewell"))
    assert len(paths) > 20
    assert not [path for path in (*paths, *more) if not stands(path)]


def test_every_unit_is_documented() -> None:
    units = [path.name for path in (ROOT / "systemd").glob("*.service")]
    assert f"{systemd.DEADMAN}.timer" in FILES
    assert not [unit for unit in units if not stands(f"{layout.UNITS}/{unit}")]


RELEASE = Release(
    version="VERSION",
    folder=ROOT,
    plugin_unit=b"",
    selftest_unit=b"",
    agent_unit=b"",
    mps_unit=b"",
    farewell=b"",
    farewell_unit=b"",
    rights=read_rights(ROOT / "docs/examples/rbac.yaml"),
    recovery=Recovery.of_version(ROOT),
)
CREDENTIALS = "/var/lib/rancher/k3s/server/cred/scheduler.kubeconfig"


@pytest.mark.parametrize("kind", [SiteKind.K3S_SERVER, SiteKind.K3S_AGENT])
def test_every_file_of_an_installation_is_documented(kind: SiteKind) -> None:
    site = Site(
        kind=kind,
        unit="k3s" if kind.is_server else "k3s-agent",
        node_name="box",
        kubelet_folder=layout.KUBELET,
        kubelet_kubeconfig=f"{layout.K3S_DATA}/agent/kubelet.kubeconfig",
        scheduler_path=f"{layout.K3S_FOLDER}/{layout.SCHEDULER_YAML}",
        drop_in=f"{layout.K3S_CONFIG}.d/{layout.K3S_DROP_IN}",
        scheduler_kubeconfig=CREDENTIALS,
        has_cards=True,
    )
    files = {CREDENTIALS: yaml.safe_dump(KUBECONFIG).encode()}
    made = certificates.make(datetime(2026, 1, 1, tzinfo=UTC)) if kind.is_server else None
    kubeconfig = FileChange(layout.KUBECONFIG, b"", 0o600)
    plan = plan_install(
        site,
        InstallOptions(token="t", cloud="https://c"),  # noqa: S106  (so that their files are among them)
        release=RELEASE,
        material=PlanCredentials(
            kubeconfig=kubeconfig, certificates=made, limits=FileChange(layout.LIMITS_KUBECONFIG, b"")
        ),
        read_file=files.get,
    )
    paths = [change.path for change in RELEASE.recovery.into(plan).files]
    assert {layout.CLOUD_TOKEN, layout.AGENT_YAML, layout.LIMITS_KUBECONFIG} <= set(paths)
    assert LIBRARY in paths
    assert not [path for path in paths if not is_documented(path)]


def test_what_an_uninstall_leaves_for_a_while_is_documented() -> None:
    wait = Farewell(node="box", kubeconfig=f"{layout.K3S_DATA}/agent/kubelet.kubeconfig", model=ResourceModel())
    paths = [change.path for change in farewell.files(wait, program=b"", unit=b"")]
    assert not [path for path in (*paths, wait.cdi_spec, wait.run) if not is_documented(path)]


def test_every_object_and_mark_in_the_cluster_is_documented() -> None:
    marks = [nodes.GPU_LABEL, nodes.EXTENDER_ANNOTATION, nodereport.REPORT_ANNOTATION, podview.CARDS_ANNOTATION]
    items = (*RELEASE.rights.items, *rbac.manifests(["asr"], model=ResourceModel()))
    named = {word for item in items for word in (item["kind"], item["metadata"]["name"])}
    assert f"`{lease.NAMESPACE}/{lease.NAME}`" in FILES
    assert not [mark for mark in marks if not stands(mark)]
    assert not [word for word in named if not re.search(rf"\b{word}s?\b", FILES)]
