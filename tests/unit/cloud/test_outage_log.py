"""What fails for an hour is one line, and a second one at its end."""

import logging

import pytest

from edgegpu_cloud.errors import CloudError
from edgegpu_cloud.outage_log import OutageLog


def test_a_failure_is_logged_once_until_its_cause_changes_or_it_is_over(caplog: pytest.LogCaptureFixture) -> None:
    outages = OutageLog(logging.getLogger("task"))
    for cause in ("it is away", "it is away", "it is full", "it is full"):
        outages.failed("write the list", CloudError(cause, remedy="do this"))
    outages.failed("count", CloudError("it is away"))
    outages.worked("write the list")
    outages.worked("write the list")
    outages.failed("write the list", CloudError("it is full", remedy="do this"))
    assert [(record.levelname, record.getMessage()) for record in caplog.records] == [
        ("ERROR", "cannot write the list, which is tried again: it is away; do this"),
        ("ERROR", "cannot write the list, which is tried again: it is full; do this"),
        ("ERROR", "cannot count, which is tried again: it is away"),
        ("WARNING", "works again: write the list"),
        ("ERROR", "cannot write the list, which is tried again: it is full; do this"),
    ]
