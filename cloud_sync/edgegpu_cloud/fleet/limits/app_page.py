"""A page of the matrix of apps and boxes: some apps by name, and some of the boxes that have any of them."""

from dataclasses import dataclass, replace

from edgegpu_cloud.fleet.details import box_details
from edgegpu_cloud.fleet.limits.app_matrix import AppMatrix, app_matrix
from edgegpu_cloud.fleet.listing import PageOrder, page_of
from edgegpu_cloud.store.store import Transaction
from edgegpu_cloud.store.summaries.box_list import BoxQuery

APPS, BOXES = 25, 12
"""Apps and boxes on one page."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AppQuery:
    """What is looked for: words in NAMESPACE/APP, a selector over the boxes' labels, and the page.

    `after` is the last app of the page before. `boxes` is a cursor of the boxes' pages.
    """

    words: str = ""
    selector: str = ""
    after: str = ""
    boxes: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class AppPage:
    """A page of the matrix. The cursors are empty where there is no such page; `number`: boxes that have the apps."""

    matrix: AppMatrix
    next_apps: str
    next_boxes: str
    previous_boxes: str
    number: int


def app_page_of(tx: Transaction, where: AppQuery, query: BoxQuery, *, now_s: float) -> AppPage:
    """Return a page of the matrix; no more boxes are read than it shows.

    Args:
        tx: the transaction.
        where: the page.
        query: the boxes among which is looked.
        now_s: the present time, seconds since 1970.

    Raises:
        CloudError: the cursor belongs to no page of this list.
    """
    found = tx.list.apps(query, words=_text(where.words), after=_text(where.after), limit=APPS + 1)
    apps = found[:APPS]
    if not apps:
        return AppPage(matrix=AppMatrix([], []), next_apps="", next_boxes="", previous_boxes="", number=0)
    having = replace(query, apps=apps)
    page = page_of(tx, having, PageOrder(limit=BOXES, cursor=where.boxes))
    records = tx.boxes.get([one.device for one in page.boxes])
    boxes = box_details(tx, [records[one.device] for one in page.boxes], now_s=now_s)
    return AppPage(
        matrix=app_matrix(boxes, apps),
        next_apps=apps[-1] if len(found) > APPS else "",
        next_boxes=page.next,
        previous_boxes=page.previous,
        number=tx.list.number(having),
    )


def _text(words: str) -> str:
    """Return a text without the one character that PostgreSQL has in no text."""
    return words.replace("\0", "")
