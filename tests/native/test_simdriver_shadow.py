"""A library that stands in front of the driver under the driver's SONAME, as the limiter does."""

from collections.abc import Callable
from pathlib import Path

from native.simkit import Child, shadow

from edgegpu_sim.driver import SimDriver

REFUSES_ALL = "int cuMemAlloc_v2(unsigned long long *out, unsigned long bytes) { (void)out; (void)bytes; return 2; }\n"


def test_a_shadow_meets_the_calls_first_and_the_rest_falls_through(
    box: SimDriver, tmp_path: Path, child: Callable[..., Child]
) -> None:
    (tmp_path / "refuses.c").write_text(REFUSES_ALL)
    user = child(env={"LD_PRELOAD": str(shadow(tmp_path, [tmp_path / "refuses.c"]))})
    user.open_cuda()
    assert user.call("cuMemAlloc_v2", "&u64", 1024)[0] == 2
    assert user.call("cuMemAllocManaged", "&u64", 1 << 20, 1)[0] == 0
    assert user.call("cuMemGetInfo_v2", "&u64", "&u64") == [0, 8191 << 20, 8192 << 20]
    assert user.call("cuGetProcAddress_v2", "cuMemAlloc", "&ptr", 12060, 0, "&int")[0] == 0
    assert box.used_mib(user_card(user)) == 1


def user_card(user: Child) -> str:
    user.call("nvmlInit")
    return str(user.call("nvmlDeviceGetUUID", ["dev", 0]))
