"""The limiter's list of functions: makes C, assembly and export map of a library from it, checks what was built."""

from __future__ import annotations

import argparse
import csv
import re
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

RULES = {"hook", "pass", "open"}
NEWEST_GLIBC = (2, 17)
ALWAYS_THERE = {"libc.so.6", "libdl.so.2", "libpthread.so.0"}
"""What glibc brings, and what the driver itself needs."""
FROM_OUTSIDE = {"dlopen", "dlsym", "dlclose", "dlerror", "dlinfo", "setenv", "unsetenv"}
"""What a library takes of libc: a function that a program's preloaded library replaces must not be one that it goes by.

`__gmon_start__` and the like are weak, and nobody has them.
"""
READELF_COLUMNS = 8
HEADERS_LINE = re.compile(r"# .* by the headers of CUDA [0-9.]+ to ([0-9]+)\.([0-9]+)\.")
"""How the first line of CUDA's list says of which versions it has the functions."""
MARK = "edgegpu_limiter"
"""What every limiter exports beside the driver's names."""


@dataclass(frozen=True, slots=True)
class Function:
    """A function of the driver, and what the limiter does about it."""

    name: str
    rule: str
    why: str
    since: str = ""


def read_table(path: Path) -> list[Function]:
    """Return the functions of a table in its order; ValueError: a line that makes no sense."""
    lines = [line for line in path.read_text(encoding="utf-8").splitlines() if not line.startswith("#")]
    rows = csv.DictReader(lines, delimiter="\t", quoting=csv.QUOTE_NONE, strict=True)
    functions = [Function(row["function"], row["rule"], row["why"], row.get("since") or "") for row in rows]
    for before, function in zip([None, *functions], functions, strict=False):
        if function.rule not in RULES or not function.why:
            msg = f"{path}: {function.name} needs a rule ({', '.join(sorted(RULES))}) and the reason"
            raise ValueError(msg)
        if before is not None and before.name >= function.name:
            msg = f"{path}: {function.name} must not stand after {before.name}"
            raise ValueError(msg)
    return functions


def listed_cuda(path: Path) -> int | None:
    """Return the newest version of CUDA whose functions a table has, as cuDriverGetVersion gives it: 13050 for 13.5.

    None for a table that is of no version of CUDA's.
    """
    with path.open(encoding="utf-8") as table:
        found = HEADERS_LINE.match(table.readline())
    return None if found is None else 1000 * int(found[1]) + 10 * int(found[2])


def header(functions: Sequence[Function], listed: int | None) -> str:
    """Return functions.h: a number for each function, and the newest version of CUDA whose functions these are."""
    numbers = "".join(f"\tFN_{function.name},\n" for function in functions)
    version = "" if listed is None else f"#define LISTED_CUDA {listed}\n"
    guard = "EDGEGPU_LIMITER_FUNCTIONS_H"
    text = f"{version}enum {{\n{numbers}\tFN_COUNT\n}};\n"
    return f"/* Made by tools/limiter_functions.py. */\n#ifndef {guard}\n#define {guard}\n{text}#endif\n"


def names_source(functions: Sequence[Function]) -> str:
    """Return functions.c: names, and the hooks with the numbers of what they stand in for."""
    hooks = [function.name for function in functions if function.rule == "hook"]
    names = "".join(f'\t"{function.name}",\n' for function in functions)
    externs = "".join(f"extern char {name}[];\n" for name in hooks)
    rows = "".join(f"\t{{ FN_{name}, {name} }},\n" for name in hooks)
    return (
        f'/* Made by tools/limiter_functions.py. */\n#include "functions.h"\n\n'
        f"const char *const driver_names[FN_COUNT] = {{\n{names}}};\n\n{externs}\n"
        f"struct hooked {{ int function; void *hook; }};\n"
        f"const struct hooked hooked_functions[] = {{\n{rows}}};\n"
        f"const int hooked_count = {len(hooks)};\n"
    )


def definitions(functions: Sequence[Function]) -> str:
    """Return functions.def: a line for each function, with the version of CUDA since which it is there."""
    rows = "".join(
        f"FUNCTION({function.name}, {_version(function.since)}, {int(function.rule == 'hook')})\n"
        for function in functions
    )
    return f"/* Made by tools/limiter_functions.py. */\n{rows}"


def _version(since: str) -> int:
    """Return a version as cuGetProcAddress takes it: 3020 for 3.2; 0 where a table has none."""
    major, _, minor = since.partition(".")
    return 1000 * int(major) + 10 * int(minor) if since else 0


def trampolines(functions: Sequence[Function]) -> str:
    """Return the assembly of what is passed on: a jump through the table, which at first leads to driver_bind()."""
    passed = [(number, function.name) for number, function in enumerate(functions) if function.rule != "hook"]
    jumps = "".join(
        f".globl {name}\n.type {name}, @function\n.balign 16\n{name}:\n\tendbr64\n"
        f"\tjmp *driver_addresses+{8 * number}(%rip)\n.size {name}, . - {name}\n"
        f"bind_{number}:\n\tpushq ${number}\n\tjmp bind\n"
        for number, name in passed
    )
    starts = {number: f"bind_{number}" for number, _ in passed}
    table = "".join(f"\t.quad {starts.get(number, 0)}\n" for number in range(len(functions)))
    integers = ("rdi", "rsi", "rdx", "rcx", "r8", "r9", "rax", "r10")
    saves = "".join(f"\tpushq %{register}\n" for register in integers)
    loads = "".join(f"\tpopq %{register}\n" for register in reversed(integers))
    floats = range(8)
    return (
        "/* Made by tools/limiter_functions.py. */\n"
        ".text\n/* The number of the function is on the stack, above it the caller's return address. */\n"
        f"bind:\n{saves}\tsubq $128, %rsp\n"
        + "".join(f"\tmovups %xmm{n}, {16 * n}(%rsp)\n" for n in floats)
        + "\tmovl 192(%rsp), %edi\n\tcall driver_bind\n\tmovq %rax, %r11\n"
        + "".join(f"\tmovups {16 * n}(%rsp), %xmm{n}\n" for n in floats)
        + f"\taddq $128, %rsp\n{loads}\taddq $8, %rsp\n\tjmp *%r11\n\n{jumps}\n"
        ".data\n.balign 8\n.globl driver_addresses\n.hidden driver_addresses\n"
        f".type driver_addresses, @object\ndriver_addresses:\n{table}.size driver_addresses, . - driver_addresses\n"
        '.section .note.GNU-stack,"",@progbits\n'
    )


def export_map(functions: Sequence[Function], soname: str, *, versioned: bool) -> str:
    """Return the export map: the driver's names, under the SONAME as their version where the linker can write it."""
    names = "".join(f"\t\t{name};\n" for name in [*(function.name for function in functions), MARK])
    node = f"{soname} " if versioned else ""
    return f"{node}{{\n\tglobal:\n{names}\tlocal:\n\t\t*;\n}};\n"


def generate(table: Path, soname: str, out: Path, *, versioned: bool) -> None:
    """Write the sources of a library to a folder."""
    functions = read_table(table)
    out.mkdir(parents=True, exist_ok=True)
    (out / "functions.h").write_text(header(functions, listed_cuda(table)), encoding="utf-8")
    (out / "functions.c").write_text(names_source(functions), encoding="utf-8")
    (out / "functions.def").write_text(definitions(functions), encoding="utf-8")
    (out / "trampolines.S").write_text(trampolines(functions), encoding="utf-8")
    (out / "exports.map").write_text(export_map(functions, soname, versioned=versioned), encoding="utf-8")


def readelf(*args: str | Path) -> str:
    """Return what readelf prints."""
    return subprocess.run(["readelf", "-W", *args], check=True, capture_output=True, text=True).stdout


def faults_of(library: Path, table: Path, soname: str, *, any_glibc: bool) -> list[str]:
    """Return what is wrong with a built library: its name, what it exports, what it needs."""
    symbols = [line.split() for line in readelf("--dyn-syms", library).splitlines() if line.split()[:1]]
    rows = [row for row in symbols if len(row) == READELF_COLUMNS]
    defined = {row[7] for row in rows if row[4] in {"GLOBAL", "WEAK"} and row[6] != "UND" and row[3] != "OBJECT"}
    version = "" if any_glibc else f"@@{soname}"
    wanted = {f"{function.name}{version}" for function in read_table(table)}
    dynamic = readelf("-d", library)
    found = [f"does not export {name}" for name in sorted(wanted - defined)]
    found += [f"exports {name}" for name in sorted(defined - wanted)]
    if f"soname: [{soname}]" not in dynamic:
        found.append(f"has not the SONAME {soname}")
    outside = [row for row in symbols if row[READELF_COLUMNS - 2 : READELF_COLUMNS - 1] == ["UND"]]  # with a version
    taken = {row[READELF_COLUMNS - 1].partition("@")[0] for row in outside if row[4] == "GLOBAL"}
    foreign = [f"takes {name} from libc: a preloaded library may replace it" for name in sorted(taken - FROM_OUTSIDE)]
    return found if any_glibc else found + foreign + needs_of(library)


def needs_of(binary: Path) -> list[str]:
    """Return what a library or a program needs that not every machine has."""
    needed = set(re.findall(r"NEEDED.*\[(.*?)\]", readelf("-d", binary)))
    found = [f"needs {name}, which not every image has" for name in sorted(needed - ALWAYS_THERE)]
    versions = sorted(set(re.findall(r"GLIBC_([0-9.]+)", readelf("-V", binary))))
    newer = [one for one in versions if tuple(int(part) for part in one.split(".")) > NEWEST_GLIBC]
    return found + [f"needs GLIBC_{one}: images with an older libc could start no program" for one in newer]


def main() -> int:
    """Generate, or check a library or a program; return 1 when it has faults."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("path", type=Path, help="the folder to write to, or the library or program to check")
    parser.add_argument("--table", type=Path, help="the list of functions of a library")
    parser.add_argument("--soname", default="")
    parser.add_argument("--check", action="store_true")
    parser.add_argument("--any-glibc", action="store_true", help="for this machine alone, no versions of symbols")
    args = parser.parse_args()
    if args.table is None:
        faults = [] if args.any_glibc else needs_of(args.path)
    elif not args.check:
        generate(args.table, args.soname, args.path, versioned=not args.any_glibc)
        return 0
    else:
        faults = faults_of(args.path, args.table, args.soname, any_glibc=args.any_glibc)
    sys.stderr.writelines(f"{args.path}: {fault}\n" for fault in faults)
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
