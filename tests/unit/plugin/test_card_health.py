"""When a card is out of order and why, and when it is in order again."""

from dataclasses import replace
from pathlib import Path

import pytest

from edgegpu_core.inventory import Card
from edgegpu_plugin.cards.health import SILENT, CardHealth
from edgegpu_plugin.cards.verdicts import FILE_NAME, CardVerdicts
from edgegpu_plugin.cards.xids import TABLE, XidRecovery, of_code

ONE = Card(uuid="GPU-1", index=0, name="T4", memory_mib=1024, pci="00000000:01:00.0", minor=0)
TWO = replace(ONE, uuid="GPU-2", index=1)
PARTS = tuple(replace(TWO, uuid=f"MIG-{n}", mig=n, parent="GPU-2") for n in range(2))
DOCUMENT = Path(__file__).resolve().parents[3] / "docs/box/xid.md"


def health(state: CardHealth, now_s: float = 0) -> dict[str, bool]:
    return {card.uuid: card.healthy for card in state.with_health(now_s)}


def problems(state: CardHealth, now_s: float = 0) -> list[str]:
    return [card.problem for card in state.with_health(now_s)]


def test_a_silent_card_is_kept_out_of_order_until_it_answers() -> None:
    state = CardHealth(10)
    state.update([ONE, TWO], {"GPU-1", "GPU-2"})
    state.update([TWO], {"GPU-2"})
    assert health(state) == {"GPU-1": False, "GPU-2": True}
    assert problems(state) == [SILENT, ""]
    assert state.missing
    state.update([], set())
    assert health(state) == {"GPU-1": False, "GPU-2": False}
    state.update([ONE, TWO], {"GPU-1", "GPU-2"})
    assert health(state) == {"GPU-1": True, "GPU-2": True}
    assert not state.missing


def test_what_a_gpu_no_longer_offers_is_forgotten() -> None:
    state = CardHealth(10)
    state.update([ONE, TWO], {"GPU-1", "GPU-2"})
    state.update([ONE, *PARTS], {"GPU-1", "GPU-2"})
    assert health(state) == {"GPU-1": True, "MIG-0": True, "MIG-1": True}
    state.update([ONE, PARTS[1]], {"GPU-1", "GPU-2"})
    assert health(state) == {"GPU-1": True, "MIG-1": True}
    state.update([ONE], {"GPU-1"})
    assert health(state) == {"GPU-1": True, "MIG-1": False}


@pytest.mark.parametrize("code", [74, 4711])
def test_an_error_that_nobody_can_judge_is_forgiven_after_a_quiet_while(code: int) -> None:
    state = CardHealth(10)
    state.update([ONE, TWO], {"GPU-1", "GPU-2"})
    state.report_xid(["GPU-1"], code, 100)
    assert health(state, 105) == {"GPU-1": False, "GPU-2": True}
    assert problems(state, 105)[0].endswith(": offered again after 10 s without another error")
    state.report_xid(["GPU-1"], code, 106)
    assert not health(state, 115)["GPU-1"]
    assert health(state, 116)["GPU-1"]


@pytest.mark.parametrize("code", [13, 31, 43, 45, 63, 68, 69, 92, 94, 109])
def test_errors_of_applications_and_information_leave_the_card(code: int) -> None:
    state = CardHealth(10)
    state.update([ONE], {"GPU-1"})
    assert state.report_xid(["GPU-1"], code, 0).recovery in {XidRecovery.APPLICATION, XidRecovery.INFORMATION}
    assert health(state) == {"GPU-1": True}


@pytest.mark.parametrize("code", [46, 48, 62, 64, 79, 95, 119, 120, 140])
def test_an_error_that_a_reset_alone_ends_stays(code: int) -> None:
    state = CardHealth(10)
    state.update([ONE, TWO], {"GPU-1", "GPU-2"})
    state.report_xid(["GPU-1"], code, 0)
    assert health(state, 1e9) == {"GPU-1": False, "GPU-2": True}
    assert problems(state)[0].startswith(f"XID {code}, {of_code(code).name}: out until a reset of the card")
    state.accept("GPU-1")
    assert health(state) == {"GPU-1": True, "GPU-2": True}


def test_the_errors_of_all_instances_are_accepted_with_their_gpu() -> None:
    state = CardHealth(10)
    state.update(PARTS, {"GPU-2"})
    state.report_xid(["MIG-0", "MIG-1"], 95, 0)
    state.accept("GPU-2")
    assert health(state) == {"MIG-0": True, "MIG-1": True}


def test_an_error_of_a_whole_gpu_stays_when_its_instances_are_others() -> None:
    state = CardHealth(10)
    state.update(PARTS, {"GPU-2"})
    state.report_xid(["GPU-2"], 119, 0)
    assert health(state) == {"MIG-0": False, "MIG-1": False}
    state.update([replace(PARTS[0], uuid="MIG-9")], {"GPU-2"})
    assert health(state) == {"MIG-9": False}
    state.update([TWO], {"GPU-2"})
    assert health(state) == {"GPU-2": False}
    state.accept("GPU-2")
    assert health(state) == {"GPU-2": True}


def test_a_gpu_that_is_released_before_the_first_list_hides_no_other_card() -> None:
    state = CardHealth(10)
    state.release("GPU-2")
    assert not state.has_none_left


def test_a_released_gpu_is_neither_offered_nor_gone() -> None:
    state = CardHealth(10)
    state.update([ONE, *PARTS], {"GPU-1", "GPU-2"})
    state.release("GPU-2")
    state.update([ONE], {"GPU-1"})
    assert [(card.healthy, card.answers) for card in state.with_health(0)] == [(True, True), *[(False, True)] * 2]
    left = [state.missing, state.has_none_left]
    state.release("GPU-1")
    left.append(state.has_none_left)
    state.accept("GPU-1")
    state.accept("GPU-2")
    assert [*left, state.has_none_left] == [False, False, True, False]
    state.update([ONE, *PARTS], {"GPU-1", "GPU-2"})
    assert all(health(state).values())


@pytest.fixture
def module(tmp_path: Path) -> Path:
    """The folder of the driver's module in /sys."""
    (tmp_path / "nvidia").mkdir()
    return tmp_path / "nvidia"


def load_again(module: Path) -> None:
    """Load the driver anew: the folder is another one then."""
    other = module.with_name("other")
    other.mkdir()
    module.rmdir()
    other.rename(module)


def test_a_verdict_survives_a_restart_and_ends_with_a_reload(tmp_path: Path, module: Path) -> None:
    CardVerdicts(tmp_path, module=module).add(["GPU-1"], 95)
    again = CardVerdicts(tmp_path, module=module)
    assert again.cards == {"GPU-1": 95}
    assert not again.drop_reloaded()
    load_again(module)
    assert again.drop_reloaded()
    assert not again.drop_reloaded()
    assert again.cards == {}
    assert CardVerdicts(tmp_path, module=module).cards == {}


def test_a_reload_while_the_process_was_away_counts(tmp_path: Path, module: Path) -> None:
    CardVerdicts(tmp_path, module=module).add(["GPU-1"], 95)
    load_again(module)
    assert CardVerdicts(tmp_path, module=module).cards == {}


def test_a_driver_that_is_loaded_late_is_no_reload(tmp_path: Path, module: Path) -> None:
    CardVerdicts(tmp_path, module=module).add(["GPU-1"], 95)
    away = module.with_name("away")
    module.rename(away)
    verdicts = CardVerdicts(tmp_path, module=module)
    assert not verdicts.drop_reloaded()
    away.rename(module)
    assert not verdicts.drop_reloaded()
    assert verdicts.cards == {"GPU-1": 95}


def test_a_reboot_ends_all_verdicts(tmp_path: Path, module: Path) -> None:
    CardVerdicts(tmp_path, module=module).add(["GPU-1"], 79)
    file = tmp_path / FILE_NAME
    file.write_text(file.read_text().replace('"boot": "', '"boot": "0'))
    assert CardVerdicts(tmp_path, module=module).cards == {}


def test_a_reload_of_the_driver_takes_released_cards_back(tmp_path: Path, module: Path) -> None:
    state = CardHealth(10, CardVerdicts(tmp_path, module=module))
    state.update([ONE], {"GPU-1"})
    state.report_xid(["GPU-1"], 119, 0)
    state.release("GPU-1")
    load_again(module)
    state.drop_reloaded()
    assert not state.has_none_left
    assert health(state) == {"GPU-1": True}


@pytest.mark.parametrize("text", ["", "[]", '{"cards": {"GPU-1": "x"}}', "\0"])
def test_a_broken_file_is_said_and_holds_nothing(tmp_path: Path, text: str, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / FILE_NAME).write_text(text)
    assert CardVerdicts(tmp_path).cards == {}
    assert "cannot read which cards are out" in caplog.text


def test_no_code_stands_twice_in_the_table() -> None:
    codes = [code for row in TABLE for code in row.codes]
    assert len(codes) == len(set(codes))
    assert codes == sorted(codes)


def test_the_document_has_the_table_of_the_code() -> None:
    rows = [line for line in DOCUMENT.read_text().splitlines() if line.startswith("| ") and line[2].isdigit()]
    assert rows == [row.line for row in TABLE]
