"""The fleet: every box with its health, its cards' free units and its problems; the database searches and pages."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Annotated
from urllib.parse import urlencode

from fastapi import APIRouter, Query, Request
from pydantic import BaseModel, ConfigDict, Field
from starlette.responses import Response

from edgegpu_cloud.console.context import Pages, VisitorFleet
from edgegpu_cloud.errors import CloudError
from edgegpu_cloud.fleet.listing import BoxFilter, BoxPage, PageOrder, filter_json
from edgegpu_cloud.numbers import is_number
from edgegpu_cloud.store.operations.records import OperationKind
from edgegpu_cloud.store.records import BoxState, Json
from edgegpu_cloud.store.summaries.box_list import BoxCounts, BoxSort

router = APIRouter()

PAGE = 50
"""Boxes on one page."""

_IGNORED = frozenset({BoxState.REVOKED, BoxState.SET_ASIDE, BoxState.BLOCKED})
_ENROLLED = frozenset({BoxState.ENROLLED})
SHOWN: Mapping[str, BoxFilter] = {
    "all": BoxFilter(),
    "connected": BoxFilter(connected=True),
    "offline": BoxFilter(connected=False, states=_ENROLLED),
    "unhealthy": BoxFilter(health=frozenset({"warn", "bad"})),
    "problems": BoxFilter(problems=True),
    "waiting": BoxFilter(waiting=True),
    "room": BoxFilter(free_units=1),
    "ignored": BoxFilter(states=_IGNORED),
}
"""The links above the list, and what each shows."""


def as_searched(found: Json) -> Json:
    """Return a stored filter in the words of this page: the fields that one of its links stands for are its `show`."""
    links = {name: filter_json(link) for name, link in SHOWN.items()}
    fitting = [show for show, link in links.items() if all(found.get(name) == value for name, value in link.items())]
    show = max(fitting, key=lambda one: len(links[one]))
    if show == "all":
        return found
    return {"show": show} | {name: value for name, value in found.items() if name not in links[show]}


SORTS = {"name": BoxSort.NAME, "free": BoxSort.FREE, "agent": BoxSort.AGENT, "seen": BoxSort.SEEN}


class FleetQuery(BaseModel):
    """What a person looks for, as the page's address has it.

    Words in name, host, labels and apps, a selector over labels, so many free units at least, a version of the agent,
    one of the links, a column and its direction, and the place of a page.
    """

    model_config = ConfigDict(frozen=True)

    q: Annotated[str, Field(max_length=200)] = ""
    labels: Annotated[str, Field(max_length=500)] = ""
    free: Annotated[str, Field(max_length=9)] = ""
    agent: Annotated[str, Field(max_length=100)] = ""
    show: Annotated[str, Field(max_length=20)] = "all"
    sort: Annotated[str, Field(max_length=20)] = "name"
    down: bool = False
    at: Annotated[str, Field(max_length=1_000)] = ""
    checked: bool = False
    """Whether the boxes of the page are selected: the link does it where there is no script."""

    def url(self, **changes: str | bool) -> str:
        """Return the address of the list with some of it changed; another list begins at its first page."""
        other = self.model_copy(update={"at": "", "checked": False, **changes}).model_dump(exclude_defaults=True)
        words = {name: "true" if value is True else value for name, value in other.items()}
        return f"/?{urlencode(words)}" if words else "/"

    def searched(self) -> BoxFilter:
        """Return the filter of what was typed, without the link."""
        free = int(self.free) if is_number(self.free, digits=9) else 0
        return BoxFilter(search=self.q.strip(), selector=self.labels.strip(), free_units=free, agent=self.agent)

    def filter(self) -> BoxFilter:
        """Return the filter of the list."""
        typed, link = self.searched(), SHOWN.get(self.show, SHOWN["all"])
        return replace(
            link,
            search=typed.search,
            selector=typed.selector,
            agent=typed.agent,
            free_units=max(typed.free_units, link.free_units),
        )

    @property
    def searched_by(self) -> Mapping[str, str]:
        """Return the fields that decide which boxes match, less those that are empty."""
        return self.model_dump(include={"q", "labels", "free", "agent", "show"}, exclude_defaults=True)

    def order(self) -> PageOrder:
        """Return how the list is sorted, and where its page is."""
        return PageOrder(sort=SORTS.get(self.sort, BoxSort.NAME), descending=self.down, limit=PAGE, cursor=self.at)


_NOTHING = BoxPage(boxes=(), next="", previous="")


@router.get("/")
def fleet_page(request: Request, fleet: VisitorFleet, pages: Pages, query: Annotated[FleetQuery, Query()]) -> Response:
    """Show the boxes that match."""
    problem = None
    try:
        page, counts = fleet.page(query.filter(), query.order()), fleet.counts(query.searched())
        match = counts if query.filter() == query.searched() else fleet.counts(query.filter())
    except CloudError as error:
        page, counts, match, problem = _NOTHING, BoxCounts(), BoxCounts(), error
    numbers = _counts(counts)
    values = {
        "query": query,
        "page": page,
        "counts": numbers,
        "match": match,
        "agents": counts.agents,
        "kinds": tuple(kind.value for kind in OperationKind),
        "problem": problem,
    }
    return pages.page(request, "fleet.html", values, block="list")


def _counts(found: BoxCounts) -> Mapping[str, int]:
    """Return the number behind each link."""
    return {
        "all": found.boxes,
        "connected": found.connected,
        "offline": found.offline,
        "unhealthy": found.warn + found.bad,
        "problems": found.problems,
        "waiting": found.waiting,
        "room": found.with_room,
        "ignored": found.ignored,
    }
