"""The usage file is made by the plugin and mapped by the limiter: both must mean the same form."""

import subprocess
from pathlib import Path

from native.limiterkit import SOURCES, USAGE_BYTES

from edgegpu_plugin.containers import usage_file

_PROGRAM = """
#include <stddef.h>
#include "usage.h"
_Static_assert(sizeof(struct usage) == BYTES, "size");
_Static_assert(offsetof(struct usage, high) == 32, "high");
_Static_assert(offsetof(struct usage, cards) == 40, "cards");
_Static_assert(offsetof(struct usage, refusals) == 40 + 16 * CARDS_MAX, "refusals");
_Static_assert(offsetof(struct usage, build) == 40 + (16 + 8) * CARDS_MAX, "build");
_Static_assert(offsetof(struct usage, all) == 40 + 16 + (16 + 8 + 64) * CARDS_MAX, "slots");
_Static_assert(sizeof(struct usage) - offsetof(struct usage, tables) == 512, "tables are the last");
_Static_assert(offsetof(struct usage_slot, namespace) == 16, "namespace");
_Static_assert(offsetof(struct usage_slot, aside) == 48 && offsetof(struct usage_slot, cards) == 56, "slot's cards");
_Static_assert(sizeof(struct usage_card) == 16 && offsetof(struct usage_card, bytes) == 0, "card");
_Static_assert(USAGE_MAGIC == 0x45474c4d && USAGE_VERSION == 5 && USAGE_SLOTS == 512, "head");
"""


def test_the_plugins_usage_file_is_the_limiters(tmp_path: Path) -> None:
    source = tmp_path / "size.c"
    source.write_text(_PROGRAM)
    flags = ("-std=gnu11", f"-DBYTES={usage_file.USAGE_BYTES}", f"-I{SOURCES}/common", "-fsyntax-only")
    made = subprocess.run(["cc", *flags, source], capture_output=True, text=True, check=False)
    assert made.returncode == 0, made.stderr
    assert usage_file.USAGE_BYTES == USAGE_BYTES
