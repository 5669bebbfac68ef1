"""What boxes say cannot steer an operator's terminal: control characters are written out, in text and in JSON."""

from __future__ import annotations

import json

import pytest
from pydantic import ValidationError

from edgegpu_base.cli.output import one_line, plain
from edgegpu_cloud.cli.common import print_json, print_table
from edgegpu_cloud.enrolment.bodies import EnrolAsk

ODD = "a\x1b]0;b\x07\x9b2J\u202eteg\u2066\x7f"


def test_what_steers_a_terminal_is_written_out() -> None:
    assert plain(ODD) == r"a\x1b]0;b\x07\x9b2J\u202eteg\u2066\x7f"
    assert plain("two\n\tlines, Größe 你好 🙂") == "two\n\tlines, Größe 你好 🙂"
    assert one_line("two\n\tlines") == r"two\n\tlines"


def test_tables_and_json_hold_none_of_it(capsys: pytest.CaptureFixture[str]) -> None:
    print_table(("NAME", "WHY"), [(ODD, "two\nlines")])
    out = capsys.readouterr().out
    assert len(out.splitlines()) == 2, "each row is one whole line"
    assert plain(out) == out
    print_json({"host": ODD})
    out = capsys.readouterr().out
    assert (plain(out) == out, json.loads(out)) == (True, {"host": ODD})


@pytest.mark.parametrize("host", ["a\nb", "a\tb", "\x9b2J", "\u202eb", "a\u2066"])
def test_no_box_is_called_so(host: str) -> None:
    good = {"token": "t" * 43, "request": "0" * 16, "csr": "x", "sign_key": "A" * 43, "instance": "0" * 64}
    assert EnrolAsk.model_validate({**good, "host": "box-1"}).host == "box-1"
    with pytest.raises(ValidationError, match="host"):
        EnrolAsk.model_validate({**good, "host": host})
