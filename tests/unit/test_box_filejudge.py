"""What a box's files must be at the end of an operation."""

from box.filejudge import carried_out, put_back, taken_off

BEFORE = {"/etc/a": "644 0:0 x", "/etc/b": "600 0:0 y", "/var/lib/edgegpu/tx/state": "1"}


def test_undone_every_file_is_as_before_content_mode_and_owner() -> None:
    assert put_back(BEFORE, BEFORE | {"/var/lib/edgegpu/tx/state": "2"}, first=False) == []
    for changed in ("644 0:0 z", "600 0:0 x", "644 1:0 x"):
        assert put_back(BEFORE, BEFORE | {"/etc/a": changed}, first=False) == [f"/etc/a: 644 0:0 x -> {changed}"]
    assert put_back(BEFORE, BEFORE | {"/etc/c": "new"}, first=True) == ["/etc/c: absent -> new"]
    assert put_back(BEFORE, BEFORE | {"/opt/edgegpu/1/x": "new"}, first=True) == []
    assert put_back(BEFORE, BEFORE | {"/opt/edgegpu/1/x": "new"}, first=False)
    assert put_back(BEFORE, BEFORE | {"/var/lib/edgegpu/baseline/1/index": "new"}, first=False)


def test_carried_out_only_what_the_installer_wrote_is_another_one() -> None:
    after = BEFORE | {"/etc/a": "644 0:0 z"}
    assert carried_out(BEFORE, after, ours=["/etc/a"], drifted=()) == []
    assert carried_out(BEFORE, after, ours=["/etc/b"], drifted=()) == ["/etc/a: 644 0:0 x -> 644 0:0 z"]
    assert carried_out(BEFORE, after, ours=["/etc/a"], drifted=["/etc/a"]) == ["/etc/a: not as the installer wrote it"]
    folder = {"/etc/made": "755 0:0", "/etc/made/c": "new"}
    assert carried_out(BEFORE, BEFORE | folder, ours=["/etc/made/c"], drifted=()) == []


def test_taken_off_the_box_is_as_it_was_but_for_what_waits_for_kubelet() -> None:
    pristine = {"/etc/a": "644 0:0 x"}
    assert taken_off(pristine, pristine | {"/usr/local/lib/edgegpu/edgegpu-farewell": "755"}) == []
    assert taken_off(pristine, pristine | {"/etc/edgegpu/agent.yaml": "644"}) == [
        "/etc/edgegpu/agent.yaml: absent -> 644"
    ]
