"""How much each pod uses of its card, on the page of a box: in words, marked where it is too much, with its age."""

import re
from typing import Any

from integration.cloud.console.test_box_page import FIELD, hall, words
from kits.console import ConsoleSite
from kits.details import box, saying

from edgegpu_sync.ids import DeviceId
from edgegpu_sync.topics import TopicKind


def using(device: DeviceId, site: ConsoleSite, *uses: dict[str, Any], pods: dict[str, Any] | None = None) -> None:
    """Let a box measure, three minutes ago, what containers use of its first card."""
    sample = {"at": int(site.now_s) - 180, "cards": [], "memory_use": [{"card": "GPU-0", **one} for one in uses]}
    site.report(device, saying(box("hall-1", pods=pods or FIELD), TopicKind.METRICS, period_s=60, samples=[sample]))


ASR = {"uid": "u1", "container": "main", "processes": 1}


def test_a_piece_says_how_much_it_uses_and_since_when_that_is_known(site: ConsoleSite) -> None:
    device = hall(site)
    with site.client() as client:
        before = client.get(f"/boxes/{device}").text
        assert "uses" not in before[before.index('id="cards-head"') : before.index('id="requests"')], "an older box"
        using(device, site, {**ASR, "memory_mib": 700})
        page = client.get(f"/boxes/{device}").text
        first = "default/asr-0/main: 4 units (1 GiB), core 1, Running; uses 700 MiB of 1 GiB (3 minutes ago)"
        assert f'data-words="{first}"' in page
        assert 'data-words="default/plate-0/main: 20 units (5 GiB), core 30, Running; its use was not measured"' in page
        assert re.search(r"asr-0 main 4 units \(1 GiB\), core 1 uses 700 MiB of 1 GiB", words(page)), (
            "without hover too"
        )
        assert "The memory use of the pods was measured 3 minutes ago." in words(page)
        assert "More than it was given" not in page


def test_a_piece_that_uses_more_than_it_was_given_is_marked(site: ConsoleSite) -> None:
    device = hall(site)
    using(device, site, {**ASR, "memory_mib": 1_536})
    page = site.client().get(f"/boxes/{device}").text
    assert "; uses 1.5 GiB of 1 GiB, more than it was given (3 minutes ago)" in page
    assert words(page).count("More than it was given") == 1
    assert len(re.findall(r'class="piece tone-\d over"', page)) == 1


def test_what_uses_a_card_without_a_share_and_what_is_not_reported(site: ConsoleSite) -> None:
    device = hall(site)
    others = ({"processes": 2, "memory_mib": 110}, {"uid": "77aa", "processes": 1, "memory_mib": 2_048})
    using(device, site, {**ASR, "processes": 3}, *others)
    told = words(site.client().get(f"/boxes/{device}").text)
    assert "asr-0 main 4 units (1 GiB), core 1 3 processes, the driver does not say how much they use" in told
    assert "Outside of pods: uses 110 MiB" in told
    assert "No share 77aa, without a share of this card: uses 2 GiB" in told


def test_the_use_is_told_in_chinese_too(site: ConsoleSite) -> None:
    device = hall(site)
    using(device, site, {**ASR, "memory_mib": 1_536}, {"processes": 2, "memory_mib": 110})
    page = site.client().get(f"/boxes/{device}", headers={"accept-language": "zh-CN"}).text
    for text in ("已用 1.5 GiB / 1 GiB", "超出分配", "Pod 之外", "3 分钟前"):
        assert text in page


def test_the_cards_ask_for_themselves_again_since_measurements_are_no_news(site: ConsoleSite) -> None:
    device = hall(site)
    using(device, site, {**ASR, "memory_mib": 700})
    headers = {"hx-request": "true", "hx-target": "cards"}
    part = site.client().get(f"/boxes/{device}", headers=headers).text
    assert part.lstrip().startswith('<section class="panel" id="cards"')
    assert 'hx-trigger="every 60s"' in part
    assert "uses 700 MiB of 1 GiB" in part
    assert 'id="requests"' not in part
