"""The cluster that a box belongs to: bound at its first report; a later report of another one does not count. Pure."""

from edgegpu_base.records import replace
from edgegpu_cloud.errors import CloudError
from edgegpu_cloud.phrases import phrase
from edgegpu_cloud.store.records import Json
from edgegpu_cloud.store.summaries.tables import BoxSummary


def bound(before: BoxSummary, reported: Json) -> BoxSummary:
    """Return a box's summary with the cluster that counts after a reported state.

    A box without one is bound to the first that it reports, unless it was refused. A box that reports none for a while
    stays where it is. What it reports beside is its claim, and with one it applies no cluster's limits.
    """
    cluster, is_holder = str(reported.get("cluster", "")), bool(reported.get("holder", False))
    if not cluster:
        return replace(before, holder=False)
    if not before.cluster and not before.claim:
        return replace(before, cluster=cluster, holder=is_holder)
    if cluster == before.cluster:
        return replace(before, claim="", holder=is_holder)
    return replace(before, claim=cluster, holder=False)


def accepted(before: BoxSummary, reported: Json, *, name: str) -> BoxSummary:
    """Return a box's summary when the cluster that it claims counts from now on.

    Raises:
        CloudError: it claims none.
    """
    if not before.claim:
        raise CloudError(
            phrase("cannot accept the cluster of %(box)s: it reports none that does not count", box=name),
            remedy=phrase("nothing needs to be done"),
        )
    return bound(replace(before, cluster=before.claim, claim=""), reported)


def refused(before: BoxSummary, *, name: str) -> BoxSummary:
    """Return a box's summary when it belongs to no cluster, whatever it reports, until one is accepted.

    Raises:
        CloudError: it belongs to none.
    """
    if not before.cluster:
        raise CloudError(
            phrase("cannot refuse the cluster of %(box)s: it belongs to none", box=name),
            remedy=phrase("nothing needs to be done"),
        )
    return replace(before, cluster="", claim=before.claim or before.cluster, holder=False)


def check_claim(box: str, cluster: str, summary: BoxSummary) -> None:
    """Refuse limits on a box whose cluster does not count.

    Raises:
        CloudError: it reports another one than it belongs to, or its cluster was refused.
    """
    if summary.claim or (summary.cluster and cluster != summary.cluster):
        raise CloudError(
            phrase("cannot set limits on %(box)s: the cluster that it reports does not count", box=box),
            remedy=phrase(
                "look at the machine; if it was really moved: `edgegpu-cloud boxes cluster %(box)s --accept`", box=box
            ),
        )


def check_rivals(box: str, holders: int) -> None:
    """Refuse limits in a cluster whose limits several boxes say that they apply.

    Raises:
        CloudError: they do.
    """
    if holders > 1:
        raise CloudError(
            phrase(
                "cannot set limits on %(box)s: %(num)s boxes say that they apply the limits of its cluster",
                box=box,
                num=holders,
            ),
            remedy=phrase(
                "their alert names them: look at these machines, then for the wrong one `edgegpu-cloud boxes cluster "
                "BOX --refuse`"
            ),
        )
