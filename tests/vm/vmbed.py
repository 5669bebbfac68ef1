"""A virtual machine for the installer's tests: `box.bed.Bed` on a kernel of its own, saved while its k3s is Ready."""

from __future__ import annotations

from box.bed import BUNDLE, CARDS, NAME, SIMULATED, WITH_EDGEGPU, WITH_K3S, Bed
from lab.labkit import PROGRAMS, Programs
from lab.labrun import run, wait_until
from lab.vm.accelerator import accelerator
from lab.vm.image import Image, base_image, digest, image_named, remove_others
from lab.vm.machine import Vm, qemu
from vm.vmreads import VmReads

FIRST_BOOT_S = 600
ANSWER_S = 4
"""The installer waits ten seconds for an answer. A machine that goes on has its programs to read again first."""


class VmBed(Bed):
    """The machine and what the tests ask of it."""

    def __init__(self) -> None:
        super().__init__(Vm(NAME))
        self.cluster.reads = VmReads(self.vm)

    @property
    def vm(self) -> Vm:
        """The machine with what it alone can do."""
        assert isinstance(self.machine, Vm)
        return self.machine

    def prepare(self) -> None:
        """Make the image of a machine whose k3s is Ready, where it is not current: it is kept from run to run."""
        self.machine.down()
        base = base_image(CARDS, place=SIMULATED)
        version = run(["qemu-system-x86_64", "--version"]).stdout
        ready = image_named(f"k3s-{digest(base.folder.name, version, qemu(accelerator()))}")
        if not ready.disk.exists():
            self.machine.up(image=base.folder.name)
            self.machine.ready(timeout_s=FIRST_BOOT_S)
            self.save(ready.folder.name)
            remove_others(ready.folder, "k3s-*")
        _name(WITH_K3S, ready)

    def prepare_edgegpu(self) -> None:
        """Make the image of a machine on which the bundle is installed and services run, where it is not current."""
        k3s = image_named(WITH_K3S).folder.resolve()
        installed = image_named(f"edgegpu-{digest(k3s.name, BUNDLE / 'SHA256SUMS')}")
        if not installed.disk.exists():
            self.fresh(WITH_K3S)
            self.line("--yes")
            self.offered()
            self.run_apps()
            self.save(installed.folder.name)
            remove_others(installed.folder, "edgegpu-*")
        _name(WITH_EDGEGPU, installed)

    def save(self, image: str) -> None:
        """Keep the machine as it runs now, with all that runs in it."""
        self.machine.save(image)

    def fresh(self, image: str) -> None:
        """Go on where an image was saved, once the API server answers as quickly as users of it expect."""
        self.machine.down()
        self.machine.up(image=image)
        asks = ("timeout", str(ANSWER_S), "k3s", "kubectl", "get", "--raw", "/readyz")
        wait_until(lambda: self.machine.exec(*asks).stdout == "ok", what="the API server answers", every_s=2)
        if not PROGRAMS:
            PROGRAMS.add(Programs.of_machine(self.machine))
        if self.web is not None:
            self.web.start()


def _name(name: str, image: Image) -> None:
    """Give an image the name by which the tests of boxes know it."""
    link = image_named(name).folder
    link.unlink(missing_ok=True)
    link.symlink_to(image.folder)
