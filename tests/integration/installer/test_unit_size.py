"""The size of a unit is changed in the configuration while pods hold shares."""

import yaml
from contract.bed import EmbeddedBed, pod
from contract.test_plugin import runs, share, told
from kits.cli import edgegpu


def test_the_old_size_counts_until_nobody_holds_a_share(bed: EmbeddedBed) -> None:
    for name in ("left", "right"):
        bed.apply(pod(name, share(20)))
    runs(bed, "left", "right")
    node = bed.cluster.nodes["box"]
    config = yaml.safe_load(node.config_path.read_text())
    node.config_path.write_text(yaml.safe_dump(config | {"resources": {"unit_mib": 128}}))
    bed.kill_plugin("box")
    bed.start_plugin("box")
    bed.apply(pod("next", share(15)))
    told(bed, "next", "needs 15 vcuda-memory on one card; card 0 has 9 free, card 1 has 9 free")
    socket = node.run_folder / "plugin.sock"
    said = edgegpu("status", "--socket", socket)
    assert "1 unit = 256 MiB" in said.out
    assert "units are of 256 MiB until no pod of this node holds a share; then they are of 128 MiB" in said.out
    assert said.code == 1
    for name in ("next", "left", "right"):
        bed.delete("Pod", name)

    def changed() -> bool:
        found = (bed.get("Node", "box") or {})["status"]["allocatable"]["baidu.com/vcuda-memory"]
        return bool(found == "118")

    bed.wait(changed, what="59 units of 128 MiB on each card", timeout_s=20)
    assert "1 unit = 128 MiB" in edgegpu("status", "--socket", socket).out
    bed.apply(pod("last", share(59)))
    runs(bed, "last")
    bed.kill_plugin("box")
    bed.start_plugin("box")
    bed.apply(pod("more", share(59)))
    runs(bed, "more")
