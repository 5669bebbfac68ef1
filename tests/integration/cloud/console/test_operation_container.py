"""The form of a change of many boxes finds the container that is meant, as the API and rollouts do."""

import html

from integration.cloud.console.test_operation_pages import LIMITS, form_of
from kits.console import ConsoleSite
from kits.details import box, card, pod, reported


def report(site: ConsoleSite, number: int, container: str) -> None:
    device = site.add(number, f"box-{number}")
    pods = {"u1": pod("asr-0", (container, "0", 2, 1))}
    site.report(device, reported(box(f"box-{number}", (card("0", 29),), pods), cluster=f"{number:08d}"))
    site.connect(device)


def test_a_form_without_a_container_finds_the_one_that_is_meant(site: ConsoleSite) -> None:
    client, asked = site.client(), {**LIMITS, "which": "all", "container": " "}
    for number in (1, 2):
        report(site, number, "main")
    page = client.get("/operations/new", params=asked)
    assert page.status_code == 200, page.text
    form = form_of(page.text)
    assert "container=main" in form["query"]
    assert 'name="container" value="main"' in page.text
    assert client.post("/operations", data={**form, "typed": "2"}).status_code == 303
    assert site.operations().list()[0].operation.args["container"] == "main"


def test_where_several_are_meant_the_form_says_which_and_starts_nothing(site: ConsoleSite) -> None:
    for number, container in ((1, "main"), (2, "gpu")):
        report(site, number, container)
    page = site.client().get("/operations/new", params={**LIMITS, "which": "all", "container": ""})
    assert page.status_code == 400
    assert "cannot tell which container of default/asr is meant: it has gpu, main" in html.unescape(page.text)
    assert 'action="/operations"' not in page.text
