"""Every page under axe, in both themes, one wide and one on a phone, the next day the other way: nothing serious."""

from dataclasses import replace
from pathlib import Path

import pytest
from axe_playwright_python.sync_playwright import Axe
from kits.browser import browser, layout_faults
from kits.cert import Authority
from kits.console import ConsoleSite
from kits.consolepages import EVERY_PAGE, Places, visit
from kits.daily import of_the_day
from kits.details import box, card, pod, reported
from kits.people import LOCAL, PASSWORD

from edgegpu_cloud.fleet.fleet import Fleet
from edgegpu_cloud.fleet.specs import ContainerLimits, SharingSettings
from edgegpu_cloud.layout import AlertConfig, WebhookConfig
from edgegpu_cloud.store.people.records import Role
from edgegpu_sync.messages.evidence import ContainerEvidence

_BAD = {"serious", "critical"}


@pytest.mark.parametrize(
    ("width", "theme", "language"),
    of_the_day(
        [(1280, "light", "en-GB"), (1280, "dark", "zh-CN"), (360, "dark", "zh-CN"), (360, "light", "en-GB")], parts=2
    ),
)
def test_axe_finds_nothing_serious(site: ConsoleSite, tmp_path: Path, width: int, theme: str, language: str) -> None:
    device = site.add(1, "hall-1", site="hall")
    pods = {"u1": {**pod("asr-5d98c8c9f7-zfpmp", ("main", "0", 10, 1)), "started_at": int(site.now_s) - 60}}
    pods["u1"] |= {"enforced": "enforced", "pieces": [{**pods["u1"]["pieces"][0], "live_units": 6}]}
    site.measure(device, (0, 40.0, 900), (1, 90.0, 1_200), (5, 3.0, 100))
    fleet = Fleet(site.store, clock=site.clock, by="anna")
    asr = ContainerLimits(namespace="default", app="asr", container="main", memory_units=40, core=1)
    site.report(device, reported(box("hall-1")))
    refusal = {"state": "Rejected", "rev": fleet.set_limits(device, asr).rev, "code": "NEVER_FITS", "text": "29 units"}
    hall = box("hall-1", (card("0"), card("1", healthy=False)), pods)
    site.report(device, reported(hall, app_limits__default__asr__main=refusal))
    for units in (30, 4):
        fleet.set_limits(device, replace(asr, memory_units=units))
    fleet.set_settings(device, SharingSettings(policy="spread"))
    fleet.command(device, "doctor.run", {})
    site.people.redeem(site.people.create("anna", role=Role.ADMIN, by=LOCAL), "", PASSWORD)
    for agent in ("Mozilla/5.0 (X11; Linux x86_64) AppleWebKit/537.36", "curl/8.0"):
        site.people.sign_in("anna", PASSWORD, address="2001:db8::1", agent=agent)
    site.people.create_token("anna", "backup", role=Role.VIEWER, by=LOCAL)
    site.alert_config = AlertConfig(webhook=WebhookConfig(urls=("https://hooks.example.com/x",), secret="s" * 16))
    with site.store.write() as tx:
        seen = {
            "uid": "u1",
            "namespace": "default",
            "pod": "asr-5d98c8c9f7-zfpmp",
            "container": "main",
            "held": ["GPU-0"],
        }
        evidence = ContainerEvidence.model_validate(
            {**seen, "verdict": "none", "lines": "No devices found."}, strict=False
        )
        tx.telemetry.put_evidence(device, [evidence], now_s=site.now_s)
    places = Places(site, device)
    found: list[str] = []
    with (
        site.served(tmp_path, Authority("console")) as url,
        browser(url, width=width, dark=theme == "dark", language=language) as context,
    ):
        page = context.new_page()
        for path in EVERY_PAGE:
            visit(page, url, places, path)
            for one in Axe().run(page).response["violations"]:
                if one["impact"] in _BAD:
                    found += [f"{path}: {one['id']}: {node['html'][:200]}" for node in one["nodes"]]
            found += [f"{path}: {fault}" for fault in layout_faults(page)]
    assert found == []
