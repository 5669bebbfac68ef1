"""Enrolment on the controller's own machine: the tokens and boxes of its store, and the line with what boxes pin."""

import time

from edgegpu_cloud.enrolment.install_lines import EnrolLine, enrol_line, enrolment_address
from edgegpu_cloud.enrolment.manager import EnrolmentManager, TokenRequest
from edgegpu_cloud.fleet.access import Access
from edgegpu_cloud.http.urls import url_of
from edgegpu_cloud.layout import CloudConfig, CloudLayout
from edgegpu_cloud.store.store import ControllerStore


class LocalEnrolment(EnrolmentManager):
    """Enrolment as the person at this command line changes it."""

    def __init__(self, store: ControllerStore, layout: CloudLayout, config: CloudConfig, *, access: Access) -> None:
        """Take a controller's store, files and configuration, and who asks."""
        super().__init__(store, clock=time.time, access=access, defaults=config.tokens)
        self._layout, self._url = layout, url_of(config)

    def make_line(self, wanted: TokenRequest) -> EnrolLine:
        """Make a token; return the line that holds it.

        Raises:
            CloudError: as `make`, or a certificate cannot be read.
        """
        return enrol_line(enrolment_address(self._layout, self._url), self.make(wanted))
