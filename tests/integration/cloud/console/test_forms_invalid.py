"""Forms with values that no field takes: what was typed is shown again, with what is wrong, and can be sent then."""

from __future__ import annotations

import html
from typing import TYPE_CHECKING

import pytest
from kits.console import ConsoleSite
from kits.consolepages import fields
from kits.people import LOCAL, PASSWORD
from kits.stores import open_store

from edgegpu_cloud.console.people_visitors import PeopleVisitors
from edgegpu_cloud.console.visitor import SESSION_COOKIE
from edgegpu_cloud.store.people.records import Role

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from starlette.testclient import TestClient

LONG = "x" * 1_500


@pytest.fixture
def site(tmp_path: Path) -> Iterator[ConsoleSite]:
    store = open_store(tmp_path / "controller.db")
    site = ConsoleSite(store)
    site.use(PeopleVisitors(site.people))
    site.people.redeem(site.people.create("anna", role=Role.ADMIN, by=LOCAL), "", PASSWORD)
    site.add(1, "hall-1", site="hall")
    yield site
    store.close()


@pytest.fixture
def anna(site: ConsoleSite) -> Iterator[TestClient]:
    with site.client("") as client:
        client.post("/sign-in", data={"name": "anna", "password": PASSWORD})
        yield client


def csrf_of(site: ConsoleSite, client: TestClient) -> str:
    session = site.people.session(client.cookies[SESSION_COOKIE])
    assert session is not None
    return session.csrf


@pytest.mark.parametrize(("name", "password"), [("a" * 65, PASSWORD), ("anna", LONG), (LONG, LONG)])
def test_what_is_too_long_to_sign_in_with_is_wrong_and_the_late_form_is_kept(
    anna: TestClient, site: ConsoleSite, name: str, password: str
) -> None:
    form = {"name": "bea", "role": "operator", "scope": "site=hall", "csrf": csrf_of(site, anna)}
    site.people.sign_out(anna.cookies[SESSION_COOKIE])
    anna.headers["sec-fetch-site"] = "same-origin"
    kept = fields(anna.post("/people", data=form).text, "/sign-in")
    wrong = anna.post("/sign-in", data={**kept, "name": name, "password": password})
    assert (wrong.status_code, "Name or password is wrong." in wrong.text) == (401, True)
    again = fields(wrong.text, "/sign-in")
    assert (again["name"], again["kept.name"], again["kept.scope"]) == (name, "bea", "site=hall")
    shown = anna.post("/sign-in", data={**again, "name": "anna", "password": PASSWORD})
    assert "bea" in shown.text
    assert anna.post("/people", data=fields(shown.text, "/people")).status_code == 200


def test_a_link_is_good_and_its_form_is_shown_after_a_name_that_is_too_long(tmp_path: Path) -> None:
    store = open_store(tmp_path / "controller.db")
    site = ConsoleSite(store)
    site.use(PeopleVisitors(site.people))
    with site.client("") as client:
        form = {"code": site.people.first_admin_link(by=LOCAL), "name": "a" * 65, "password": LONG, "again": LONG}
        refused = client.post("/link", data=form)
        assert (refused.status_code, fields(refused.text, "/link")["name"]) == (400, "a" * 65)
        assert "cannot call a person" in refused.text
        weak = client.post("/link", data={**form, "name": "anna"})
        assert (weak.status_code, "more than 256 characters" in weak.text) == (400, True)
        right = {**form, "name": "anna", "password": PASSWORD, "again": PASSWORD}
        assert client.post("/link", data=right).status_code == 303
    store.close()


FORMS = [
    ("/people", {"name": "bea", "role": "king", "scope": "site=hall"}, "role", "viewer", 200),
    ("/people", {"name": "b" * 65, "role": "viewer", "scope": "site=hall"}, "name", "bea", 200),
    ("/account/tokens", {"name": "ci", "role": "viewer", "scope": "site=hall", "days": "many"}, "days", "9", 200),
    ("/account/tokens", {"name": "ci", "role": "viewer", "scope": "y" * 501, "days": "9"}, "scope", "", 200),
    ("/enrol/tokens", {"name": "", "labels": "site=hall", "boxes": "0", "lasts_s": "86400"}, "boxes", "2", 200),
]


@pytest.mark.parametrize(("path", "form", "wrong", "right", "status"), FORMS)
def test_a_form_with_a_value_that_no_field_takes_is_shown_again_to_be_put_right(
    anna: TestClient, site: ConsoleSite, path: str, form: dict[str, str], wrong: str, right: str, status: int
) -> None:
    refused = anna.post(path, data={**form, "csrf": csrf_of(site, anna)})
    assert refused.status_code == 422
    assert f"{wrong}: " in html.unescape(refused.text)
    shown = fields(refused.text, path)
    assert form.items() <= shown.items()
    sent = anna.post(path, data={**shown, wrong: right})
    assert sent.status_code == status, sent.text


def test_a_password_is_not_shown_again_and_markup_is_text(anna: TestClient, site: ConsoleSite) -> None:
    form = {"name": '"><script>x</script>', "role": "king", "password": "a secret", "csrf": csrf_of(site, anna)}
    refused = anna.post("/people", data=form)
    assert refused.status_code == 422
    assert "a secret" not in refused.text
    assert "<script>x" not in refused.text
    assert fields(refused.text, "/people")["name"] == form["name"]


def test_an_address_that_is_wrong_has_no_form(anna: TestClient, site: ConsoleSite) -> None:
    long = f"/boxes/{'d' * 254}/commands"
    refused = anna.post(long, data={"op": "doctor.run", "csrf": csrf_of(site, anna)})
    assert refused.status_code == 422
    assert f'action="{long}"' not in refused.text
