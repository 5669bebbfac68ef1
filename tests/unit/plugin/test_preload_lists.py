"""What stands in the lists of preloaded libraries, by setting, by image, and over restarts of the plugin."""

import json
import stat
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from property.cases import box as container
from property.cases import pod_of, slots_of, view_of
from unit.plugin.test_image_loaders import DEBIAN
from unit.plugin.test_isolation import CORE, HELD, MEMORY, Box, library

from edgegpu_core.podview import ContainerImage, PodView
from edgegpu_plugin.config.schema import PreloadPolicy
from edgegpu_plugin.containers.held.preload_lists import PreloadLists
from edgegpu_plugin.containers.image.image_check import ImageFindings
from edgegpu_plugin.containers.image.verdicts import ImageVerdict, ImageVerdicts
from edgegpu_plugin.pb import Allocation

OURS = "/usr/lib64/libcuda.so.1\n"
TAG, DIGEST, OTHER = "repo/app:1", "sha256:aa", "sha256:bb"
OWN = ImageFindings("its image has a driver", own_driver="/compat/libcuda.so.1", can_preload=True)


def pod(uid: str, reference: str = TAG, digest: str = "", names: Iterable[str] = ("main",)) -> PodView:
    images = tuple(ContainerImage(name, reference, digest) for name in names)
    return replace(pod_of(uid, *(container(name, 4, 10) for name in names)), images=images)


def lists(folder: Path, policy: PreloadPolicy = PreloadPolicy.AUTO) -> PreloadLists:
    return PreloadLists(policy=policy, verdicts=ImageVerdicts(folder))


def text(made: PreloadLists, wanted: PodView, *others: PodView, names: Iterable[str] = ("main",)) -> str:
    return made.text(view_of(slots_of(29), wanted, *others), wanted.kubelet_uid, names)


def test_an_image_with_a_driver_of_its_own_gets_the_limiter_from_its_next_start_on(tmp_path: Path) -> None:
    made, first = lists(tmp_path), pod("u")
    assert text(made, first) == ""
    made.keep(pod("u", digest=DIGEST), "main", OWN)
    assert text(made, pod("u", digest=DIGEST)) == OURS, "the same container, started again"
    assert text(lists(tmp_path), pod("next")) == OURS, "another pod, by the tag, after a restart of the plugin"
    assert text(made, pod("pinned", f"other/name@{DIGEST}")) == OURS
    assert text(made, pod("other", "repo/app:2")) == ""
    assert text(made, pod("moved", digest=OTHER)) == "", "the tag has moved on, and its new image has run"
    assert text(made, pod("unknown"), names=["none"]) == ""
    assert made.text(view_of(slots_of(29)), "unread", ["main"]) == "", "a pod of which the API has said nothing"
    file = tmp_path / "images.json"
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    file.write_text("{")
    assert text(lists(tmp_path), pod("next")) == ""


def test_a_tag_counts_by_each_digest_that_runs_under_it(tmp_path: Path) -> None:
    made = lists(tmp_path)
    made.keep(pod("u", "repo/app:old", DIGEST), "main", OWN)
    assert text(made, pod("v", "repo/app:new")) == ""
    assert text(made, pod("v", "repo/app:new"), pod("w", "repo/app:new", DIGEST)) == OURS


@pytest.mark.parametrize(("policy", "before", "after"), [("auto", "", OURS), ("on", OURS, OURS), ("off", "", "")])
def test_the_setting_counts_for_each_container_and_a_pod_has_no_say(
    tmp_path: Path, policy: str, before: str, after: str
) -> None:
    made = lists(tmp_path, PreloadPolicy(policy))
    assert text(made, pod("u")) == before
    made.keep(pod("u", digest=DIGEST), "main", OWN)
    assert text(made, pod("u", digest=DIGEST)) == after


def test_what_is_used_past_the_limiter_counts_as_well_and_what_cannot_be_preloaded_does_not(tmp_path: Path) -> None:
    made = lists(tmp_path)
    made.keep(pod("u", digest=DIGEST), "main", replace(OWN, can_preload=False))
    assert text(made, pod("u", digest=DIGEST)) == ""
    made.keep(pod("u", digest=DIGEST), "main", ImageFindings(), used="/opt/libcuda.so.550")
    assert text(made, pod("u", digest=DIGEST)) == OURS
    (kept,) = made.verdicts.of([DIGEST])
    assert kept.own_driver == "/opt/libcuda.so.550"


@pytest.mark.parametrize("policy", PreloadPolicy)
def test_an_image_s_own_list_survives_behind_the_limiter(tmp_path: Path, policy: PreloadPolicy) -> None:
    made = lists(tmp_path, policy)
    own = ("/usr/lib/libjemalloc.so.2", "libtwo.so")
    made.keep(pod("u", digest=DIGEST), "main", ImageFindings(own_list=own, is_hidden=True))
    first = OURS if policy is PreloadPolicy.ON else ""
    assert text(made, pod("u", digest=DIGEST)) == f"{first}/usr/lib/libjemalloc.so.2\nlibtwo.so\n"
    made.keep(pod("u", digest=DIGEST), "main", OWN)
    first = "" if policy is PreloadPolicy.OFF else OURS
    assert text(made, pod("u", digest=DIGEST)) == f"{first}/usr/lib/libjemalloc.so.2\nlibtwo.so\n"


def test_the_store_is_bounded_and_the_earliest_go(tmp_path: Path) -> None:
    verdicts = ImageVerdicts(tmp_path)
    for number in range(300):
        verdicts.put(ImageVerdict(f"sha256:{number}", (f"app:{number}",), "/x"))
    assert verdicts.of(["sha256:43"]) == ()
    assert len(verdicts.of(["sha256:44"])) == 1
    for number in range(40):
        verdicts.put(ImageVerdict("sha256:299", (f"tag:{number}",), "/x"))
    assert len(json.loads((tmp_path / "images.json").read_text())["images"]) == 256
    (kept,) = verdicts.of(["sha256:299"])
    assert (len(kept.references), kept.references[-1]) == (16, "tag:39")


def test_a_store_that_cannot_be_written_says_so_once_and_counts_all_the_same(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    folder = tmp_path / "state"
    folder.touch()
    made = lists(folder)
    for _ in range(3):
        made.keep(pod("u", digest=DIGEST), "main", OWN)
    assert [one.message.partition(": ")[0] for one in caplog.records if "keep" in one.message] == [
        "cannot keep what was found of an image over a restart"
    ]
    assert text(made, pod("u", digest=DIGEST)) == OURS
    folder.unlink()
    made.keep(pod("u", digest=DIGEST), "main", OWN)
    assert text(lists(folder), pod("u", digest=DIGEST)) == OURS


_DIGESTS = st.sampled_from(["", "sha256:1", "sha256:2"])
_PODS = st.lists(st.tuples(st.sampled_from(["a:1", "b:1"]), _DIGESTS, st.booleans()), min_size=1, max_size=6)


@given(_PODS, st.sampled_from(PreloadPolicy))
def test_an_image_that_was_seen_with_its_own_driver_is_never_started_without_the_limiter(
    tmp_path_factory: pytest.TempPathFactory, pods: list[tuple[str, str, bool]], policy: PreloadPolicy
) -> None:
    """Whatever order things are seen in: with `off` no list names it, with `on` each does."""
    made = lists(tmp_path_factory.mktemp("state"), policy)
    seen: set[str] = set()
    running: list[PodView] = []
    for number, (reference, digest, has_driver) in enumerate(pods):
        started = pod(f"u{number}", reference, digest)
        running.append(started)
        if has_driver and digest:
            made.keep(started, "main", OWN)
            seen.add(digest)
        for one in running:
            is_listed = text(made, one, *running) == OURS
            if policy is not PreloadPolicy.AUTO:
                assert is_listed == (policy is PreloadPolicy.ON)
            elif one.images[0].digest:
                assert is_listed == (one.images[0].digest in seen)
            else:
                alike = {
                    other.images[0].digest for other in running if other.images[0].reference == one.images[0].reference
                }
                assert not (alike & seen) or is_listed


def test_a_container_s_folder_has_its_list_at_each_start_and_one_of_before_needs_a_new_pod(box: Box) -> None:
    box.state.replace_pods([pod("u", digest=DIGEST)])
    box.book("u", MEMORY, CORE)
    box.limiter.prepare("u", "main")
    (folder,) = (box.run / "containers").iterdir()
    assert (folder / "ld.so.preload").read_bytes() == b""
    assert stat.S_IMODE((folder / "ld.so.preload").stat().st_mode) == 0o644, "other users of a container read it"
    ImageVerdicts(box.run).put(ImageVerdict(DIGEST, (), "/compat/libcuda.so.1"))
    box.limiter = box.isolation()
    box.limiter.prepare("u", "main")
    assert (folder / "ld.so.preload").read_text() == OURS


def test_a_container_starts_again_after_a_version_that_makes_no_list(box: Box) -> None:
    """containerd makes an empty folder where a mount's source is missing; the older version's start had one."""
    box.state.replace_pods([pod("u", digest=DIGEST)])
    box.book("u", MEMORY, CORE)
    box.limiter.prepare("u", "main")
    (folder,) = (box.run / "containers").iterdir()
    (folder / "ld.so.preload").unlink()
    (folder / "ld.so.preload").mkdir()
    box.limiter.prepare("u", "main")
    assert (folder / "ld.so.preload").read_bytes() == b""


def test_a_pod_of_before_has_no_list_and_its_reason_asks_for_a_new_one(box: Box) -> None:
    box.state.replace_pods([pod("u", digest=DIGEST)])
    answer = box.limiter.add_to(Allocation(), MEMORY, HELD)
    old = replace(answer, mounts=[one for one in answer.mounts if one.container_path != "/etc/ld.so.preload"])
    image = box.run.parent / "proc/4711"
    (image / "root/lib64").mkdir(parents=True)
    (image / "root/lib64/ld-linux-x86-64.so.2").write_bytes(DEBIAN)
    (image / "root/compat").mkdir()
    (image / "root/compat/libcuda.so.1").write_bytes(library("libcuda.so.1", folder="/elsewhere"))
    (image / "cgroup").write_text(f"0::/kubepods/podu/{'ab' * 32}\n")
    (image / "exe").symlink_to("/bin/true")
    (image / "environ").write_bytes(b"LD_LIBRARY_PATH=/compat\0")
    box.book("u", MEMORY, limited=False, mounts=old.mounts, annotations=old.annotations)
    box.state.replace_pods([replace(pod("u", digest=DIGEST), running=(("main", "ab" * 32),))])
    box.limiter.prepare("u", "main")
    box.limiter.look_at_images(box.state.snapshot())
    told = box.state_of()
    assert getattr(told, "state", "") == "degraded"
    assert "/compat/libcuda.so.1, which programs there load" in getattr(told, "reason", "")
    assert "delete the pod: the limiter is preloaded into the next one" in getattr(told, "reason", "")
    (kept,) = ImageVerdicts(box.run).of([DIGEST])
    assert kept.own_driver == "/compat/libcuda.so.1"


def test_what_ends_it_is_named(tmp_path: Path) -> None:
    folder = tmp_path / "folder"
    folder.mkdir()
    made = lists(tmp_path)

    def remedy(made: PreloadLists, *, can_preload: bool = True, has_list: bool = True) -> str:
        return made.remedy([folder], can_preload=can_preload, has_list=has_list)

    assert remedy(made) == "start it again: the limiter is preloaded then"
    assert remedy(made, has_list=False).startswith("delete the pod")
    assert remedy(made, can_preload=False) == "take its folder out of LD_LIBRARY_PATH and ld.so.conf"
    assert remedy(lists(tmp_path, PreloadPolicy.OFF)).endswith(
        "set isolation.preload to auto in the node's plugin.yaml"
    )
    (folder / "ld.so.preload").write_text(OURS)
    assert "by its path" in remedy(made)
    assert "by its path" not in remedy(made, has_list=False)


@pytest.fixture
def box(tmp_path: Path) -> Box:
    return Box(tmp_path)
