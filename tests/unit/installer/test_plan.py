from datetime import UTC, datetime
from pathlib import Path

import pytest
import yaml
from kits.facts import FakeBox
from kits.scheduler import KUBECONFIG

from edgegpu_installer.changes import FileChange, Plan
from edgegpu_installer.cluster.rbac import ClusterRights
from edgegpu_installer.errors import InstallError
from edgegpu_installer.layout import PLUGIN_YAML, WANTS
from edgegpu_installer.machine.k3s_config import SCHEDULER_ARG, CommandLine, ConfigFile, effective
from edgegpu_installer.plan import certificates, shared_config
from edgegpu_installer.plan.certificates import Certificates
from edgegpu_installer.plan.plan import plan_install
from edgegpu_installer.plan.release import Recovery, Release
from edgegpu_installer.plan.site import InstallOptions, PlanCredentials, leaving_site_of, site_of
from edgegpu_installer.scheduler.file import validate

MADE = certificates.make(datetime(2026, 1, 1, tzinfo=UTC))
CREDENTIALS = "/var/lib/rancher/k3s/server/cred/scheduler.kubeconfig"
SCHEDULER, DROP_IN = "/etc/rancher/k3s/edgegpu-scheduler.yaml", "/etc/rancher/k3s/config.yaml.d/90-edgegpu.yaml"


KUBEADM = (Path(__file__).resolve().parents[2] / "lab/kubeadm-scheduler.yaml").read_text()
MANIFEST, KUBEADMS = "/etc/kubernetes/manifests/kube-scheduler.yaml", "/etc/kubernetes/edgegpu/scheduler.yaml"


@pytest.fixture
def box(tmp_path: Path) -> FakeBox:
    made = FakeBox(tmp_path)
    made.write(CREDENTIALS, yaml.safe_dump(KUBECONFIG))
    return made


def plan_of(box: FakeBox, made: Certificates | None = MADE, *, options: InstallOptions | None = None) -> Plan:
    release = Release(
        version="1.2.3",
        folder=Path("/opt/edgegpu/1.2.3"),
        plugin_unit=b"plugin",
        selftest_unit=b"selftest",
        agent_unit=b"agent",
        mps_unit=b"mps",
        farewell=b"",
        farewell_unit=b"",
        rights=ClusterRights((), "edgegpu"),
        recovery=Recovery.of_version(Path("/opt/edgegpu/1.2.3")),
    )
    kubeconfig = FileChange("/etc/edgegpu/kubeconfig", b"k", 0o600)
    return plan_install(
        site_of(box.facts()),
        options or InstallOptions(),
        release=release,
        material=PlanCredentials(kubeconfig=kubeconfig, certificates=made),
        read_file=box.layout.read,
    )


def files_of(plan: Plan) -> dict[str, FileChange]:
    return {change.path: change for change in plan.files}


def text_of(plan: Plan, path: str) -> str:
    return (files_of(plan)[path].content or b"").decode()


def test_the_prompt_is_told_how_many_cards_there_are(box: FakeBox) -> None:
    box.k3s()
    assert site_of(box.facts()).cards == 0
    box.gpu("GPU-a", number=0)
    box.gpu("GPU-b", number=1)
    assert site_of(box.facts()).cards == 2


def test_mps_gets_its_unit_and_is_neither_started_nor_stopped(box: FakeBox) -> None:
    """The plugin's unit wants it; a restart would end the CUDA programs of its clients."""
    box.k3s()
    plan = plan_of(box)
    paths = files_of(plan)
    assert paths["/etc/systemd/system/edgegpu-mps.service"].content == b"mps"
    assert not any("edgegpu-mps" in path for path in paths if path.startswith(WANTS))
    assert not [unit for unit in (*plan.start, *plan.stop) if "mps" in unit]


def test_a_server_with_cards_gets_everything_and_one_restart(box: FakeBox) -> None:
    box.k3s()
    box.gpu()
    plan = plan_of(box)
    files = files_of(plan)
    assert plan.restart == "k3s"
    assert [path for path, change in files.items() if change.k3s_reads] == [SCHEDULER, DROP_IN]
    assert {files[path].mode for path in (SCHEDULER, "/etc/edgegpu/extender/server.key")} == {0o600}
    assert validate(text_of(plan, SCHEDULER), read_file=box.layout.read) == []
    assert yaml.safe_load(text_of(plan, DROP_IN)) == {"kube-scheduler-arg+": [f"config={SCHEDULER}"]}
    assert yaml.safe_load(text_of(plan, "/etc/edgegpu/plugin.yaml"))["role"] == "server"
    assert files["/etc/systemd/system/k3s.service.d/50-edgegpu.conf"].early


def test_folders_come_before_what_is_in_them(box: FakeBox) -> None:
    box.k3s()
    box.gpu()
    plan = plan_of(box)
    parents = {path.rpartition("/")[0] for path in files_of(plan)}
    there = {"/etc/systemd/system", "/usr/local/bin", "/etc/systemd/system/multi-user.target.wants", "/etc/rancher/k3s"}
    assert parents - there <= set(plan.folders)


def test_the_same_box_gives_the_same_plan(box: FakeBox) -> None:
    box.k3s()
    box.gpu()
    assert plan_of(box) == plan_of(box)


def test_roles(box: FakeBox) -> None:
    box.k3s()
    assert yaml.safe_load(text_of(plan_of(box), "/etc/edgegpu/plugin.yaml"))["role"] == "extender-only"
    box.gpu()
    box.k3s("agent", unit="k3s")
    assert SCHEDULER not in files_of(plan_of(box))


@pytest.mark.parametrize(
    ("version", "api"),
    [
        ("v1.20.15+k3s1", "v1beta1"),
        ("v1.21.14+k3s1", "v1beta1"),
        ("v1.22.17+k3s1", "v1beta2"),
        ("v1.23.17+k3s1", "v1beta3"),
        ("v1.24.17+k3s1", "v1beta3"),
        ("v1.25.16+k3s4", "v1"),
        ("v1.33.13+k3s1", "v1"),
    ],
)
def test_the_schedulers_file_is_of_its_age(box: FakeBox, version: str, api: str) -> None:
    box.gpu()
    box.k3s(version=version)
    plan = plan_of(box)
    assert yaml.safe_load(text_of(plan, "/etc/edgegpu/plugin.yaml"))["role"] == "server"
    assert yaml.safe_load(text_of(plan, SCHEDULER))["apiVersion"] == f"kubescheduler.config.k8s.io/{api}"


def test_a_server_without_a_kubelet_gets_the_extender_alone(box: FakeBox) -> None:
    box.k3s(args="--disable-agent")
    box.gpu()
    plan = plan_of(box)
    assert yaml.safe_load(text_of(plan, "/etc/edgegpu/plugin.yaml"))["role"] == "extender-only"
    assert SCHEDULER in files_of(plan)


def test_another_unit_and_folder_are_used(box: FakeBox) -> None:
    box.k3s(unit="edge", args="--config /srv/k.yaml --data-dir /data")
    (box.root / "data").mkdir()
    box.write("/data/server/cred/scheduler.kubeconfig", yaml.safe_dump(KUBECONFIG))
    plan = plan_of(box)
    files = files_of(plan)
    assert plan.restart == "edge"
    assert {"/srv/edgegpu-scheduler.yaml", "/srv/k.yaml.d/90-edgegpu.yaml"} <= files.keys()
    assert "/etc/systemd/system/edge.service.d/50-edgegpu.conf" in files
    assert "/data/server/cred" in text_of(plan, "/srv/edgegpu-scheduler.yaml")


def test_a_scheduler_configuration_that_is_there_is_kept_and_ours_is_the_only_one_named(box: FakeBox) -> None:
    main = 'kube-scheduler-arg: ["v=2", "config=/etc/mine.yaml", "it\'s=odd"]\n'
    box.k3s(config=main)
    mine = {"apiVersion": "kubescheduler.config.k8s.io/v1", "kind": "KubeSchedulerConfiguration", "parallelism": 3}
    box.write("/etc/mine.yaml", yaml.safe_dump(mine | {"clientConnection": {"kubeconfig": CREDENTIALS}}))
    plan = plan_of(box)
    assert yaml.safe_load(text_of(plan, SCHEDULER))["parallelism"] == 3
    files = [ConfigFile("/etc/rancher/k3s/config.yaml", main), ConfigFile(DROP_IN, text_of(plan, DROP_IN))]
    arguments = effective(CommandLine("server"), {}, files).values(SCHEDULER_ARG)
    assert [value.text for value in arguments] == ["v=2", "it's=odd", f"config={SCHEDULER}"]
    box.write(DROP_IN, text_of(plan, DROP_IN))
    box.write(SCHEDULER, text_of(plan, SCHEDULER))
    assert plan_of(box) == plan


def test_the_scheduler_calls_the_extender_where_plugin_yaml_has_it_and_for_its_resources(box: FakeBox) -> None:
    box.k3s()
    settings = {"resources": {"memory": "example.com/memory", "core": "example.com/core"}}
    box.write("/etc/edgegpu/plugin.yaml", yaml.safe_dump(settings | {"extender": {"listen": "127.0.0.1:9999"}}))
    (extender,) = yaml.safe_load(text_of(plan_of(box), SCHEDULER))["extenders"]
    assert extender["urlPrefix"] == "https://127.0.0.1:9999"
    assert [one["name"] for one in extender["managedResources"]] == ["example.com/memory", "example.com/core"]


def test_what_a_scheduler_would_end_about_is_never_planned(box: FakeBox) -> None:
    box.k3s()
    box.layout.at(CREDENTIALS).unlink()
    with pytest.raises(InstallError, match=r"clientConnection.kubeconfig: .* cannot be read"):
        plan_of(box)


def test_without_certificates_there_is_no_extender(box: FakeBox) -> None:
    box.k3s()
    with pytest.raises(InstallError, match="without certificates"):
        plan_of(box, made=None)


def test_flags_that_our_file_silences_stand_in_it(box: FakeBox) -> None:
    box.k3s()
    assert yaml.safe_load(text_of(plan_of(box), SCHEDULER))["enableProfiling"] is False, "k3s's own --profiling=false"
    box.k3s(config='kube-scheduler-arg: ["--profiling", "kube-api-qps=80", "v=2"]\n')
    plan = plan_of(box)
    document = yaml.safe_load(text_of(plan, SCHEDULER))
    assert document["enableProfiling"] is True
    assert document["clientConnection"] == {"kubeconfig": CREDENTIALS, "qps": 80.0}
    box.write(DROP_IN, text_of(plan, DROP_IN))
    assert plan_of(box) == plan


def test_a_control_plane_of_kubeadms_gets_the_manifest_with_its_own_mode_flags_and_kubeconfig(box: FakeBox) -> None:
    text = KUBEADM.replace("--leader-elect=true", "--profiling=false").replace(
        "--kubeconfig=/etc/kubernetes/scheduler.conf", "--kubeconfig=/etc/kubernetes/other.conf"
    )
    box.write(MANIFEST, text).chmod(0o640)
    box.write("/etc/kubernetes/other.conf", yaml.safe_dump(KUBECONFIG))
    plan = plan_of(box)
    files = files_of(plan)
    document = yaml.safe_load(text_of(plan, KUBEADMS))
    assert document["clientConnection"] == {"kubeconfig": "/etc/kubernetes/other.conf"}
    assert document["enableProfiling"] is False
    assert (files[MANIFEST].mode, files[KUBEADMS].mode) == (0o640, 0o600)
    assert list(files).index(KUBEADMS) < list(files).index(MANIFEST)
    assert f"--config={KUBEADMS}" in text_of(plan, MANIFEST)
    assert (plan.restart, [change for change in plan.files if change.k3s_reads]) == (None, [])
    assert "/etc/kubernetes/edgegpu" in plan.folders


def test_the_file_of_kubeadms_scheduler_is_of_the_version_that_it_takes(box: FakeBox) -> None:
    box.write(MANIFEST, KUBEADM.replace("v1.33.13", "v1.24.17"))
    box.write("/etc/kubernetes/scheduler.conf", yaml.safe_dump(KUBECONFIG))
    assert yaml.safe_load(text_of(plan_of(box), KUBEADMS))["apiVersion"] == "kubescheduler.config.k8s.io/v1beta3"


def test_the_configuration_that_kubespray_gave_kubeadms_scheduler_is_kept(box: FakeBox) -> None:
    """It is read where the manifest's mount has it, and says itself who leads."""
    mount = "    - mountPath: /etc/kubernetes/scheduler.conf\n"
    text = KUBEADM.replace(mount, f"    - mountPath: /config\n      name: mine\n{mount}")
    text = text.replace("  volumes:\n", "  volumes:\n  - hostPath:\n      path: /srv/scheduler\n    name: mine\n")
    text = text.replace("    - --kubeconfig=", "    - --config=/config/mine.yaml\n    - --kubeconfig=")
    elects = {"leaderElect": True, "leaseDuration": "20s"}
    mine = {
        "apiVersion": "kubescheduler.config.k8s.io/v1",
        "kind": "KubeSchedulerConfiguration",
        "clientConnection": {"kubeconfig": "/etc/kubernetes/scheduler.conf"},
        "leaderElection": elects,
        "profiles": [{"schedulerName": "default-scheduler"}],
    }
    box.write(MANIFEST, text)
    box.write("/srv/scheduler/mine.yaml", yaml.safe_dump(mine))
    box.write("/etc/kubernetes/scheduler.conf", yaml.safe_dump(KUBECONFIG))
    plan = plan_of(box)
    document = yaml.safe_load(text_of(plan, KUBEADMS))
    assert (document["leaderElection"], document["profiles"]) == (elects, mine["profiles"])
    assert len(document["extenders"]) == 1
    words = yaml.safe_load(text_of(plan, MANIFEST))["spec"]["containers"][0]["command"]
    assert [word for word in words if "--config" in word] == ["--config=/config/mine.yaml", f"--config={KUBEADMS}"]
    box.write(MANIFEST, text_of(plan, MANIFEST))
    box.write(KUBEADMS, text_of(plan, KUBEADMS))
    assert plan_of(box) == plan


def test_the_root_that_k3s_gives_its_kubelet_is_the_plugins_too(box: FakeBox) -> None:
    box.k3s()
    assert "kubelet" not in yaml.safe_load(text_of(plan_of(box), PLUGIN_YAML))
    box.k3s(args="--kubelet-arg=root-dir=/data/kubelet")
    assert yaml.safe_load(text_of(plan_of(box), PLUGIN_YAML))["kubelet"] == {"folder": "/data/kubelet"}


def test_the_configuration_that_containerd_reads_is_named_where_the_plugin_would_not_find_it(box: FakeBox) -> None:
    box.k3s()
    assert "containerd_config" not in text_of(plan_of(box), "/etc/edgegpu/plugin.yaml")
    box.k3s(config="data-dir: /data\n")
    (box.root / "data").mkdir()
    box.write("/data/server/cred/scheduler.kubeconfig", yaml.safe_dump(KUBECONFIG))
    path = "/data/agent/etc/containerd/config.toml"
    assert yaml.safe_load(text_of(plan_of(box), "/etc/edgegpu/plugin.yaml"))["driver"] == {"containerd_config": path}
    box.write("/etc/edgegpu/plugin.yaml", "version: 1\ndriver: {containerd_config: /mine.toml}\n")
    box.write("/mine.toml", "")
    assert yaml.safe_load(text_of(plan_of(box), "/etc/edgegpu/plugin.yaml"))["driver"] == {
        "containerd_config": "/mine.toml"
    }


def test_a_configuration_of_containerds_that_is_gone_is_named_no_longer(box: FakeBox) -> None:
    path = "/data/agent/etc/containerd/config.toml"
    box.k3s()
    box.write(PLUGIN_YAML, "version: 1\ndriver: {containerd_config: /old/config.toml, poll_s: 2}\n")
    assert yaml.safe_load(text_of(plan_of(box), PLUGIN_YAML))["driver"] == {"poll_s": 2}
    box.k3s(config="data-dir: /data\n")
    box.write("/data/server/cred/scheduler.kubeconfig", yaml.safe_dump(KUBECONFIG))
    box.write(PLUGIN_YAML, "version: 1\ndriver: {containerd_config: /old/config.toml}\n")
    assert yaml.safe_load(text_of(plan_of(box), PLUGIN_YAML))["driver"] == {"containerd_config": path}
    box.write(PLUGIN_YAML, "version: 1\ndriver: {containerd_config: auto}\n")
    assert yaml.safe_load(text_of(plan_of(box), PLUGIN_YAML))["driver"] == {"containerd_config": "auto"}


@pytest.mark.parametrize("command", ["/usr/local/bin/k0s worker", "/usr/local/bin/rke2 server"])
def test_a_machine_is_left_where_another_kubernetes_has_come_in_k3ss_place(box: FakeBox, command: str) -> None:
    box.write("/etc/systemd/system/other.service", f"[Service]\nExecStart={command}\n")
    assert leaving_site_of(box.facts()).is_removed
    with pytest.raises(InstallError, match="cannot install here"):
        site_of(box.facts())


def test_a_manifest_that_is_no_text_is_refused(box: FakeBox) -> None:
    box.write(MANIFEST, "").write_bytes(b"\xff\xfe")
    with pytest.raises(InstallError, match="it is not text"):
        plan_of(box)


def test_a_proxys_password_is_for_root_alone(box: FakeBox) -> None:
    box.k3s()

    def mode(proxy: str) -> int:
        options = InstallOptions(cloud="https://cloud.example.com", proxy=proxy)
        return files_of(plan_of(box, options=options))["/etc/edgegpu/agent.yaml"].mode

    assert [mode("http://ann:secret@proxy:3128"), mode("http://proxy:3128")] == [0o600, 0o644]


CONFIG, OLD = "/etc/rancher/k3s/config.yaml", "v1.20.15+k3s1"


def carried_out(box: FakeBox, plan: Plan) -> None:
    """Put what k3s reads in place."""
    for change in plan.files:
        if change.k3s_reads and change.content is not None:
            box.write(change.path, "").write_bytes(change.content)
        elif change.k3s_reads:
            box.layout.at(change.path).unlink(missing_ok=True)


def taken_off(box: FakeBox, before: FileChange) -> FileChange:
    """What an uninstall makes of the configuration file."""
    (change,) = shared_config.restore([before], box.layout)
    return change


@pytest.mark.parametrize("version", [OLD, "v1.20.0+k3s2", "v1.21.0+k3s1"])
def test_an_old_server_is_told_of_the_file_in_its_own_configuration(box: FakeBox, version: str) -> None:
    box.gpu()
    box.k3s(version=version, config="token: x\r\n")
    box.layout.at(CONFIG).chmod(0o640)
    plan = plan_of(box)
    files = files_of(plan)
    assert yaml.safe_load(text_of(plan, "/etc/edgegpu/plugin.yaml"))["role"] == "server"
    assert yaml.safe_load(text_of(plan, SCHEDULER))["apiVersion"] == "kubescheduler.config.k8s.io/v1beta1"
    assert yaml.safe_load(text_of(plan, CONFIG)) == {"token": "x", "kube-scheduler-arg": [f"config={SCHEDULER}"]}
    assert text_of(plan, CONFIG).startswith("token: x\r\n")
    assert (files[CONFIG].k3s_reads, files[CONFIG].mode, files[DROP_IN].absent) == (True, 0o640, True)
    assert "/etc/rancher/k3s/config.yaml.d" not in plan.folders
    carried_out(box, plan)
    assert files_of(plan_of(box)) == files, "a second run changes nothing"


def test_the_configuration_of_an_old_server_comes_back_to_the_byte(box: FakeBox) -> None:
    box.k3s(version=OLD, config="token: x # mine")
    before = FileChange(CONFIG, b"token: x # mine", mode=0o600, k3s_reads=True)
    carried_out(box, plan_of(box))
    assert taken_off(box, before) == before
    with box.layout.at(CONFIG).open("a") as file:
        file.write("debug: true\n")
    kept = taken_off(box, before)
    assert (kept.content, kept.mode) == (b"token: x # mine\ndebug: true\n", 0o644)
    box.layout.at(CONFIG).unlink()
    assert shared_config.restore([before], box.layout) == ()


def test_a_configuration_that_was_not_there_goes_again(box: FakeBox) -> None:
    box.k3s(version=OLD)
    before = FileChange(CONFIG, k3s_reads=True)
    plan = plan_of(box)
    assert files_of(plan)[CONFIG].mode == 0o644
    carried_out(box, plan)
    assert taken_off(box, before) == before
    with box.layout.at(CONFIG).open("a") as file:
        file.write("debug: true\n")
    assert taken_off(box, before).content == b"debug: true\n"


def test_a_configuration_behind_a_link_is_changed_where_it_lies(box: FakeBox) -> None:
    box.k3s(version=OLD)
    box.write("/srv/site/k3s.yaml", "token: x\n")
    box.layout.at("/etc/rancher/k3s").mkdir(parents=True, exist_ok=True)
    box.layout.at(CONFIG).symlink_to("../../../srv/site/k3s.yaml")
    plan = plan_of(box)
    assert "kube-scheduler-arg" in text_of(plan, "/srv/site/k3s.yaml")
    assert CONFIG not in files_of(plan)
    box.layout.at(CONFIG).unlink()
    box.layout.at(CONFIG).symlink_to("/srv/a b.yaml")
    with pytest.raises(InstallError, match="plain characters"):
        plan_of(box)


def test_a_k3s_that_was_upgraded_gets_the_drop_in_in_place_of_the_lines(box: FakeBox) -> None:
    box.k3s(version=OLD, config="kube-scheduler-arg:\n  - v=2\n")
    carried_out(box, plan_of(box))
    box.k3s(version="v1.22.17+k3s1")
    assert box.facts().k3s.effective().values(SCHEDULER_ARG)[-1].text == f"config={SCHEDULER}"  # type: ignore[union-attr]
    plan = plan_of(box)
    assert text_of(plan, CONFIG) == "kube-scheduler-arg:\n  - v=2\n"
    assert yaml.safe_load(text_of(plan, DROP_IN)) == {"kube-scheduler-arg+": [f"config={SCHEDULER}"]}
    carried_out(box, plan)
    again = plan_of(box)
    assert CONFIG not in files_of(again)
    arguments = box.facts().k3s.effective().values(SCHEDULER_ARG)  # type: ignore[union-attr]
    assert [value.text for value in arguments] == ["v=2", f"config={SCHEDULER}"]
    box.k3s(version=OLD)
    back = plan_of(box)
    assert files_of(back)[DROP_IN].absent
    assert "BEGIN edgegpu" in text_of(back, CONFIG)


def test_an_old_k3s_reads_no_drop_ins(box: FakeBox) -> None:
    box.k3s(version=OLD)
    box.write(f"{CONFIG}.d/10-x.yaml", "data-dir: /data\n")
    assert box.facts().k3s.data == "/var/lib/rancher/k3s"  # type: ignore[union-attr]
    box.k3s(version="v1.21.0+k3s1")
    assert box.facts().k3s.data == "/data"  # type: ignore[union-attr]


def test_isolation_is_written_when_it_is_asked_for_the_default_too(box: FakeBox) -> None:
    box.k3s()
    box.gpu()

    def isolation() -> object:
        text = files_of(plan_of(box, options=options))[PLUGIN_YAML].content
        return yaml.safe_load(text or b"").get("isolation")

    options = InstallOptions()
    assert isolation() is None
    options = InstallOptions(isolation="none")
    assert isolation() == {"mode": "none"}
    box.write(PLUGIN_YAML, "version: 1\nnode_name: box\nisolation: {mode: limiter, context_mib: 300}\n")
    options = InstallOptions()
    assert isolation() == {"mode": "limiter", "context_mib": 300}, "what a person has set stays"
    options = InstallOptions(isolation="none")
    assert isolation() == {"mode": "none", "context_mib": 300}
    box.write(PLUGIN_YAML, "version: 1\nnode_name: box\nisolation: {mode: none}\n")
    options = InstallOptions(isolation="limiter")
    assert isolation() == {"mode": "limiter"}, "a later version may have another default"
