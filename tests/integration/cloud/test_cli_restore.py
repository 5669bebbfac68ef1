"""A backup that is a day old under a box that lives: found ahead, left alone, confirmed by a person, obeyed again."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kits.backups import passphrase_words
from kits.cloudprocess import running
from kits.mqtt import wait_for

if TYPE_CHECKING:
    from pathlib import Path


def test_a_restored_controller_goes_on_after_a_yes(tmp_path: Path) -> None:
    with running(tmp_path) as cloud, cloud.live("asr-hall") as live:
        cloud.ok("limits", "set", "asr-hall", "asr", "--memory", "4", "--core", "1", "--wait")
        cloud.ok("backup", str(tmp_path / "old.backup"), *passphrase_words(tmp_path))
        cloud.ok("limits", "set", "asr-hall", "asr", "--memory", "9", "--core", "1", "--wait")
        cloud.ok("command", "asr-hall", "doctor.run", "--wait")
        ahead = live.box.desired_state.seen.rev

        cloud.end()
        cloud.folder.rename(tmp_path / "aside")
        cloud.ok("restore", "--yes", str(tmp_path / "old.backup"), *passphrase_words(tmp_path))
        cloud.serve()

        wait_for(lambda: cloud.box("asr-hall")["restored"], what="the box is found ahead")
        assert any("RESTORED" in row for row in cloud.ok("boxes").out.splitlines())
        assert "edgegpu-cloud confirm asr-hall" in cloud.ok("box", "asr-hall").out
        done = cloud.run("command", "asr-hall", "k3s.restart", "--yes", "--wait", "--timeout", "1s")
        assert done.code == 3, "nothing is asked of it before"
        assert "asr-hall is RESTORED, nothing is sent to it: `edgegpu-cloud confirm asr-hall`" in done.err
        done = cloud.ok("limits", "set", "asr-hall", "asr", "--memory", "4", "--core", "1")
        assert "is RESTORED" in done.err

        cloud.ok("confirm", "--all")
        wait_for(lambda: live.box.desired_state.seen.rev > ahead, what="what the backup holds is desired again")
        shown = cloud.ok("limits", "show", "asr-hall", "--json").json
        assert [one["memory_units"] for one in shown] == [4]
        last = cloud.ok("commands", "asr-hall", "--json").json[0]["id"]
        assert cloud.ok("watch", last, "--timeout", "20s", "--json").out
        assert cloud.ok("confirm", "--all").out == "no box is RESTORED\n"
        assert cloud.run("confirm", "asr-hall").code == 1
