"""What the boxes of a filter would make of settings of their sharing, page by page."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from edgegpu_cloud.errors import CloudError
from edgegpu_cloud.fleet.details import details_page
from edgegpu_cloud.fleet.preview.sharing import ItemPreview, preview_named
from edgegpu_cloud.fleet.specs import SharingSettings
from edgegpu_cloud.fleet.views import BoxDetails
from edgegpu_cloud.store.store import Transaction
from edgegpu_cloud.store.summaries.box_list import BoxQuery
from edgegpu_sync.ids import DeviceId


@dataclass(frozen=True, slots=True, kw_only=True)
class BoxSharingPreview:
    """What a box would make of each setting, by its item's name; `items` is None where that is not known.

    `text` says why then, `remedy` what to do.
    """

    device: DeviceId
    name: str
    items: Mapping[str, ItemPreview] | None
    text: str = ""
    remedy: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class SharingPreviewPage:
    """Boxes by name with what they would make of settings, and `after` for the next page; empty where there is none.

    `seen`: of the first page, all boxes as they were seen (`BoxSet.text`), for `Operations.start`.
    """

    boxes: Sequence[BoxSharingPreview]
    next: str
    seen: str = ""


def sharing_preview_page(
    tx: Transaction, query: BoxQuery, settings: SharingSettings, *, after: str, limit: int, now_s: float
) -> SharingPreviewPage:
    """Return a page of the boxes of a query with what each would make of settings, by its last report."""
    asked, more = details_page(tx, query, after=after, limit=limit, now_s=now_s)
    return SharingPreviewPage(boxes=[_judged(one, settings) for one in asked], next=more)


def _judged(details: BoxDetails, settings: SharingSettings) -> BoxSharingPreview:
    box = details.box
    try:
        items = preview_named(details, settings)
    except CloudError as error:
        return BoxSharingPreview(device=box.device, name=box.name, items=None, text=error.text, remedy=error.remedy)
    return BoxSharingPreview(device=box.device, name=box.name, items=items)
