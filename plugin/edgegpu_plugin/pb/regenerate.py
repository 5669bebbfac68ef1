"""Makes pb/gen from pb/proto: `python -m edgegpu_plugin.pb.regenerate [--check]` (needs grpcio-tools)."""

import argparse
import subprocess
import sys
import tempfile
from pathlib import Path

_HERE = Path(__file__).resolve().parent
_HEAD = "# Made by edgegpu_plugin.pb.regenerate from pb/proto: change it there.\n"


def generate(target: Path) -> None:
    """Write the modules and their type stubs into `target`.

    Raises:
        subprocess.CalledProcessError: protoc refused a file and has printed why.
    """
    protos = sorted((_HERE / "proto").glob("*.proto"))
    command = [sys.executable, "-m", "grpc_tools.protoc", f"-I{_HERE / 'proto'}"]
    subprocess.run([*command, f"--python_out={target}", f"--pyi_out={target}", *map(str, protos)], check=True)
    (target / "__init__.py").write_text(f'{_HEAD}"""Generated code: only the package above imports it."""\n')


def main() -> int:
    """Regenerate the modules, or with --check report whether the committed ones are current."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="change nothing; exit 1 when pb/gen is not current")
    check: bool = parser.parse_args().check
    committed = _HERE / "gen"
    if not check:
        generate(committed)
        return 0
    with tempfile.TemporaryDirectory() as folder:
        generate(Path(folder))
        made = {path.name: path.read_bytes() for path in Path(folder).glob("*.py*")}
    have = {path.name: path.read_bytes() for path in committed.glob("*.py*")}
    stale = sorted(name for name in made.keys() | have.keys() if made.get(name) != have.get(name))
    if stale:
        sys.stderr.write(f"not current: {', '.join(stale)}; run: python -m edgegpu_plugin.pb.regenerate\n")
    return 1 if stale else 0


if __name__ == "__main__":
    sys.exit(main())
