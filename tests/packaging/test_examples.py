"""The examples that the documents tell people to use: they are read by the code that they are for."""

from __future__ import annotations

import base64
import shutil
import ssl
import stat
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from edgegpu_base.kube import KubeObjects
from edgegpu_core.choices.pod_choice import CAPABILITIES_ANNOTATION
from edgegpu_core.model import ResourceModel
from edgegpu_core.placement import PodPlan, plan_pod
from edgegpu_core.podview import pod_view
from edgegpu_plugin.config.schema import PluginConfig, load

EXAMPLES = Path(__file__).resolve().parents[2] / "docs/examples"


def documents(name: str) -> list[dict[str, Any]]:
    return [one for one in yaml.safe_load_all((EXAMPLES / name).read_text()) if one]


def test_the_configuration_holds_every_default() -> None:
    assert load(EXAMPLES / "plugin.yaml") == PluginConfig.model_validate({"version": 1})
    written = yaml.safe_load((EXAMPLES / "plugin.yaml").read_text())
    assert set(PluginConfig.model_fields) - set(written) == {"node_name"}


def test_the_resources_are_those_that_the_scheduler_is_told() -> None:
    (extender,) = documents("scheduler.yaml")[0]["extenders"]
    model = ResourceModel()
    names = {one["name"] for one in extender["managedResources"]}
    assert names == {model.memory_resource, model.core_resource}
    assert not any(one["ignoredByScheduler"] for one in extender["managedResources"])
    assert extender["urlPrefix"] == "https://" + PluginConfig.model_validate({"version": 1}).extender.listen
    assert extender["ignorable"] is False
    assert extender["nodeCacheCapable"] is True


def test_the_drop_in_names_the_scheduler_file() -> None:
    assert documents("k3s-dropin.yaml") == [{"kube-scheduler-arg+": ["config=/etc/edgegpu/scheduler.yaml"]}]


def test_the_apps_can_be_placed() -> None:
    model = ResourceModel()
    for app in documents("apps.yaml"):
        view = pod_view(app["spec"]["template"], model)
        assert view is not None
        assert not view.bad_policy
        assert isinstance(plan_pod(view.containers, model), PodPlan)


IMAGES = yaml.safe_load((EXAMPLES.parents[1] / "tests/e2e/popular_images.yaml").read_text())


def test_every_popular_image_has_a_deployment_that_can_be_placed() -> None:
    model, deployments = ResourceModel(), documents("images.yaml")
    assert [one["metadata"]["name"] for one in deployments] == list(IMAGES)
    for deployment in deployments:
        view = pod_view(deployment["spec"]["template"], model)
        assert view is not None
        assert isinstance(plan_pod(view.containers, model), PodPlan)
        assert deployment["spec"]["strategy"] == {"type": "Recreate"}
        annotations = deployment["spec"]["template"]["metadata"].get("annotations", {})
        wanted = set(annotations.get(CAPABILITIES_ANNOTATION, "").split(",")) & {"video"}
        assert bool(wanted) == bool(IMAGES[deployment["metadata"]["name"]].get("video")), "its annotation, or its data"


def test_no_deployment_of_a_popular_image_asks_past_its_share() -> None:
    for deployment in documents("images.yaml"):
        spec = deployment["spec"]["template"]["spec"]
        (main,) = spec["containers"]
        assert set(main["resources"]["limits"]) == {ResourceModel().memory_resource, ResourceModel().core_resource}
        assert "NVIDIA_VISIBLE_DEVICES" not in {one["name"] for one in main.get("env", [])}
        assert not main.get("securityContext", {}).get("privileged")
        assert not {"runtimeClassName", "hostPID"} & set(spec)


def test_the_page_of_images_has_a_row_for_each() -> None:
    page = (EXAMPLES.parent / "box/images.md").read_text()
    rows = page.partition("## Image by image")[2].partition("\n## ")[0].splitlines()
    assert len([row for row in rows if row.startswith("| ")]) == len(IMAGES) + 1


def rights(role: str) -> set[tuple[str, str]]:
    (found,) = (
        one for one in documents("rbac.yaml") if one["kind"] == "ClusterRole" and one["metadata"]["name"] == role
    )
    return {(what, verb) for rule in found["rules"] for what in rule["resources"] for verb in rule["verbs"]}


def test_an_agent_node_may_not_bind() -> None:
    assert ("pods/binding", "create") not in rights("edgegpu-node")
    bindings = {one["metadata"]["name"]: one for one in documents("rbac.yaml") if one["kind"] == "ClusterRoleBinding"}
    assert [one["name"] for one in bindings["edgegpu-extender"]["subjects"]] == ["edgegpu-server"]


def test_no_right_is_wider_than_its_use() -> None:
    everything = rights("edgegpu-node") | rights("edgegpu-extender")
    assert not any("*" in one for pair in everything for one in pair)
    assert not {what for what, _ in everything} & {"secrets", "configmaps", "roles", "serviceaccounts", "pods/exec"}


@pytest.mark.parametrize(
    ("call", "what", "verb"),
    [
        ("bind_pod", "pods/binding", "create"),
        ("annotate_pod", "pods", "patch"),
        ("evict_pod", "pods/eviction", "create"),
        ("delete_pod", "pods", "delete"),
        ("get_lease", "leases", "get"),
        ("list_budgets", "poddisruptionbudgets", "list"),
        ("annotate_node", "nodes", "patch"),
        ("kubelet_pods", "nodes/proxy", "get"),
        ("create_event", "events", "create"),
        ("patch_event", "events", "patch"),
    ],
)
def test_every_call_has_its_right(call: str, what: str, verb: str) -> None:
    assert hasattr(KubeObjects, call)
    assert (what, verb) in rights("edgegpu-node") | rights("edgegpu-extender")


@pytest.mark.skipif(not shutil.which("openssl"), reason="openssl is not installed")
def test_the_certificates_fit_each_other(tmp_path: Path) -> None:
    subprocess.run([EXAMPLES / "extender-tls.sh", tmp_path], check=True, capture_output=True)
    scheduler = yaml.safe_load((tmp_path / "scheduler.yaml").read_text())
    tls = scheduler["extenders"][0]["tlsConfig"]
    pems = {key: base64.b64decode(tls[key]).decode() for key in ("caData", "certData", "keyData")}
    pair = tmp_path / "client.pem"
    pair.write_text(pems["certData"] + pems["keyData"])
    client = ssl.create_default_context(cadata=pems["caData"])
    client.load_cert_chain(pair)
    server = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=tmp_path / "extender/ca.crt")
    server.verify_mode = ssl.CERT_REQUIRED
    server.load_cert_chain(tmp_path / "extender/server.crt", tmp_path / "extender/server.key")
    handshake(client, server, name=tls["serverName"])


def handshake(client: ssl.SSLContext, server: ssl.SSLContext, *, name: str) -> None:
    """Let both sides talk through memory until each has accepted the other."""
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    ends = [
        client.wrap_bio(to_client, to_server, server_hostname=name),
        server.wrap_bio(to_server, to_client, server_side=True),
    ]
    for _ in range(4):
        for end in ends:
            try:
                end.do_handshake()
            except ssl.SSLWantReadError:
                continue
    assert all(end.getpeercert() for end in ends)


def test_secrets_are_for_root_alone(tmp_path: Path) -> None:
    if not shutil.which("openssl"):
        pytest.skip("openssl is not installed")
    subprocess.run([EXAMPLES / "extender-tls.sh", tmp_path], check=True, capture_output=True)
    for name in ("scheduler.yaml", "extender/server.key"):
        assert stat.S_IMODE((tmp_path / name).stat().st_mode) == 0o600
