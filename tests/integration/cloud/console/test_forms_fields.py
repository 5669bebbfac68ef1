"""Every field of every form with a value that it does not take: a sentence names it, and what was typed stays."""

from __future__ import annotations

import html
import re
from typing import TYPE_CHECKING

import pytest
from fastapi.routing import APIRoute
from kits.console import ConsoleSite
from kits.consolepages import fields
from kits.details import box, card, pod, reported
from kits.enrol import office
from kits.people import LOCAL, PASSWORD
from pydantic import BaseModel

from edgegpu_cloud.console.people_visitors import PeopleVisitors
from edgegpu_cloud.console.web import ROUTERS
from edgegpu_cloud.store.people.records import Role

if TYPE_CHECKING:
    from collections.abc import Iterator

    from fastapi.dependencies.models import Dependant
    from starlette.testclient import TestClient

WITHOUT_SESSION = {"/sign-in", "/link", "/preferences"}
"""Where a form needs no session; `test_sign_in.py` and `test_forms_invalid.py` have these."""

BAD = "y" * 9_000
RIGHT = {
    "again": PASSWORD,
    "approval": "yes",
    "boxes": "2",
    "core": "1",
    "current": PASSWORD,
    "days": "9",
    "do": "seen",
    "force": "yes",
    "interrupt": "yes",
    "isolation": "none",
    "key": "k",
    "labels": "site=hall",
    "language": "en",
    "lasts_s": "86400",
    "live": "yes",
    "measure": "units",
    "memory": "4",
    "name": "bea",
    "number": "1",
    "on_drift": "report",
    "once": "x",
    "op": "doctor.run",
    "password": PASSWORD,
    "policy": "spread",
    "rev": "0",
    "role": "viewer",
    "scope": "site=hall",
    "typed": "hall-1",
    "unit_mib": "256",
}
"""A value that each field takes, beside a bad one; the others may be empty."""

IN_OTHER_WORDS = {
    ("/account/password", "current"): "The present password is wrong.",
    ("/account/password", "password"): "The two passwords differ.",
    ("/account/password", "again"): "The two passwords differ.",
    ("/boxes/{device}/limits/{namespace}/{app}/{container}", "box"): "the form names no box, revision and units",
    ("/boxes/{device}/sharing", "exclude"): f"cannot exclude {BAD}",
    ("/operations", "query"): "cannot change many boxes",
    ("/rollouts", "query"): "1 field has to be corrected: it says what is wrong beside it.",
}
"""Where the sentence has no field's name: of a password, which stays nowhere, and of what our pages put in."""


def fields_of(of: Dependant) -> Iterator[str]:
    """Yield the names of the fields that a route reads of a form."""
    for one in of.body_params:
        kind = one.field_info.annotation
        if isinstance(kind, type) and issubclass(kind, BaseModel):
            yield from (part.alias or name for name, part in kind.model_fields.items())
        else:
            yield one.alias
    for other in of.dependencies:
        yield from fields_of(other)


def forms() -> dict[str, tuple[str, ...]]:
    """Return the fields of each form that needs a session, by its route."""
    found = [one for router in ROUTERS for one in router.routes if isinstance(one, APIRoute)]
    posts = [one for one in found if "POST" in (one.methods or ()) and one.path not in WITHOUT_SESSION]
    return {
        one.path: tuple(dict.fromkeys(name for name in fields_of(one.dependant) if name != "csrf")) for one in posts
    }


FORMS = forms()


@pytest.fixture(scope="module")
def desk(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[TestClient, str, str]]:
    """Return a browser of anna, her CSRF token, and the id of a box of which an app holds 4 units."""
    cloud = office(tmp_path_factory.mktemp("forms") / "cloud")
    site = ConsoleSite(cloud.store)
    site.use(PeopleVisitors(site.people))
    site.people.redeem(site.people.create("anna", role=Role.ADMIN, by=LOCAL), "", PASSWORD)
    device = site.add(1, "hall-1", site="hall")
    site.report(device, reported(box("hall-1", (card("0"), card("1")), {"u1": pod("asr-0", ("main", "0", 4, 1))})))
    site.connect(device)
    with site.client("") as client:
        client.post("/sign-in", data={"name": "anna", "password": PASSWORD})
        csrf = fields(client.get("/account").text, "/account/language")["csrf"]
        yield client, csrf, device
    cloud.store.close()


def test_the_fields_of_the_forms_are_found() -> None:
    assert {"typed", "seen", "key", "query"} == set(FORMS["/operations"])
    assert sum(map(len, FORMS.values())) > 40
    assert {name for of in FORMS.values() for name in of} >= RIGHT.keys()


@pytest.mark.parametrize(("path", "field"), [(path, name) for path, names in FORMS.items() for name in names])
def test_a_bad_value_is_named_and_what_was_typed_stays(
    desk: tuple[TestClient, str, str], path: str, field: str
) -> None:
    client, csrf, device = desk
    places = {"device": device, "name": "anna", "number": "1", "verb": "pause"}
    there = re.sub(r"{(\w+)}", lambda found: places.get(found[1], "x"), path)
    right = {name: f"{device}:0:4" if name == "box" else RIGHT.get(name, "") for name in FORMS[path]}
    form = {**right, field: BAD}
    refused = client.post(there, data={**form, "csrf": csrf}, follow_redirects=False)
    assert 400 <= refused.status_code < 500, refused.text
    told = html.unescape(re.sub("<[^>]+>", " ", refused.text.partition("<main")[2]))
    if (words := IN_OTHER_WORDS.get((path, field))) is not None:
        assert words in told
        return
    assert f"{field}: " in told
    assert form.items() <= fields(refused.text, there).items()
