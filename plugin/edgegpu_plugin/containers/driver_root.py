"""Where things are below a driver's root: library folders, and the driver's table of MIG capabilities."""

from pathlib import Path

LIBRARY_FOLDERS = (
    "usr/lib/x86_64-linux-gnu",
    "usr/lib/aarch64-linux-gnu",
    "usr/lib64",
    "usr/lib",
    "usr/lib/x86_64-linux-gnu/nvidia/current",
    "usr/lib/aarch64-linux-gnu/nvidia/current",
)
"""Where distributions put the driver's libraries."""


def mig_caps(root: Path, minor: int, gi: int, ci: int) -> tuple[int, ...]:
    """Return the minor numbers of the capability devices that open a MIG device: its GPU and its compute instance.

    Args:
        root: the driver's root.
        minor: of the GPU's device node.
        gi: NVML's id of the GPU instance.
        ci: NVML's id of the compute instance in it.
    """
    wanted = (f"gpu{minor}/gi{gi}/access", f"gpu{minor}/gi{gi}/ci{ci}/access")
    try:
        lines = (root / "proc/driver/nvidia-caps/mig-minors").read_text().splitlines()
    except OSError:
        return ()
    table = {name: int(number) for name, _, number in (line.partition(" ") for line in lines) if number.isdigit()}
    return tuple(table[name] for name in wanted if name in table)
