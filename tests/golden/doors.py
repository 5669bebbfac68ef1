"""The only place where the golden tests name our code: a rename is mended here, and nothing recorded changes by it."""

from __future__ import annotations

# ruff: noqa: F401  (a door is what is imported here)
# mypy: implicit-reexport
import datetime as dt
import hashlib
import json
from importlib.util import find_spec
from pathlib import Path
from typing import Any, cast

from integration.previewkit import machine_of, never, release, report_of, server_box
from kits.cli import document as status_document
from kits.cli import edgegpu, http, raw_server
from kits.cli import plugin as plugin_socket
from kits.cloudcli import run as edgegpu_cloud
from kits.controller import Bed as ControllerBed
from kits.enrol import Box as EnrollingBox
from kits.enrol import Clock, office
from kits.facts import FakeBox
from kits.https import make_bundle
from kits.livebox import LiveBox
from kits.scheduler import KUBECONFIG as SCHEDULER_KUBECONFIG
from kits.sync import reported, telemetry
from property.cases import Book, pod_of, view_of
from property.cases import box as container_of
from sqlalchemy.dialects import postgresql
from sqlalchemy.schema import CreateIndex, CreateTable, DDLElement
from typer.main import get_command

from edgegpu_agent.actions import settlers as settling
from edgegpu_agent.actions.restarts import Restart
from edgegpu_agent.actions.upgrade import Upgrade
from edgegpu_agent.app_limits import rbac as limits_rights
from edgegpu_agent.app_limits.change_record import ChangeNote as LimitsNote
from edgegpu_agent.app_limits.patches import ASIDE as LIMITS_ASIDE
from edgegpu_agent.app_limits.patches import ContainerShares
from edgegpu_agent.cli.clients.agent import SOCKET_NAME as AGENT_SOCKET
from edgegpu_agent.cli.common import CliError
from edgegpu_agent.cli.install import _document as _install_document
from edgegpu_agent.cli.setup.installing import InstallerConsole
from edgegpu_agent.cli.tree import app as edgegpu_app
from edgegpu_agent.cli.uninstall import _document as _uninstall_document
from edgegpu_agent.identity.clock_floor import ClockFloor
from edgegpu_agent.identity.enrolment import BoxEnrolment
from edgegpu_agent.identity.enrolment_client import EnrolmentAnswer as EnrolledAnswer
from edgegpu_agent.identity.enrolment_client import RenewedAnswer
from edgegpu_agent.identity.identity_files import CloudAddress
from edgegpu_agent.identity.renewal import Renewal as BoxRenewal
from edgegpu_agent.identity.status import EnrolmentState, IdentityStatus
from edgegpu_agent.identity.status import write_status as tell_standing
from edgegpu_agent.journal.codec import asked_of, asked_text
from edgegpu_agent.journal.contents import HistoryEntry, LastContact
from edgegpu_agent.journal.disk_space import JournalPages
from edgegpu_agent.journal.journal import BoxJournal
from edgegpu_agent.main import _parser as agent_parser
from edgegpu_agent.session.local_api import LocalApi
from edgegpu_agent.settings import AgentConfig
from edgegpu_agent.settings import load as load_agent_yaml
from edgegpu_agent.worker.answers import JournalAnswer, JournalLine, OpenCommand, StatusAnswer
from edgegpu_base.cli import commandline
from edgegpu_base.process.tasks import TaskGroup
from edgegpu_cloud.cli.tree import app as edgegpu_cloud_app
from edgegpu_cloud.enrolment.tokens import RefusalCode
from edgegpu_cloud.fleet.preview.sharing import PreviewVerdict
from edgegpu_cloud.http.app import make_app
from edgegpu_cloud.http.release import BundleFolder as CloudRelease
from edgegpu_cloud.layout import CloudConfig, CloudLayout
from edgegpu_cloud.layout import load as load_controller_yaml
from edgegpu_cloud.store import schema as _schema
from edgegpu_cloud.store.records import BoxState, RequestState
from edgegpu_cloud.store.store import ControllerStore
from edgegpu_core.deviceid import core_ids, memory_ids
from edgegpu_core.injection import Injection
from edgegpu_core.inventory import Card, CardCapacity
from edgegpu_core.model import ResourceModel
from edgegpu_core.nodereport import REPORT_ANNOTATION, NodeReport, read_report, write_report
from edgegpu_core.placement import Policy, Share
from edgegpu_core.podview import CARDS_ANNOTATION, POLICY_ANNOTATION, read_cards, write_cards
from edgegpu_installer import layout as _layout
from edgegpu_installer.changes import FileChange, TransactionKind
from edgegpu_installer.cluster.kubeconfig import render as render_kubeconfig
from edgegpu_installer.cluster.node_identity import pack, unpack
from edgegpu_installer.cluster.nodes import EXTENDER_ANNOTATION, GPU_LABEL
from edgegpu_installer.cluster.rbac import Account
from edgegpu_installer.doctor.verdict import CheckLevel as DoctorLevel
from edgegpu_installer.install import Installation
from edgegpu_installer.layout import Layout
from edgegpu_installer.machine.atomic import PathEntry, wanted
from edgegpu_installer.plan import certificates, precheck
from edgegpu_installer.plan.agent_config import agent_yaml
from edgegpu_installer.plan.release import read_release
from edgegpu_installer.plan.site import InstallOptions, SiteKind, site_of
from edgegpu_installer.plan.site import MachineRole as SiteRole
from edgegpu_installer.transaction import agent_health as agenthealth
from edgegpu_installer.transaction import baseline
from edgegpu_installer.transaction.baseline import _fingerprint as fingerprint
from edgegpu_installer.transaction.journal import TargetPath, TransactionJournal, TransactionRecord, TransactionTables
from edgegpu_installer.transaction.states import RecoveryDecision, TransactionState
from edgegpu_installer.uninstall import Uninstallation
from edgegpu_plugin.app import PluginApp
from edgegpu_plugin.cards.inventory_store import InventoryStore, SavedInventory
from edgegpu_plugin.config.schema import PluginConfig
from edgegpu_plugin.config.schema import ProcessRole as PluginRole
from edgegpu_plugin.config.schema import load as load_plugin_yaml
from edgegpu_plugin.containers.cdi import build_spec, cdi_name
from edgegpu_plugin.containers.driver_files import DriverFiles, Library
from edgegpu_plugin.main import _parser as plugin_parser
from edgegpu_plugin.main import run as plugin_run
from edgegpu_plugin.records.node_state import Snapshot
from edgegpu_plugin.records.publisher import REPORT_LABEL
from edgegpu_plugin.status import cards_part, other_cards_part, pods_part
from edgegpu_sim.driver import _parser as simdriver_parser
from edgegpu_sync.errors import RefusalReason
from edgegpu_sync.ids import command_id, device_id, op_name
from edgegpu_sync.keys import KeyRing, key_id, next_link, public_text
from edgegpu_sync.link.rules import heartbeat_topic
from edgegpu_sync.messages.downlink import RefreshRequest
from edgegpu_sync.messages.readers import READERS, read
from edgegpu_sync.messages.spec import IsolationMode, OnDrift, Spec, asked
from edgegpu_sync.messages.stamps import Epoch, Stamp
from edgegpu_sync.messages.uplink import Condition, ItemState, Numbers
from edgegpu_sync.rules.commands import CommandRecord
from edgegpu_sync.rules.ops import OPS, RestartRule, UnitRun, read_args
from edgegpu_sync.rules.outbox import KeptMessage
from edgegpu_sync.rules.outbox import OutboxSizes as OutboxLimits
from edgegpu_sync.rules.replay_guard import SeenRevision
from edgegpu_sync.rules.settle import Settlement
from edgegpu_sync.signing import Signer, bare, open_down, open_up
from edgegpu_sync.states import FOLLOWERS, CommandState, ResultCode
from edgegpu_sync.topics import CONTROLLER_FILTER, TopicKind, box_filter, parse
from edgegpu_sync.wire import digest, encode

WORDS = {
    "app limits, on drift": OnDrift,
    "box in the store": BoxState,
    "change foreseen": PreviewVerdict,
    "doctor's levels": DoctorLevel,
    "enrolment of a box": EnrolmentState,
    "enrolment refused": RefusalCode,
    "enrolment request in the store": RequestState,
    "installer's account": Account,
    "installer's decision": RecoveryDecision,
    "installer's op": TransactionKind,
    "installer's precheck": precheck.FindingLevel,
    "installer's role": SiteRole,
    "installer's site": SiteKind,
    "installer's state": TransactionState,
    "isolation": IsolationMode,
    "item settled": ItemState,
    "plugin's injection": Injection,
    "plugin's policy": Policy,
    "plugin's role": PluginRole,
    "receipt asks for": RefreshRequest,
    "refusal of a message": RefusalReason,
    "result's code": ResultCode,
    "result's state": CommandState,
    "settling of an op": RestartRule,
    "standing of the agent in the installer's journal": agenthealth.AgentCondition,
}
"""Enumerations whose values others read: on the wire, in files, in documents."""

PATHS = [value for name, value in vars(_layout).items() if name.isupper() and isinstance(value, str)]
"""The names of files and folders on a box."""

SETTLING_NOTE = (settling._TRANSACTION, settling._DONE)  # noqa: SLF001  (keys on the disk)

A_CERTIFICATE = certificates.make(dt.datetime(2026, 1, 1, tzinfo=dt.UTC)).ca
NO_CERTIFICATE = "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"


class _Units:
    """systemd, as far as a restart asks before it begins."""

    def __init__(self, run: UnitRun) -> None:
        self._run = run

    def read(self, _name: str) -> object:
        return self._run

    def run_of(self, _look: object) -> UnitRun:
        return self._run


class _Idle:
    def wait_for(self, *_: object, **__: object) -> None:
        return


def restart_token(unit: str, *, boot: str, invocation: str) -> str:
    units = cast("Any", _Units(UnitRun(boot=boot, invocation=invocation)))
    restart = Restart(units=units, timer=cast("Any", _Idle()), unit=lambda: unit, within_s=1.0)
    return restart.token(command_id("01j9zq4v7m2c8x5n"), read_args(OPS[op_name("k3s.restart")], {}))


def upgrade_token(root: Path) -> str:
    nothing = cast("Any", None)
    upgrade = Upgrade(layout=Layout(root), installer=nothing, bundles=nothing, web=nothing, folder=root)
    args = {"version": "2.0", "url": "https://x/y", "sha256": "ab" * 32, "signature": "A" * 86}
    return upgrade.token(
        command_id("01j9zq4v7m2c8x5n"), read_args(OPS[op_name("agent.upgrade")], json.loads(json.dumps(args)))
    )


def plugin_document(folder: Path, run: Path) -> dict[str, Any]:
    """Return the status document of a server's plugin that has seen nothing yet."""
    kubeconfig = folder / "plugin-kubeconfig"
    kubeconfig.write_text(render_kubeconfig(server="https://127.0.0.1:1", ca_pem=A_CERTIFICATE, token="t"))  # noqa: S106
    config = PluginConfig.model_validate(
        {
            "version": 1,
            "node_name": "box-1",
            "kubernetes": {"kubeconfig": str(kubeconfig)},
            "extender": {"insecure": True},
            "paths": {"state": str(folder / "state"), "run": str(run)},
            "kubelet": {
                "folder": str(folder / "kubelet"),
                "device_plugins": str(folder / "kubelet" / "device-plugins"),
            },
        }
    )
    return PluginApp(config, TaskGroup(), proc=Path("/proc")).document()


def postgresql_tables() -> str:
    """Return the store's tables as PostgreSQL gets them."""
    made: list[DDLElement] = []
    for table in _schema.TableRow.metadata.sorted_tables:
        made.append(CreateTable(table))
        made += [CreateIndex(index) for index in sorted(table.indexes, key=lambda one: str(one.name))]
    dialect = postgresql.dialect()  # type: ignore[no-untyped-call]
    texts = (str(one.compile(dialect=dialect)) for one in made)
    return "".join(f"{' '.join(text.split())};\n" for text in texts)


def sha256_of(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


COMMAND_LINES = {"edgegpu": edgegpu_app, "edgegpu-cloud": edgegpu_cloud_app}
PARSERS = {"edgegpu-agent": agent_parser, "edgegpu-plugin": plugin_parser, "simulated-driver": simdriver_parser}
ROOT = Path(__file__).resolve().parents[2]
PRODUCT = tuple(ROOT / name for name in ("plugin", "installer", "cloud_sync", "edge_agent"))
"""The folders of the product's packages."""
UNITS, SCRIPTS, EXAMPLES = ROOT / "systemd", ROOT / "installer", ROOT / "docs/examples"
"""What of a version is no Python: units, shell programs, examples."""
KUBEADM_MANIFEST = ROOT / "tests/lab/kubeadm-scheduler.yaml"


def write_agent_yaml(url: str, ca_sha256: str) -> str:
    """Return the agent's configuration with nothing but a cloud, as the installer writes it."""
    return agent_yaml(None, InstallOptions(cloud=url, ca_sha256=ca_sha256)) or ""


def plugin_exit(*words: str) -> int:
    return plugin_run(words, TaskGroup())


def example_messages() -> list[tuple[Any, Any]]:
    """Return one message of each kind that a box tells by itself."""
    return [(kind, message) for kind, message in telemetry() if kind not in {TopicKind.EVENT, TopicKind.METRICS}]


WHOLE = {TopicKind.ALLOC: {"base": None, "gone": ()}}
"""What makes an example that changes an earlier message one that stands alone."""


def an_item_report() -> Any:  # noqa: ANN401  (a model)
    return next(iter(reported(1).items.values()))


def verdict_with_numbers(name: str) -> Settlement:
    """Refuse an app's limits with numbers, and apply the rest."""
    if name.startswith("app_limits/"):
        return Settlement.rejected("NO_ROOM", "needs 4 on one card", an_item_report().numbers)
    return Settlement.applied()


def install_document(folder: Path) -> dict[str, Any]:
    """Return what `edgegpu install --dry-run --json` prints for a server with cards."""
    box = server_box(folder)
    installing = InstallerConsole(say=print, layout=box.layout)
    return dict(_install_document(report_of(box, InstallOptions(nodes=("far",))), installing, show_join=True))


def uninstall_document(folder: Path) -> dict[str, Any]:
    """Return what `edgegpu uninstall --dry-run --json` prints."""
    box = server_box(folder)
    removal = Uninstallation(
        site=site_of(box.facts()), release=release(), machine=machine_of(box), verifier=never
    ).preview()
    return dict(_uninstall_document(removal, InstallerConsole(say=print, layout=box.layout)))


def https_application(folder: Path) -> tuple[Any, Any]:
    """Return a controller that enrols, and the application of its HTTPS with a small bundle."""
    here = office(folder / "cloud", names=["127.0.0.1"])
    release = CloudRelease(make_bundle(folder / "bundle"), "https://cloud.example:8443")
    ca = here.layout.ca_cert("servers").read_text()
    return here, make_app(here.desk, release, ca_pem=ca, clock=here.clock)
