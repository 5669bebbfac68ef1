"""install.sh, given to a shell as the one line does, in a root of its own, against an HTTPS host with its own CA."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
from pathlib import Path

import pytest
from kits.install import BASENAME, VERSION, Host, Sandbox, make_environment, proxy, unpinned

TOKEN = "tell-nobody-7f3a"  # noqa: S105  (that of the tests)
SHELLS = [one for one in (("dash",), ("busybox", "sh"), ("bash", "--posix")) if shutil.which(one[0])]


def cloud_words(host: Host) -> list[str]:
    return ["--cloud", host.url, "--ca-sha256", str(host.trusted[-1])]


@pytest.mark.parametrize("shell", SHELLS, ids=lambda shell: shell[0])
def test_fetches_checks_unpacks_and_runs_install(script: str, host: Host, tmp_path: Path, shell: tuple[str]) -> None:
    box = Sandbox(tmp_path / "box", shell)
    done = box.run(script, *host.trusted, "--node", "a", "b c", "--yes", "--isolation=none")
    assert (done.returncode, done.stdout) == (0, "")
    assert box.words() == ["install", "--node", "a", "--node", "b c", "--yes", "--isolation=none"]
    assert box.noted("url") == host.url
    assert {path.name for path in (box.root / "opt/edgegpu").iterdir()} == {VERSION, "current"}
    assert (box.root / "opt/edgegpu" / VERSION / "bin/edgegpu").stat().st_mode & 0o777 == 0o755
    assert [path for path, _ in host.faults.asked] == ["/ca.crt", f"/{BASENAME}.tar.xz"]
    assert "*" in box.noted("halves"), "a power cut while edgegpu is at work would leave it"


def cut_off_uninstall(box: Sandbox, *, program: bool = True, unit: bool = True) -> Path:
    """Put what a cut-off uninstall leaves; return its journal. systemd starts its end and does not wait for it."""
    program_file = box.root / "usr/local/lib/edgegpu/edgegpu-recover"
    journal = box.root / "var/lib/edgegpu/tx/state"
    journal.parent.mkdir(parents=True)
    journal.write_text("id=tx-1\nop=uninstall\nstate=COMMITTED\nwhy=\n" + " " * 4000)
    (journal.parent / "files").write_text("id tx-1e - - -\n1 e f - /etc/left\n2 e f f /etc/theirs\n")
    for name in ("left", "theirs"):
        (box.root / "etc").mkdir(exist_ok=True)
        (box.root / "etc" / name).touch()
    (box.root / "opt/edgegpu/0.0.9").mkdir(parents=True)
    if program:
        program_file.parent.mkdir(parents=True)
        program_file.write_text(f'echo "$1" > {box.base}/by-itself\n{_vanishes(box)}')
    box.program("systemctl", f'echo "$*" >> {box.base}/asked; exit {0 if unit else 5}')
    return journal


def _vanishes(box: Sandbox) -> str:
    return f"rm -rf {box.root}/opt/edgegpu/* {box.root}/var/lib/edgegpu/tx {box.root}/usr/local/lib/edgegpu"


def test_an_uninstall_that_was_cut_off_is_completed_first(script: str, host: Host, box: Sandbox) -> None:
    cut_off_uninstall(box)
    box.program("sleep", f"[ -e {box.base}/slept ] || {{ : > {box.base}/slept; exit; }}; {_vanishes(box)}")
    done = box.run(script, *host.trusted)
    assert (box.base / "asked").read_text() == "start edgegpu-recover.service\n"
    assert done.stderr.startswith("edgegpu: completing an uninstall that was cut off\n")
    assert len(box.calls("sleep 1")) == 2
    assert (done.returncode, {path.name for path in (box.root / "opt/edgegpu").iterdir()}) == (0, {VERSION, "current"})


def test_one_that_does_not_end_is_waited_for_and_left(script: str, host: Host, box: Sandbox) -> None:
    journal = cut_off_uninstall(box)
    done = box.run(script, *host.trusted)
    assert (done.returncode, len(box.calls("sleep 1")), host.faults.asked) == (1, 90, [])
    assert [path.name for path in (box.root / "opt/edgegpu").iterdir()] == ["0.0.9"]
    assert journal.exists()
    assert "an uninstall is not complete after 90 s; see why (journalctl -u edgegpu-recover)" in done.stderr


def test_one_whose_unit_is_gone_is_completed_by_its_program(script: str, host: Host, box: Sandbox) -> None:
    cut_off_uninstall(box, unit=False)
    assert box.run(script, *host.trusted).returncode == 0
    assert (box.base / "by-itself").read_text() == "deadline\n"


def test_one_that_was_cut_off_when_its_program_had_gone_is_completed_here(
    script: str, host: Host, box: Sandbox
) -> None:
    journal = cut_off_uninstall(box, program=False)
    assert box.run(script, *host.trusted).returncode == 0
    assert not (box.base / "asked").exists()
    assert (journal.parent.exists(), [path.name for path in (box.root / "etc").iterdir()]) == (False, ["theirs"])


@pytest.mark.parametrize(("op", "state"), [("uninstall", "ROLLED_BACK"), ("install", "COMMITTED")])
def test_what_another_change_left_is_not_looked_at(script: str, host: Host, box: Sandbox, op: str, state: str) -> None:
    journal = box.root / "var/lib/edgegpu/tx/state"
    journal.parent.mkdir(parents=True)
    journal.write_text(f"id=tx-1\nop={op}\nstate={state}\n")
    box.program("systemctl", f"touch {box.base}/asked")
    assert box.run(script, *host.trusted).returncode == 0
    assert not (box.base / "asked").exists()


def test_the_download_has_its_size_and_its_time(script: str, host: Host, files: Path, box: Sandbox) -> None:
    done = box.run(script, *host.trusted)
    size = (files / f"{BASENAME}.tar.xz").stat().st_size
    mib = f"{size // 2**20}.{size % 2**20 * 10 // 2**20} MiB"
    lines = done.stderr.splitlines()
    assert lines[0] == f"edgegpu: fetching {host.url}/{BASENAME}.tar.xz ({mib})"
    assert re.fullmatch(rf"edgegpu: fetched {re.escape(mib)} in \d+ s", lines[1])
    assert lines[2] == "edgegpu: its sha256 is right"


def test_on_a_terminal_it_says_how_far_it_is(script: str, host: Host, box: Sandbox) -> None:
    """curl stands still until a line of progress was seen."""
    ours, theirs = os.openpty()
    seen = box.base / "seen"
    curl = shutil.which("curl")
    box.program("curl", f'{curl} "$@"; case $* in *.xz*) until [ -e {seen} ]; do /bin/sleep 0.05; done ;; esac')
    box.program("sleep", "exec /bin/sleep 0.1")
    process = box.start(script, *host.trusted, stderr=theirs)
    os.close(theirs)
    said = b""
    with contextlib.suppress(OSError):  # the terminal's end, when all who write to it have gone
        while part := os.read(ours, 4096):
            said += part
            if re.search(rb"edgegpu: [\d.]+ MiB of [\d.]+ MiB, \d+ s ", said):
                seen.touch()
    assert process.wait(60) == 0
    assert seen.exists(), said
    assert b"edgegpu: fetched " in said
    os.close(ours)


def test_a_second_run_fetches_nothing(script: str, host: Host, box: Sandbox) -> None:
    assert box.run(script, *host.trusted).returncode == 0
    before, asked = box.tree(), len(host.faults.asked)
    assert box.run(script, *host.trusted, "--yes").returncode == 0
    assert box.words() == ["install", "--yes"]
    assert box.tree() == before
    assert len(host.faults.asked) == asked


@pytest.mark.parametrize("name", ["token", "join"])
@pytest.mark.parametrize("way", ["--{} X", "--{}=X", "environment"])
def test_no_program_is_told_a_secret(script: str, host: Host, box: Sandbox, name: str, way: str) -> None:
    variable = f"EDGEGPU_{name.upper()}"
    env = {variable: TOKEN} if way == "environment" else {}
    words = [] if env else way.format(name).replace("X", TOKEN).split()
    box.program("tar", f'[ -z "${{{variable}-}}" ] || exit 1\nexec {shutil.which("tar")} "$@"')
    assert box.run(script, *host.trusted, *words, "--yes", **env).returncode == 0
    assert box.noted(name) == TOKEN
    cloud = cloud_words(host) if name == "token" else []
    assert box.words() == ["install", *cloud, "--yes"]
    assert box.calls("curl")
    assert not [call for call in box.calls() if TOKEN in call]


def test_a_token_file_is_handed_on_by_name(script: str, host: Host, box: Sandbox) -> None:
    (box.base / "t").write_text(TOKEN)
    assert box.run(script, *host.trusted, "--token-file", "t").returncode == 0
    assert (box.words(), box.noted("token")) == (
        ["install", *cloud_words(host), "--token-file", "t"],
        "none",
    )


def test_another_cloud_than_the_host_is_not_known_by_the_hosts_authority(script: str, host: Host, box: Sandbox) -> None:
    words = ("--cloud", "https://cloud.example.com/", "--token", TOKEN)
    assert box.run(script, *host.trusted, *words).returncode == 0
    assert box.words() == ["install", "--cloud", "https://cloud.example.com"]


def test_where_no_host_is_known_edgegpu_is_asked_without_a_cloud(
    script: str, host: Host, files: Path, box: Sandbox
) -> None:
    bundle = box.base / f"{BASENAME}.tar.xz"
    shutil.copy(files / bundle.name, bundle)
    assert box.run(script, "--offline", bundle, EDGEGPU_TOKEN=TOKEN).returncode == 0
    assert (box.words(), box.noted("token")) == (["install"], TOKEN)
    given = ("--url", f"{host.url}/", "--ca-sha256", host.trusted[-1])
    assert box.run(script, "--offline", bundle, *given, EDGEGPU_TOKEN=TOKEN).returncode == 0
    assert box.words() == ["install", *cloud_words(host)]


@pytest.mark.parametrize("trouble", ["cut", "busy"])
def test_goes_on_after_a_broken_answer(script: str, host: Host, box: Sandbox, trouble: str) -> None:
    setattr(host.faults, trouble, 2)
    assert box.run(script, *host.trusted).returncode == 0
    parts = [bool(wanted) for path, wanted in host.faults.asked if path.endswith(".xz")]
    assert parts == [False, trouble == "cut", trouble == "cut"]
    assert box.calls("sleep") == ["sleep 2", "sleep 4"]


def test_takes_the_other_archive_where_xz_is_missing(script: str, host: Host, box: Sandbox) -> None:
    box.without("xz")
    assert box.run(script, *host.trusted).returncode == 0
    assert host.faults.asked[-1][0] == f"/{BASENAME}.tar.gz"


@pytest.mark.skipif(not shutil.which("wget"), reason="wget is not installed")
def test_wget_does_too(script: str, host: Host, box: Sandbox) -> None:
    box.without("curl")
    box.program("wget", f'exec {shutil.which("wget")} "$@"')
    host.faults.cut = 1
    done = box.run(script, *host.trusted)
    assert (done.returncode, box.words()) == (0, ["install"])
    assert "fetching again: the connection broke off" in done.stderr


def test_a_proxy_is_used_for_the_bundle_and_handed_to_the_agent(script: str, host: Host, box: Sandbox) -> None:
    with proxy() as (address, asked):
        assert box.run(script, *host.trusted, "--proxy", address).returncode == 0
        assert asked == [host.url.removeprefix("https://")] * 2
        assert box.noted("proxy") == address
        shutil.rmtree(box.root / "opt")
        assert box.run(script, *host.trusted, HTTPS_PROXY=address).returncode == 0
        assert len(asked) == 4
        assert box.noted("proxy") == "none", "what the environment says is the download's alone"
        shutil.rmtree(box.root / "opt")
        plain = address.removeprefix("http://")
        assert box.run(script, *host.trusted, EDGEGPU_PROXY=plain).returncode == 0
        assert (len(asked), box.noted("proxy")) == (6, address)
    assert not [call for call in box.calls() if address in call]


def test_the_address_may_be_pinned_or_in_the_environment(script: str, host: Host, box: Sandbox) -> None:
    done = box.run(script, *host.trusted[2:], "--dry-run", EDGEGPU_URL=host.url)
    assert (done.returncode, box.noted("url")) == (0, host.url)
    done = box.run(script.replace("@EDGEGPU_URL@", f"{host.url}/"), *host.trusted[2:])
    assert (done.returncode, box.noted("url")) == (0, host.url)


@pytest.mark.parametrize(
    ("words", "env", "status"), [((), {"REFUSE": "3"}, 3), (("--dry-run",), {}, 0)], ids=["refused", "dry run"]
)
def test_what_is_not_installed_leaves_nothing(
    script: str, host: Host, box: Sandbox, words: tuple[str, ...], env: dict[str, str], status: int
) -> None:
    before = box.tree()
    assert box.run(script, *host.trusted, *words, **env).returncode == status
    assert box.words() == ["install", *words]
    assert box.tree() == before


def test_a_refused_upgrade_leaves_the_old_version(script: str, host: Host, box: Sandbox) -> None:
    old = make_environment(box.root / "opt/edgegpu/1.0.0", "1.0.0")
    (old.parent / "current").symlink_to("1.0.0")
    before = box.tree()
    assert box.run(script, *host.trusted, REFUSE="1").returncode == 1
    assert box.tree() == before


def test_an_unfinished_transaction_keeps_its_files(script: str, host: Host, box: Sandbox) -> None:
    state = box.root / "var/lib/edgegpu/tx/state"
    state.parent.mkdir(parents=True)
    state.write_text("id=1\nstate=VERIFYING\n")
    assert box.run(script, *host.trusted, REFUSE="137").returncode == 137
    assert (box.root / "opt/edgegpu" / VERSION).is_dir()
    state.write_text("id=1\nstate=ROLLED_BACK\n")


def test_what_was_made_before_the_record_goes_with_the_unpacked_version(script: str, host: Host, box: Sandbox) -> None:
    before = box.tree()
    tx, unit = box.root / "var/lib/edgegpu/tx", box.root / "etc/systemd/system/edgegpu-recover.service"
    (tx / "new").mkdir(parents=True)
    unit.parent.mkdir(parents=True)
    for name in ("touch", "flock", "tac", "tail", "stat", "sync"):  # what edgegpu-recover needs besides
        box.program(name, f'exec {shutil.which(name)} "$@"')
    for path in (unit, tx / "new/1"):
        path.write_text("[Service]\n")
    (tx / "files").write_text("id abc - - -\n1 e - f /etc/systemd/system/edgegpu-recover.service\n")
    (tx / "folders").write_text("/etc\n/etc/systemd\n/etc/systemd/system\n")
    assert box.run(script, *host.trusted, REFUSE="137").returncode == 137
    assert not {path for path in box.tree().keys() - before.keys() if not path.startswith(("var", "run"))}


def test_another_build_is_replaced_unless_it_is_in_use(script: str, host: Host, box: Sandbox) -> None:
    other = make_environment(box.root / "opt/edgegpu" / VERSION, build="c" * 64)
    assert box.run(script, *host.trusted).returncode == 0
    assert (other / "BUILD").read_text() == "b" * 64 + "\n"
    (other / "BUILD").write_text("c" * 64)
    done = box.run(script, *host.trusted)
    assert done.returncode == 1
    assert "another build of 1.2.3 is in use here; uninstall it first" in done.stderr
    assert (other / "BUILD").read_text() == "c" * 64


def test_a_damaged_version_is_unpacked_anew(script: str, host: Host, box: Sandbox) -> None:
    assert box.run(script, *host.trusted).returncode == 0
    broken = box.root / "opt/edgegpu" / VERSION / "bin/edgegpu"
    broken.write_text("#!/bin/sh\nexit 1\n")
    assert box.run(script, *host.trusted, "--yes").returncode == 0
    assert box.words() == ["install", "--yes"]
    assert broken.read_text() != "#!/bin/sh\nexit 1\n"
    assert {path.name for path in (box.root / "opt/edgegpu").iterdir()} == {VERSION, "current"}


def test_leftovers_of_a_power_cut_are_no_hindrance(script: str, host: Host, box: Sandbox) -> None:
    left = box.root / f"opt/edgegpu/.{VERSION}.new/out"
    left.mkdir(parents=True)
    (left / "half").touch()
    assert box.run(script, *host.trusted).returncode == 0
    assert not left.parent.exists()


def test_what_is_unpacked_is_what_was_checked(served: Path, script: str, box: Sandbox) -> None:
    """A bundle in a folder where others write: they change it once its sha256 has been taken."""
    bundle = shutil.copy(served / f"{BASENAME}.tar.xz", box.base)
    box.program("sha256sum", f'{shutil.which("sha256sum")} "$@"; status=$?; echo changed > "{bundle}"; exit $status')
    assert box.run(script, "--offline", bundle, "--yes").returncode == 0
    assert Path(bundle).read_text() == "changed\n"
    assert box.words() == ["install", "--yes"]


@pytest.mark.parametrize("form", ["xz", "gz"])
@pytest.mark.parametrize("way", ["pinned", "--sha256", "SHA256SUMS"])
def test_offline(served: Path, box: Sandbox, form: str, way: str) -> None:
    bundle = shutil.copy(served / f"{BASENAME}.tar.{form}", box.base)
    sums = (served / "SHA256SUMS").read_text()
    script = (served / "install.sh").read_text()
    words = ["--offline", Path(bundle).name]
    if way != "pinned":
        script = unpinned(script)
    if way == "--sha256":
        words += [way, next(line.split()[0] for line in sums.splitlines() if line.endswith(form))]
    if way == "SHA256SUMS":
        (box.base / "SHA256SUMS").write_text(sums)
    box.without("curl")
    done = box.run(script, *words, "--yes")
    assert (done.returncode, box.words()) == (0, ["install", "--yes"])
    Path(bundle).write_bytes(Path(bundle).read_bytes()[:-1])
    shutil.rmtree(box.root / "opt")
    before = box.tree()
    done = box.run(script, *words)
    assert done.returncode == 1
    assert "nothing was unpacked" in done.stderr
    assert box.tree() == before
