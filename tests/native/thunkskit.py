"""A driver whose cuGetProcAddress gives other addresses than its symbols have (driver_thunks.c)."""

import subprocess
from pathlib import Path

from edgegpu_sim.driver import SimDriver

_SOURCE = Path(__file__).with_name("driver_thunks.c")
_SONAME, _BEHIND = "libcuda.so.1", "libcudx.so.1"


def put_thunks(driver: SimDriver, *flags: str) -> None:
    """Put the library in the place of a simulated driver's; the driver's own lies beside it."""
    place = driver.libraries
    real = (place / _SONAME).resolve()
    (place / _BEHIND).write_bytes(real.read_bytes().replace(_SONAME.encode(), _BEHIND.encode()))
    new = place / "new"
    links = [f"-Wl,-soname,{_SONAME}", "-Wl,--no-as-needed", str(place / _BEHIND), f"-Wl,-rpath,{place}"]
    command = ["cc", "-O1", "-Wall", "-Wextra", "-Werror", "-shared", "-fPIC", *flags]
    subprocess.run([*command, "-o", new, _SOURCE, *links, "-ldl"], check=True)
    new.replace(real)
