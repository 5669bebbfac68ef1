"""The list of preloaded libraries that each held container has: empty, or filled at a start by what its image needs."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from edgegpu_core.nodeview import NodeView
from edgegpu_core.podview import ContainerImage, PodView
from edgegpu_plugin.config.schema import PreloadPolicy
from edgegpu_plugin.containers.container_folder import preload_list
from edgegpu_plugin.containers.image.image_check import ImageFindings
from edgegpu_plugin.containers.image.verdicts import ImageVerdict, ImageVerdicts
from edgegpu_plugin.containers.limiter_files import PRELOADED_OVER

_WITHOUT = "take its folder out of LD_LIBRARY_PATH and ld.so.conf"
_SETTING = f"{_WITHOUT}, or set isolation.preload to auto in the node's plugin.yaml"
_RESTART = "start it again: the limiter is preloaded then"
_NEW_POD = "delete the pod: the limiter is preloaded into the next one"


@dataclass(frozen=True, slots=True, kw_only=True)
class PreloadLists:
    """What stands in the lists, by the node's setting and what was found of images; pods have no say."""

    policy: PreloadPolicy
    verdicts: ImageVerdicts

    def text(self, view: NodeView, uid: str, containers: Iterable[str]) -> str:
        """Return the list of a container that starts now; where it may be several, it is right for each of them.

        The libraries of the image's own list come behind: of two with one SONAME the first counts.
        """
        found = [one for image in _images(view.pods.get(uid), containers) for one in self._of(view, image)]
        is_needed = self.policy is PreloadPolicy.AUTO and any(one.own_driver for one in found)
        names = [PRELOADED_OVER] if is_needed or self.policy is PreloadPolicy.ON else []
        names += (library for one in found for library in one.own_list)
        return "".join(f"{name}\n" for name in dict.fromkeys(names))

    def keep(self, pod: PodView | None, container: str, findings: ImageFindings, *, used: str = "") -> None:
        """Keep what was found in a running container for the next start of one of its image.

        Args:
            pod: its pod.
            container: its name.
            findings: what its image shows.
            used: the path of a driver of the image's own that a process of it uses past the limiter.
        """
        own_driver = used or (findings.own_driver if findings.can_preload else "")
        if not own_driver and not findings.own_list:
            return
        for image in _images(pod, [container]):
            if image.digest:
                named = (image.reference,) if image.reference else ()
                self.verdicts.put(ImageVerdict(image.digest, named, own_driver, findings.own_list))

    def remedy(self, folders: Sequence[Path], *, can_preload: bool, has_list: bool) -> str:
        """Return what ends that programs of a container load a driver of their image's own.

        Args:
            folders: the container's.
            can_preload: whether the loaders of its image read the list.
            has_list: whether the container has one: pods that were admitted before have none.
        """
        if not can_preload:
            return _WITHOUT
        if has_list and any(PRELOADED_OVER in preload_list(folder) for folder in folders):
            return "it opens that by its path, where no preload helps: use an image without it"
        if self.policy is PreloadPolicy.OFF:
            return _SETTING
        return _RESTART if has_list else _NEW_POD

    def _of(self, view: NodeView, image: ContainerImage) -> tuple[ImageVerdict, ...]:
        """Return the verdicts on what may be a container's image: by the digest of its last run, or in its name.

        Else by all digests that its name has had. The runtime's word would be newer, and costs each start a call to it;
        what it would spare is a preload for one run of an image that has taken another's name.
        """
        digest = image.digest or image.reference.partition("@")[2]
        if digest:
            return self.verdicts.of([digest])
        alike = {one.digest for pod in view.pods.values() for one in pod.images if one.reference == image.reference} - {
            ""
        }
        return self.verdicts.of(alike, image.reference)


def _images(pod: PodView | None, containers: Iterable[str]) -> list[ContainerImage]:
    names = set(containers)
    return [] if pod is None else [image for image in pod.images if image.container in names]
