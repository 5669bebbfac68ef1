"""The plugin's control of shares, by itself: `controlchild.py ROOT CARD KIND FOLDER=CORE…`, until it is killed.

Which container a process is of is told by the usage file that it has mapped, where the plugin asks its cgroup.
"""

import re
import sys
import threading
import time
from collections.abc import Collection, Mapping
from pathlib import Path

from native.limiterkit import Container

from edgegpu_plugin.cards.nvml_library import NvmlLibrary
from edgegpu_plugin.compute.control import ComputeControl
from edgegpu_plugin.containers.container_folder import Charge
from edgegpu_plugin.containers.held.bypass import ContainerKey
from edgegpu_plugin.containers.held.container_state import TimedContainer
from edgegpu_plugin.containers.usage_file import process_maps

LOOK_S = 0.5
MIB = 1024


def main(root: str, card: str, policy: str, words: list[str]) -> None:
    """Look at the card twice a second, as the plugin does each two seconds, and control its shares."""
    library = NvmlLibrary(root=Path(root), recover_s=1)
    library.query()
    cores = {Path(folder): int(core) for folder, _, core in (word.partition("=") for word in words)}
    keys = {folder: ("pod", folder.name) for folder in cores}
    inodes = {(folder / "usage").stat().st_ino: keys[folder] for folder in cores}
    ncalls = threading.Lock()

    def container_of(pid: int) -> ContainerKey | None:
        maps = process_maps(Path(f"/proc/{pid}")).decode(errors="replace")
        return next((key for inode, key in inodes.items() if re.search(rf"(?m)^\S+ \S+ \S+ \S+ {inode}\s", maps)), None)

    def charge(charges: Mapping[ContainerKey, Mapping[str, Charge]]) -> None:
        for folder, core in cores.items():
            one = charges.get(keys[folder], {}).get(card)
            Container(folder).limit((card, MIB), core=core, policy=policy, charge=one)

    def shares(cards: Collection[str]) -> Mapping[str, Mapping[int, int] | None]:
        with ncalls:
            return library.process_shares(cards)

    control = ComputeControl(
        containers=lambda: [
            TimedContainer(keys[folder], (folder / "usage",), {card: core}, policy == "elastic")
            for folder, core in cores.items()
        ],
        shares=shares,
        container_of=container_of,
        charge=charge,
    )
    threading.Thread(target=control.run, daemon=True).start()
    sys.stdout.write("ready\n")
    sys.stdout.flush()
    while True:
        with ncalls:
            processes = library.processes()
        control.look(processes)
        time.sleep(LOOK_S)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], sys.argv[3], sys.argv[4:])
