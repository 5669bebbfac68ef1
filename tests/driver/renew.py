"""Pin the newest packages of each branch that Debian's archive has: `make driver-pin`."""

import sys
from datetime import UTC, datetime

from driver.archive import Archive, Found, VanishedError
from driver.cache import archive_of, store
from driver.pins import Branch, Package, read_pins, write_pins


def renewed(branch: Branch, archive: Archive) -> Branch:
    """Return a branch with the newest package of each name that can be fetched; of the driver's own, of that branch."""
    there = archive.versions(package.name for package in branch.packages)
    return Branch(branch.name, branch.release, tuple(_newest(branch, archive, *row) for row in there.items()))


def _newest(branch: Branch, archive: Archive, name: str, found: list[Found]) -> Package:
    ours = [row for row in found if row.version.startswith(f"{branch.name}.")]
    for row in ours or found:
        package = Package(name, row.version, row.sha256)
        try:
            store(archive, package)
        except VanishedError:
            continue  # lists outlive files
        return package
    raise SystemExit(f"driver-pin: Debian's {branch.release} has no {name}: take branch {branch.name} out of the list")


def main() -> int:
    """Write the list anew, and say which branches changed."""
    branches = []
    for branch in read_pins().branches:
        new = renewed(branch, archive_of(branch))
        changes = [
            f"{old.name} {old.version or 'none'} -> {package.version}"
            for old, package in zip(branch.packages, new.packages, strict=True)
            if old != package
        ]
        sys.stdout.write(f"{branch.name} ({branch.release}): {'; '.join(changes) or 'as it was'}\n")
        branches.append(new)
    write_pins(branches, datetime.now(UTC).date())
    return 0


if __name__ == "__main__":
    sys.exit(main())
