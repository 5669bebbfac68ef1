"""What a box's files must be at the end of an operation."""

from box.filejudge import carried_out, not_begun, put_back, taken_off

BEFORE = {"/etc/a": "644 0:0 x", "/etc/b": "600 0:0 y", "/var/lib/edgegpu/tx/state": "1"}


def test_undone_every_file_is_as_before_content_mode_and_owner() -> None:
    assert put_back(BEFORE, BEFORE | {"/var/lib/edgegpu/tx/state": "2"}, first=False) == []
    for changed in ("644 0:0 z", "600 0:0 x", "644 1:0 x"):
        assert put_back(BEFORE, BEFORE | {"/etc/a": changed}, first=False) == [f"/etc/a: 644 0:0 x -> {changed}"]
    assert put_back(BEFORE, BEFORE | {"/etc/c": "new"}, first=True) == ["/etc/c: absent -> new"]
    assert put_back(BEFORE, BEFORE | {"/opt/edgegpu/1/x": "new"}, first=True) == []
    assert put_back(BEFORE, BEFORE | {"/opt/edgegpu/1/x": "new"}, first=False)
    assert put_back(BEFORE, BEFORE | {"/var/lib/edgegpu/baseline/000001.ab/index": "new"}, first=False)


def test_not_begun_nothing_but_the_journal_is_there() -> None:
    table = {"/var/lib/edgegpu/tx/files": "1", "/var/lib/edgegpu/tx/old/3": "1"}
    assert not_begun(BEFORE, BEFORE | table, first=True) == []
    assert len(put_back(BEFORE, BEFORE | table, first=True)) == 2
    assert not_begun(BEFORE, BEFORE | {"/etc/edgegpu": "755 0:0"}, first=True) == ["/etc/edgegpu: absent -> 755 0:0"]
    assert not_begun(BEFORE, BEFORE | {"/var/run/cdi/edgegpu.json": "644"}, first=True)


def test_carried_out_only_what_the_installer_wrote_is_another_one() -> None:
    after = BEFORE | {"/etc/a": "644 0:0 z"}
    assert carried_out(BEFORE, after, ours=["/etc/a"], drifted=()) == []
    assert carried_out(BEFORE, after, ours=["/etc/b"], drifted=()) == ["/etc/a: 644 0:0 x -> 644 0:0 z"]
    assert carried_out(BEFORE, after, ours=["/etc/a"], drifted=["/etc/a"]) == ["/etc/a: not as the installer wrote it"]
    folder = {"/etc/made": "755 0:0", "/etc/made/c": "new"}
    assert carried_out(BEFORE, BEFORE | folder, ours=["/etc/made/c"], drifted=()) == []


def test_carried_out_a_change_leaves_its_baseline_and_nothing_else_of_that_name() -> None:
    for id_ in ("0a1b", "sharing-1-942032c8"):
        kept = {f"/var/lib/edgegpu/baseline/000002.{id_}{name}": "new" for name in ("", "/index", "/ours", "/7")}
        assert carried_out(BEFORE, BEFORE | kept, ours=(), drifted=()) == []
    for left in ("/var/lib/edgegpu/baseline/new", "/var/lib/edgegpu/tx/files", "/etc/.a.edgegpu-old"):
        assert carried_out(BEFORE, BEFORE | {left: "new"}, ours=(), drifted=()) == [f"{left}: absent -> new"]


def test_taken_off_the_box_is_as_it_was_but_for_what_waits_for_kubelet() -> None:
    pristine = {"/etc/a": "644 0:0 x"}
    assert taken_off(pristine, pristine | {"/usr/local/lib/edgegpu/edgegpu-farewell": "755"}) == []
    assert taken_off(pristine, pristine | {"/etc/edgegpu/agent.yaml": "644"}) == [
        "/etc/edgegpu/agent.yaml: absent -> 644"
    ]
