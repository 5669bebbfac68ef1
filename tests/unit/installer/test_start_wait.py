"""Which resolv.conf kubelet gets where it is to wait for the devices, what is written, and what is refused."""

from pathlib import Path
from typing import Any

import pytest
import yaml
from integration.previewkit import report_of, server_box
from kits.facts import FakeBox

from edgegpu_installer.changes import FileChange, Plan
from edgegpu_installer.layout import PLUGIN_YAML, START_LINK
from edgegpu_installer.machine.k3s import PodResolvConf, fits_pods
from edgegpu_installer.plan import start_wait
from edgegpu_installer.plan.plugin_config import resolv_conf
from edgegpu_installer.plan.precheck import Finding, FindingLevel, precheck
from edgegpu_installer.plan.site import InstallOptions, MachineRole, leaving_site_of

DROP_IN = "/etc/rancher/k3s/config.yaml.d/90-edgegpu.yaml"
ETC, RESOLVED = "/etc/resolv.conf", "/run/systemd/resolve/resolv.conf"
LAN, STUB = "nameserver 10.0.0.1\n", "nameserver 127.0.0.53\n"
BY_HAND = "/var/lib/kubelet/resolv.conf"
ON, OFF, UNSAID = (InstallOptions(wait_at_start=asked) for asked in (True, False, None))


@pytest.fixture
def box(tmp_path: Path) -> FakeBox:
    made = server_box(tmp_path / "box")
    made.write(ETC, LAN)
    return made


def plan_of(box: FakeBox, options: InstallOptions) -> Plan:
    """Return the plan without its credentials, as a dry run has it."""
    return report_of(box, options).plan


def files_of(plan: Plan) -> dict[str, FileChange]:
    return {change.path: change for change in plan.files}


def settings(plan: Plan, path: str) -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load(files_of(plan)[path].content or b"")
    return found


def apply(box: FakeBox, plan: Plan) -> None:
    """Put the files of a plan that matter here in place."""
    for change in plan.files:
        if change.path in {PLUGIN_YAML, DROP_IN, START_LINK}:
            target = box.layout.at(change.path)
            target.parent.mkdir(parents=True, exist_ok=True)
            target.unlink(missing_ok=True)
            if change.link_to is not None:
                target.symlink_to(change.link_to)
            elif change.content is not None:
                target.write_bytes(change.content)


def resolv_conf_of(box: FakeBox) -> PodResolvConf:
    k3s = box.facts().k3s
    assert k3s is not None
    return k3s.resolv_conf


def findings(box: FakeBox, options: InstallOptions) -> list[Finding]:
    return [found for found in precheck(box.facts(), options) if "resolv" in found.what or "wait" in found.what]


@pytest.mark.parametrize(
    ("text", "fits"),
    [
        (LAN, True),
        ("search lan\nnameserver 8.8.8.8\nnameserver 2001:db8::1\n", True),
        ("nameserver 169.254.169.254\n", True),
        (STUB, False),
        ("nameserver ::1\n", False),
        ("nameserver 10.0.0.1\nnameserver 127.0.0.1\n", False),
        ("nameserver 224.0.0.1\n", False),
        ("nameserver 169.254.1.1\n", False),
        ("nameserver fe80::1%eth0\n", False),
        ("nameserver dns.lan\n", False),
        (" nameserver 10.0.0.1\n", False),
        ("", False),
    ],
)
def test_k3s_takes_a_file_whose_nameservers_pods_reach(text: str, *, fits: bool) -> None:
    assert fits_pods(text) is fits


@pytest.mark.parametrize(
    ("files", "choice"),
    [
        ({ETC: LAN, RESOLVED: LAN}, ETC),
        ({ETC: STUB, RESOLVED: LAN}, RESOLVED),
        ({ETC: STUB, RESOLVED: STUB}, ""),
    ],
)
def test_the_link_leads_where_k3s_would_have_looked(box: FakeBox, files: dict[str, str], choice: str) -> None:
    for path, text in files.items():
        box.write(path, text)
    assert resolv_conf_of(box).choice == choice
    if choice:
        assert files_of(plan_of(box, ON))[START_LINK].link_to == choice


def test_on_writes_the_link_before_the_line_that_names_it(box: FakeBox) -> None:
    plan = plan_of(box, ON)
    paths = list(files_of(plan))
    assert paths.index(START_LINK) < paths.index(DROP_IN)
    line = settings(plan, DROP_IN)
    assert line["resolv-conf"] == START_LINK
    assert list(line) == ["kube-scheduler-arg+", "resolv-conf"]
    assert settings(plan, PLUGIN_YAML)["kubelet"] == {"resolv_conf": START_LINK}
    assert files_of(plan)[DROP_IN].k3s_reads


def test_what_is_not_said_stays(box: FakeBox) -> None:
    assert START_LINK not in files_of(plan_of(box, UNSAID))
    apply(box, plan_of(box, ON))
    again, asked = files_of(plan_of(box, UNSAID)), files_of(plan_of(box, ON))
    assert {path: again[path] for path in (START_LINK, DROP_IN, PLUGIN_YAML)} == {
        path: asked[path] for path in (START_LINK, DROP_IN, PLUGIN_YAML)
    }
    assert findings(box, UNSAID) == []


def test_the_link_stays_where_no_file_fits_any_more(box: FakeBox) -> None:
    apply(box, plan_of(box, ON))
    box.write(ETC, STUB)
    plan = files_of(plan_of(box, UNSAID))
    assert plan[START_LINK].link_to == ETC
    assert START_LINK.encode() in (plan[DROP_IN].content or b"")


def test_off_takes_the_line_out_before_the_link(box: FakeBox) -> None:
    apply(box, plan_of(box, ON))
    plan = plan_of(box, OFF)
    paths = list(files_of(plan))
    assert paths.index(START_LINK) > paths.index(DROP_IN)
    assert files_of(plan)[START_LINK].absent
    assert "resolv-conf" not in settings(plan, DROP_IN)
    assert "kubelet" not in settings(plan, PLUGIN_YAML)


def test_off_leaves_the_link_where_the_line_stays(box: FakeBox) -> None:
    apply(box, plan_of(box, ON))
    options = InstallOptions(wait_at_start=False, role=MachineRole.AGENT)
    assert START_LINK not in files_of(plan_of(box, options))
    assert "--role server --wait-at-start off" in findings(box, options)[0].remedy


def test_on_ends_a_setting_that_it_would_not_work_with(box: FakeBox) -> None:
    box.write(PLUGIN_YAML, yaml.safe_dump({"kubelet": {"wait_at_start": False, "device_plugins": "/x"}}))
    assert settings(plan_of(box, ON), PLUGIN_YAML)["kubelet"] == {"device_plugins": "/x", "resolv_conf": START_LINK}


def test_an_uninstall_removes_the_link_last_whatever_came_first() -> None:
    kept = f"{START_LINK}.machine"
    changes = tuple(FileChange(path) for path in (kept, START_LINK, DROP_IN, PLUGIN_YAML))
    assert [change.path for change in start_wait.restored(changes)] == [DROP_IN, PLUGIN_YAML, START_LINK, kept]
    assert start_wait.restored(changes[2:]) == changes[2:]


def test_what_was_set_up_by_hand_is_left_alone(box: FakeBox) -> None:
    box.write(PLUGIN_YAML, yaml.safe_dump({"kubelet": {"resolv_conf": BY_HAND}}))
    box.write(f"{DROP_IN.rpartition('/')[0]}/70-edgegpu-start.yaml", f"resolv-conf: {BY_HAND}\n")
    plan = plan_of(box, UNSAID)
    assert START_LINK not in files_of(plan)
    assert settings(plan, PLUGIN_YAML)["kubelet"] == {"resolv_conf": BY_HAND}
    assert findings(box, UNSAID) == []
    for options in (ON, OFF):
        (refused,) = findings(box, options)
        assert (refused.level, BY_HAND in refused.why) == (FindingLevel.REFUSE, True)


@pytest.mark.parametrize(
    ("where", "text"),
    [
        ("/etc/rancher/k3s/config.yaml", "resolv-conf: /etc/his\n"),
        ("/etc/rancher/k3s/config.yaml", "kubelet-arg: [v=2, resolv-conf=/etc/his]\n"),
        ("/etc/rancher/k3s/config.yaml.d/99-his.yaml", "resolv-conf: /etc/his\n"),
        ("/var/lib/rancher/k3s/agent/etc/kubelet.conf.d/50-his.conf", "resolvConf: /etc/his\n"),
        ("/var/lib/rancher/k3s/agent/etc/kubelet.conf.d/20-cli-config-dir/a.conf", "resolvConf: /etc/his\n"),
    ],
)
def test_an_operators_own_is_never_overridden(box: FakeBox, where: str, text: str) -> None:
    box.write(where, text)
    (refused,) = findings(box, ON)
    assert refused.level is FindingLevel.REFUSE
    assert f"{where} gives kubelet /etc/his" in refused.why
    assert findings(box, OFF) == findings(box, UNSAID) == []


def test_an_operators_own_on_the_command_line_and_in_the_environment(box: FakeBox) -> None:
    box.k3s(args="--resolv-conf /etc/his")
    assert "the command line" in findings(box, ON)[0].why
    box.k3s()
    box.write("/etc/systemd/system/k3s.service.env", "K3S_RESOLV_CONF=/etc/his\n")
    assert "K3S_RESOLV_CONF" in findings(box, ON)[0].why


def test_what_k3s_itself_writes_for_kubelet_is_no_operators(box: FakeBox) -> None:
    box.write("/var/lib/rancher/k3s/agent/etc/kubelet.conf.d/00-k3s-defaults.conf", f"resolvConf: {ETC}\n")
    assert findings(box, ON) == []
    apply(box, plan_of(box, ON))
    assert resolv_conf_of(box).operator == ()


def test_an_operators_own_that_came_later_is_named_at_an_upgrade(box: FakeBox) -> None:
    apply(box, plan_of(box, ON))
    box.write("/etc/rancher/k3s/config.yaml", "resolv-conf: /etc/his\n")
    (noted,) = findings(box, UNSAID)
    assert (noted.level, "config.yaml" in noted.what) == (FindingLevel.WARN, True)


def test_refusals_for_the_machine(box: FakeBox) -> None:
    box.write(ETC, STUB)
    assert "8.8.8.8" in findings(box, ON)[0].why
    box.write(ETC, LAN)
    assert "the role is agent" in findings(box, InstallOptions(wait_at_start=True, role=MachineRole.AGENT))[0].why
    extender = InstallOptions(wait_at_start=True, role=MachineRole.EXTENDER_ONLY)
    assert "offers no card" in findings(box, extender)[0].why
    box.k3s(version="v1.20.15+k3s1")
    assert "reads no drop-in" in findings(box, ON)[0].why
    box.k3s("agent")
    refused = findings(box, ON)[0]
    assert "the role is agent" in refused.why
    assert "docs/box/restarts.md" in refused.remedy


def test_kubeadm_is_told_what_to_do_by_hand(tmp_path: Path) -> None:
    box = FakeBox(tmp_path)
    box.gpu()
    box.write("/etc/kubernetes/kubelet.conf", "")
    (refused,) = findings(box, ON)
    assert "kubeadm" in refused.why
    assert "docs/box/restarts.md" in refused.remedy
    assert leaving_site_of(box.facts()).pod_resolv_conf == ""


def test_the_setting_is_read_as_the_plugin_reads_it() -> None:
    assert [resolv_conf(text) for text in (None, "", "kubelet:\n", "kubelet: {resolv_conf: auto}")] == [""] * 4
    assert resolv_conf(f"kubelet: {{resolv_conf: {START_LINK}}}") == START_LINK
