"""Evidence on the page of a box: what each container sees, when it was checked, the button, and why there is none."""

import re
from dataclasses import replace
from typing import Any

from kits.browser import browser
from kits.console import ConsoleSite
from kits.details import box, card, pod, saying

from edgegpu_cloud.console.visitor import Visitor
from edgegpu_cloud.store.people.records import Role
from edgegpu_cloud.store.records import BoxState
from edgegpu_sync.ids import DeviceId
from edgegpu_sync.messages.evidence import ContainerEvidence
from edgegpu_sync.states import CommandState
from edgegpu_sync.topics import TopicKind

HOSTILE = "<script>alert(1)</script>\"'><img src=x onerror=alert(1)>"
PODS = {
    "u1": pod("asr-0", ("main", "0", 4, 1), ("side", "1", 2, 1)),
    "u2": pod("plate-0", ("main", "0", 20, 30)),
}
CHECK = {"csrf": "csrf-of-otto"}


def hall(site: ConsoleSite, *capabilities: str, pods: dict[str, Any] = PODS) -> DeviceId:
    device = site.add(1, "hall-1", site="hall")
    details = box("hall-1", (card("0"), card("1")), pods)
    status = {"state": "birth", "capabilities": [*capabilities]}
    site.report(device, saying(details, TopicKind.STATUS, **status))
    site.connect(device)
    return device


def checked(site: ConsoleSite, device: DeviceId, **more: object) -> None:
    """Store what a container of the box has seen."""
    plain = {"uid": "u1", "namespace": "default", "pod": "asr-0", "container": "main"}
    card_0 = {"held": ["GPU-0"], "seen": ["GPU-0"], "verdict": "own", "lines": "GPU 0: NVIDIA T4 (UUID: GPU-0)"}
    one = ContainerEvidence.model_validate({**plain, **card_0, **more}, strict=False)
    with site.store.write() as tx:
        tx.telemetry.put_evidence(device, [one], now_s=site.now_s)


def section(site: ConsoleSite, device: DeviceId, person: str = "otto", language: str = "en") -> str:
    """Return the section of the page, without its tags."""
    page = site.client(person, language).get(f"/boxes/{device}").text
    part = page[page.index('<section class="panel" id="evidence"') :]
    return re.sub(r"\s+", " ", re.sub(r"<[^>]+>", " ", part[: part.index("</section>")]))


def test_each_container_has_its_verdict_its_output_and_when_it_was_checked(site: ConsoleSite) -> None:
    device = hall(site, "evidence.check")
    assert section(site, device).count("not checked yet") == 3
    checked(site, device)
    checked(site, device, container="side", verdict="more", held=["GPU-1"], seen=["GPU-0", "GPU-1"])
    checked(site, device, uid="u2", pod="plate-0", held=["GPU-1"], seen=["GPU-1"])
    site.now_s += 120
    site.connect(device)
    told = section(site, device)
    assert re.search(
        r"its own cards default/asr-0 main holds a share of card 0 · checked 2 minutes ago GPU 0: NVIDIA T4", told
    )
    assert re.search(r"more than its cards default/asr-0 side holds a share of card 1", told)
    assert re.search(r"held other cards then: check again default/plate-0 main", told)
    assert "占用显卡 0 的份额" in section(site, device, language="zh")


def test_the_button_asks_the_box_once_and_the_page_says_so(site: ConsoleSite) -> None:
    device = hall(site, "evidence.check")
    client = site.client("otto")
    assert client.post(f"/boxes/{device}/evidence", data=CHECK).headers["location"] == f"/boxes/{device}#evidence"
    client.post(f"/boxes/{device}/evidence", data=CHECK)
    with site.store.read() as tx:
        (command,) = tx.commands.of(device, limit=9)
    assert (command.tracked.op, command.by) == ("evidence.check", "otto")
    assert command.tracked.args == {"pods": ["u1", "u2"]}
    told = section(site, device)
    assert "Being checked" in told
    assert "Check what containers see" not in told
    failed = replace(command.tracked, state=CommandState.FAILED, text=f"no runtime {HOSTILE}")
    with site.store.write() as tx:
        tx.commands.put([replace(command, tracked=failed, ended_at_s=site.now_s)])
    assert "The last check has failed: no runtime" in section(site, device)
    assert "<script>alert" not in client.get(f"/boxes/{device}").text


def test_a_page_without_a_button_says_why(site: ConsoleSite) -> None:
    device = hall(site)
    assert "The agent of the box cannot check this" in section(site, device)
    assert "该设备的代理程序不支持此项检查" in section(site, device, language="zh")
    refused = site.client("otto").post(f"/boxes/{device}/evidence", data=CHECK)
    assert (refused.status_code, "this agent cannot check" in refused.text) == (400, True)
    site.now_s += 3_600
    assert "The box is offline" in section(site, device)
    with site.store.write() as tx:
        tx.boxes.put([replace(tx.boxes.get([device])[device], state=BoxState.REVOKED)])
    assert "The box is not enrolled" in section(site, device)


def test_a_box_whose_containers_hold_no_card_has_nothing_to_ask(site: ConsoleSite) -> None:
    assert "No container on the box holds a share of a card" in section(site, hall(site, "evidence.check", pods={}))


def test_a_viewer_looks_and_a_person_of_another_scope_finds_nothing(site: ConsoleSite) -> None:
    device = hall(site, "evidence.check")
    assert "Check what containers see" not in section(site, device, "vera")
    assert site.client("vera").post(f"/boxes/{device}/evidence", data={"csrf": "csrf-of-vera"}).status_code == 403
    site.signed_in.table["yann"] = Visitor(name="yann", role=Role.ADMIN, csrf="c", scope="site=yard")
    assert site.client("yann").post(f"/boxes/{device}/evidence", data={"csrf": "c"}).status_code == 404
    with site.store.read() as tx:
        assert tx.commands.of(device, limit=9) == []


def test_what_a_container_prints_is_text(site: ConsoleSite) -> None:
    device = hall(site, "evidence.check")
    checked(site, device, lines=f"GPU 0: {HOSTILE}", verdict="unknown", text=HOSTILE)
    page = site.client().get(f"/boxes/{device}").text
    assert "<script>alert" not in page
    assert "<img" not in page
    assert "not known" in section(site, device)


def test_the_answer_comes_to_an_open_page_within_two_seconds(site: ConsoleSite, url: str) -> None:
    device = hall(site, "evidence.check")
    with browser(url) as context:
        page = context.new_page()
        with page.expect_response("**/live?*"):
            page.goto(f"{url}/boxes/{device}")
        page.get_by_role("button", name="Check what containers see").click()
        page.get_by_text("Being checked").wait_for()
        with page.expect_response("**/live?*"):
            page.reload()
        checked(site, device)
        with site.store.write() as tx:
            (command,) = tx.commands.of(device, limit=9)
            done = replace(command.tracked, state=CommandState.SUCCEEDED)
            tx.commands.put([replace(command, tracked=done, ended_at_s=site.now_s)])
            tx.summaries.mark([device])
        page.get_by_text("its own cards").wait_for(timeout=20_000)
        page.get_by_text("Being checked").wait_for(state="detached", timeout=20_000)
