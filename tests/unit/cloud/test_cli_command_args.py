"""Arguments of `edgegpu-cloud command`: text stays text, and the help names each one that there is."""

from __future__ import annotations

from edgegpu_cloud.cli.requests.commands import ARGS_HELP, COMMAND_HELP, read_args
from edgegpu_sync.rules.ops import OPS


def test_what_is_text_stays_text_and_numbers_are_numbers() -> None:
    words = ["version=1", f"sha256={'0' * 64}", "url=https://x/1", "signature=2"]
    found = read_args("agent.upgrade", "a", words)
    assert found == {"version": "1", "sha256": "0" * 64, "url": "https://x/1", "signature": "2"}
    assert read_args("logs.collect", "a", ["url=https://x", "since_s=60"]) == {
        "url": "https://x",
        "since_s": 60,
    }
    assert read_args("of.tomorrow", "a", ["b=[1]", "c=d"]) == {"b": [1], "c": "d"}


def test_the_help_names_each_argument() -> None:
    for op, declared in OPS.items():
        if not op.startswith("sharing."):
            for name in set(declared.args.model_fields) - {"critical"}:
                assert f"{name}=" in ARGS_HELP, (op, name)
            assert op in COMMAND_HELP
