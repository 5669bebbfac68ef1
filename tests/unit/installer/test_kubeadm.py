"""The scheduler's manifest: ours put in and taken out, and not a byte else."""

import difflib
import json
import re
from pathlib import Path

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from edgegpu_installer.changes import FileChange
from edgegpu_installer.errors import InstallError
from edgegpu_installer.scheduler import kubeadm
from edgegpu_installer.scheduler.manifest import MANIFEST, SCHEDULER_FILE

KUBEADMS = (Path(__file__).resolve().parents[2] / "lab/kubeadm-scheduler.yaml").read_text()
"""As kubeadm 1.33.13 writes it."""
FILE, OTHER = b"kind: KubeSchedulerConfiguration\n", b"kind: another\n"
NAME = kubeadm.volume_name(FILE)


def added(before: str, after: str) -> list[str]:
    """The lines that came in; nothing may have gone."""
    changes = [
        line
        for line in difflib.ndiff(before.splitlines(keepends=True), after.splitlines(keepends=True))
        if line[0] in "+-"
    ]
    assert all(line.startswith("+") for line in changes), changes
    return [line[2:].rstrip("\r\n") for line in changes]


def replaced(old: str, new: str) -> str:
    assert old in KUBEADMS
    return KUBEADMS.replace(old, new)


def test_flag_mount_and_volume_come_in_and_nothing_else_changes() -> None:
    assert added(KUBEADMS, kubeadm.with_file(KUBEADMS, FILE)) == [
        "    - --config=/etc/kubernetes/edgegpu/scheduler.yaml",
        "    - mountPath: /etc/kubernetes/edgegpu/scheduler.yaml",
        f"      name: {NAME}",
        "      readOnly: true",
        "  - hostPath:",
        "      path: /etc/kubernetes/edgegpu/scheduler.yaml",
        "      type: File",
        f"    name: {NAME}",
    ]


def test_twice_is_once_and_another_file_is_another_pod() -> None:
    once = kubeadm.with_file(KUBEADMS, FILE)
    assert kubeadm.with_file(once, FILE) == once
    other = kubeadm.with_file(once, OTHER)
    assert other == once.replace(NAME, kubeadm.volume_name(OTHER)) != once
    assert kubeadm.without_file(other) == KUBEADMS


def test_what_others_changed_since_is_kept() -> None:
    ours = kubeadm.with_file(KUBEADMS, FILE)
    upgraded = ours.replace("v1.33.13", "v1.34.2").replace("    - --leader-elect=true", "    - --v=2  # looked at")
    assert kubeadm.without_file(upgraded) == replaced("v1.33.13", "v1.34.2").replace(
        "    - --leader-elect=true", "    - --v=2  # looked at"
    )


def test_what_is_missing_of_ours_is_put_back() -> None:
    ours = kubeadm.with_file(KUBEADMS, FILE)
    without_flag = ours.replace(f"    - --config={SCHEDULER_FILE}\n", "")
    assert kubeadm.with_file(without_flag, FILE) == ours
    assert kubeadm.without_file(without_flag) == KUBEADMS


def test_the_files_in_the_order_in_which_they_must_come() -> None:
    install = kubeadm.plan_files(KUBEADMS, scheduler_file=FILE)
    assert [(change.path, change.mode) for change in install] == [(SCHEDULER_FILE, 0o600), (MANIFEST, 0o600)]
    assert install[0].content == FILE


def test_an_uninstall_brings_the_old_bytes_back_and_keeps_what_others_did_since() -> None:
    old = (
        FileChange("/etc/other", b"o"),
        FileChange(MANIFEST, KUBEADMS.encode(), mode=0o644),
        FileChange(SCHEDULER_FILE),
    )
    ours = kubeadm.with_file(KUBEADMS, FILE)
    assert kubeadm.restore_files(old, ours) == old
    upgraded = kubeadm.restore_files(old, ours.replace("v1.33", "v1.34"), mode=0o600)
    assert upgraded[1] == FileChange(MANIFEST, replaced("v1.33", "v1.34").encode(), mode=0o600)
    assert (upgraded[0], upgraded[2]) == (old[0], old[2])
    not_ours = kubeadm.restore_files(old, "anything", mode=0o600)
    assert not_ours[1].content == b"anything"
    assert kubeadm.restore_files(old, None) == (old[0], old[2])


def test_what_a_manifest_says() -> None:
    manifest = kubeadm.read(KUBEADMS)
    assert (manifest.namespace, manifest.pod, manifest.container) == ("kube-system", "kube-scheduler", "kube-scheduler")
    assert (manifest.config, manifest.ours) == ("", False)
    assert manifest.healthz == "https://127.0.0.1:10259/healthz"
    assert manifest.kubeconfig == "/etc/kubernetes/scheduler.conf"
    assert kubeadm.read(kubeadm.with_file(KUBEADMS, FILE)).ours


def test_flags_are_read_as_the_scheduler_reads_them() -> None:
    lines = ["--profiling=false", "--contention-profiling", "--kube-api-qps", "80", "--kubeconfig=/elsewhere"]
    text = replaced("    - --leader-elect=true\n", "".join(f'    - "{line}"\n' for line in [*lines, "--secure-port=1"]))
    manifest = kubeadm.read(text.replace("--bind-address=127.0.0.1", "--bind-address=::1"))
    assert (
        manifest.flags.items() >= {"profiling": "false", "contention-profiling": "true", "kube-api-qps": "80"}.items()
    )
    assert (manifest.kubeconfig, manifest.healthz) == ("/elsewhere", "https://[::1]:1/healthz")


@pytest.mark.parametrize("there", ["--config=/etc/kubernetes/mine.yaml", "--config\n    - /etc/kubernetes/mine.yaml"])
def test_another_configuration_stays_before_ours_and_counts_again_without_it(there: str) -> None:
    before = replaced("--leader-elect=true", there)
    ours = kubeadm.with_file(before, FILE)
    assert (kubeadm.read(ours).config, kubeadm.read(ours).other_config) == (SCHEDULER_FILE, "/etc/kubernetes/mine.yaml")
    assert kubeadm.with_file(ours, FILE) == ours
    assert kubeadm.without_file(ours) == before
    assert kubeadm.read(before).config == "/etc/kubernetes/mine.yaml"


def test_another_configuration_after_ours_is_refused_with_the_remedy() -> None:
    ours = kubeadm.with_file(KUBEADMS, FILE)
    later = ours.replace(f"--config={SCHEDULER_FILE}", f"--config={SCHEDULER_FILE}\n    - --config=/etc/mine.yaml")
    with pytest.raises(InstallError, match=r"names /etc/mine\.yaml after it") as caught:
        kubeadm.with_file(later, FILE)
    assert f"take --config={SCHEDULER_FILE} out of" in caught.value.remedy


@pytest.mark.parametrize(
    ("image", "minor"),
    [
        ("registry.k8s.io/kube-scheduler:v1.24.17", 24),
        ("registry:5000/kube-scheduler:v1.37.0@sha256:00", 37),
        ("registry:5000/kube-scheduler:v1.37.0-rc.1", 37),
        ("registry.k8s.io/kube-scheduler@sha256:00", None),
    ],
)
def test_the_schedulers_version_is_that_of_its_image(image: str, minor: int | None) -> None:
    assert kubeadm.read(replaced("registry.k8s.io/kube-scheduler:v1.33.13", image)).minor == minor


def test_a_path_of_the_container_is_found_on_the_machine() -> None:
    mount = "    - mountPath: /etc/kubernetes/scheduler.conf\n"
    text = replaced(mount, f"    - mountPath: /config\n      name: mine\n{mount}")
    text = text.replace("  volumes:\n", "  volumes:\n  - hostPath:\n      path: /srv/scheduler\n    name: mine\n")
    manifest = kubeadm.read(text)
    assert manifest.host_path("/config/a/b.yaml") == "/srv/scheduler/a/b.yaml"
    assert manifest.host_path("/etc/kubernetes/scheduler.conf") == "/etc/kubernetes/scheduler.conf"
    assert manifest.host_path("/etc/other") == "/etc/other"


REFUSED = {
    "no YAML": "command: [",
    "no mapping": "- a\n",
    "two documents": f"{KUBEADMS}---\n{KUBEADMS}",
    "no Pod": replaced("kind: Pod", "kind: Deployment"),
    "no spec": "apiVersion: v1\nkind: Pod\nmetadata: {name: x}\n",
    "no container": replaced("    - kube-scheduler\n", "    - something-else\n"),
    "a shell": replaced("    - kube-scheduler\n", "    - sh\n    - -c\n    - kube-scheduler\n"),
    "no hostNetwork": replaced("  hostNetwork: true\n", ""),
    "not root": replaced("  securityContext:\n", "  securityContext:\n    runAsUser: 65534\n"),
    "no volumes": KUBEADMS[: KUBEADMS.index("  volumes:")],
    "volumes twice": replaced("status: {}", "  volumes:\n  - name: a"),
    "an alias": replaced("    - --leader-elect=true", "    - &flag --leader-elect=true").replace(
        "    image: ", "    args: [*flag]\n    image: "
    ),
    "text as a block": replaced("    - --leader-elect=true", "    - |-\n      --leader-elect=true"),
    "text behind a list": replaced("command:\n    - kube-scheduler", "command:\n    - - kube-scheduler"),
}


@pytest.mark.parametrize("text", REFUSED.values(), ids=REFUSED.keys())
def test_what_is_not_as_kubeadm_writes_it_is_refused_with_the_remedy(text: str) -> None:
    with pytest.raises(InstallError) as caught:
        kubeadm.with_file(text, FILE)
    assert caught.value.message.startswith("cannot ")
    assert caught.value.remedy


LAYOUTS = {
    "kubeadm's": KUBEADMS,
    "JSON": json.dumps(yaml.safe_load(KUBEADMS)),
    "JSON, indented": json.dumps(yaml.safe_load(KUBEADMS), indent=2),
    "flow lists": yaml.safe_dump(yaml.safe_load(KUBEADMS), default_flow_style=None),
    "lists further in": re.sub(r"(?m)^    (- kube|- --)", r"      \1", KUBEADMS),
    "arguments apart": replaced("    - --authentication-kube", "    args:\n    - --authentication-kube"),
    "quoted": replaced("--leader-elect=true", '"--leader-elect=true"'),
    "a second container": replaced("  hostNetwork:", "  - name: proxy\n    image: p\n  hostNetwork:"),
    "a tag": replaced("    volumeMounts:\n", "    volumeMounts: !!seq\n"),
}


@settings(max_examples=20)
@given(
    text=st.sampled_from(list(LAYOUTS.values())),
    comments=st.lists(st.tuples(st.integers(0, 80), st.sampled_from(["# see the runbook", "  # {a: [b", ""]))),
    newline=st.sampled_from(["\n", "\r\n"]),
    end=st.sampled_from(["", "\n", "\n\n"]),
)
def test_taken_out_again_every_byte_is_as_before(
    text: str, comments: list[tuple[int, str]], newline: str, end: str
) -> None:
    lines = text.splitlines()
    for place, comment in comments:
        lines.insert(min(place, len(lines)), comment)
    text = newline.join(lines) + end
    ours = kubeadm.with_file(text, FILE)
    assert kubeadm.with_file(ours, FILE) == ours != text
    assert kubeadm.without_file(ours) == text
    assert kubeadm.without_file(text) == text
    manifest = kubeadm.read(ours)
    assert manifest.ours
    assert manifest.volumes[-1] == NAME
    assert manifest.command[-1] == f"--config={SCHEDULER_FILE}"
