import json
import random
from pathlib import Path

import pytest
from kits.scheduler import Materials, Verdict, materials
from kits.schedulercases import corpus
from kits.schedulermutants import damaged, mutant
from lab.kubeadmkit import scheduler_binary
from lab.labrun import run

from edgegpu_installer.scheduler.file import render, validate

FIGURES = Path(__file__).resolve().parents[2] / "build/bench/scheduler_files.json"
MUTANTS, SEED = 1500, 20
"""So many mutants of good files; about one in ten is still good by our word, and is tried."""


class RealScheduler:
    """The kube-scheduler that the lab's k3s holds, as a program: it sets itself up, writes what it read, and ends."""

    def __init__(self, folder: Path) -> None:
        self._binary = scheduler_binary()
        self._folder = folder

    def takes(self, text: str) -> str:
        """Return nothing where it starts with the file, else its last words."""
        file = self._folder / "case.yaml"
        file.write_text(text, newline="")
        flags: list[str | Path] = ["--config", file, "--write-config-to", self._folder / "read.yaml", "--secure-port=0"]
        done = run([self._binary, *flags], check=False, timeout_s=30)
        return "" if done.returncode == 0 else done.stderr.strip().rpartition("\n")[2] or "ended"


@pytest.fixture(scope="module")
def given(tmp_path_factory: pytest.TempPathFactory) -> Materials:
    return materials(tmp_path_factory.mktemp("files"))


@pytest.fixture(scope="module")
def real(tmp_path_factory: pytest.TempPathFactory) -> RealScheduler:
    return RealScheduler(tmp_path_factory.mktemp("real"))


def read(path: str) -> bytes | None:
    try:
        return Path(path).read_bytes()
    except OSError:
        return None


def test_each_file_of_the_corpus_fares_as_it_says(given: Materials, real: RealScheduler) -> None:
    wrong: dict[str, str] = {}
    stricter: dict[str, str] = {}
    cases = list(corpus(given))
    for case in cases:
        last_words = real.takes(case.text)
        ours = validate(case.text, read_file=read)
        if bool(last_words) == (case.verdict is not Verdict.BAD):
            wrong[case.name] = f"{case.verdict}, but the real one: {last_words or 'starts'}"
        if last_words and not ours:
            wrong[case.name] = f"good by our word, but the real one: {last_words}"
        if ours and not last_words:
            stricter[case.name] = str(ours[0])
    FIGURES.parent.mkdir(parents=True, exist_ok=True)
    FIGURES.write_text(json.dumps({"cases": len(cases), "stricter": stricter}, indent=1, ensure_ascii=False))
    assert wrong == {}
    assert stricter.keys() == {case.name for case in cases if case.verdict is Verdict.STRICTER}


def test_whatever_is_done_to_a_good_file_what_we_call_good_starts(given: Materials, real: RealScheduler) -> None:
    chance = random.Random(SEED)
    good = [case.text for case in corpus(given) if case.verdict is Verdict.GOOD]
    tried = 0
    for _ in range(MUTANTS):
        text = mutant(chance, good)
        if not validate(text, read_file=read):
            last_words = real.takes(text)
            assert last_words == "", f"good by our word: {text}"
            tried += 1
    assert tried > MUTANTS / 30


def test_a_certificate_with_a_changed_bit_that_we_take_is_taken(given: Materials, real: RealScheduler) -> None:
    chance = random.Random(SEED)
    text = render(given.extender, kubeconfig=given.kubeconfig)
    for field in ("caData", "certData", "keyData") * 100:
        changed = damaged(chance, text, field)
        if not validate(changed, read_file=read):
            assert real.takes(changed) == "", f"good by our word: {changed}"
