"""Apps by the values of their limits, each with the number of its boxes, to which it opens; the same by the API."""

import html
import re
from typing import Any

from kits.console import ConsoleSite
from kits.details import box, pod, reported

from edgegpu_cloud.fleet.fleet import Fleet
from edgegpu_cloud.fleet.specs import ContainerLimits
from edgegpu_sync.ids import DeviceId

HOSTILE = "<script>alert(1)</script>\"'&"
FIELD = {"u1": pod("asr-0", ("main", "0", 1, 1)), "u2": pod("plate-0", ("main", "0", 25, 1))}
NINE = ContainerLimits(namespace="default", app="asr", container="main", memory_units=9, core=1)


def hall(site: ConsoleSite, number: int, pods: dict[str, Any] | None = None) -> DeviceId:
    name = f"hall-{number}"
    device = site.add(number, name, site="hall")
    site.report(device, reported(box(name, pods=FIELD if pods is None else pods), cluster=f"c0ffee0{number}"))
    site.connect(device)
    return device


def words(text: str) -> str:
    plain = re.sub(r"<[^>]+>", " ", text[max(0, text.find("<main")) :])
    return html.unescape(re.sub(r"\s+", " ", plain))


def test_rows_of_the_same_amounts_say_which_boxes_were_asked(site: ConsoleSite) -> None:
    hall(site, 1, {"u": pod("asr-0", ("main", "1", 9, 1))})
    asked = hall(site, 2, {"u": pod("asr-0", ("main", "1", 9, 1))})
    Fleet(site.store, clock=site.clock, by="anna").set_limits(asked, NINE)
    text = words(site.client().get("/apps", params={"q": "default/asr"}).text)
    assert "9 units (2.25 GiB), core 1 on 1 box" in text
    assert "9 units (2.25 GiB), core 1, as requested on 1 box" in text
    assert "differs" not in text.replace("Only what differs", "")


def test_apps_are_listed_by_value_and_each_opens_to_its_boxes(site: ConsoleSite) -> None:
    one, two, three = hall(site, 1), hall(site, 2), hall(site, 3, {"u": pod("asr-0", ("main", "1", 5, 1))})
    Fleet(site.store, clock=site.clock, by="anna").set_limits(three, NINE)
    with site.client() as client:
        page = client.get("/apps", params={"q": "default/asr"})
        text = words(page.text)
        assert "on 2 boxes" in text
        assert "9 units (2.25 GiB), core 1 wanted, reported: 5 units (1.25 GiB), core 1 on 1 box not as wanted" in text
        assert "hall-1" not in text
        links = re.findall(r'<a class="amount" href="([^"]+)"', page.text)
        most, least = (html.unescape(link) for link in links)
        boxes = client.get(most).text
        assert f'href="/boxes/{one}#card-GPU-0"' in boxes
        assert f'href="/boxes/{two}"' in boxes
        assert f'href="/boxes/{three}"' not in boxes
        assert f'href="/boxes/{three}#card-GPU-1"' in client.get(least).text
        assert f'href="/boxes/{three}"' in client.get(f"/{'/'.join(most.split('?')[0].split('/')[1:])}").text
        assert 'href="/apps?q=default%2Fasr"' in client.get(f"/boxes/{two}").text
        assert "plate" not in words(client.get("/apps", params={"differs": "yes"}).text)
        assert "No app matches" in words(client.get("/apps", params={"labels": "site=yard"}).text)
        for path, query in (("/apps", {"labels": "site=(("}), (most.split("?")[0], {"value": "5 units"})):
            assert client.get(path, params=query).status_code == 400
        assert "<script>alert" not in client.get("/apps", params={"q": HOSTILE}).text
    api = site.api()
    (row,) = api.get("/apps", params={"search": "default/asr"}).json()["items"]
    assert (row["container"], row["boxes"], [one["boxes"] for one in row["values"]]) == ("main", 3, [2, 1])
    value = row["values"][1]
    assert (value["wanted"], value["reported"]) == ({"memory_units": 9, "core": 1}, [{"memory_units": 5, "core": 1}])
    path = "/apps/default/asr/main/boxes"
    assert [one["box"] for one in api.get(path, params={"value": value["key"]}).json()["items"]] == ["hall-3"]
    first = api.get(path, params={"limit": 2}).json()
    assert [one["box"] for one in first["items"]] == ["hall-1", "hall-2"]
    rest = api.get(first["next"].removeprefix("/api/v1")).json()
    assert ([one["box"] for one in rest["items"]], rest["next"]) == (["hall-3"], None)
    assert api.get(path, params={"value": "x"}).status_code == 422
    apps = api.get("/apps", params={"limit": 1}).json()
    assert len({one["app"] for one in apps["items"]}) == 1
    assert api.get(apps["next"].removeprefix("/api/v1")).json()["items"][0]["app"] == "plate"
