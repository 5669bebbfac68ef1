"""The key that a controller signs with, and the key sets that boxes obey; both may change while the controller runs."""

import logging
from collections.abc import Callable

from edgegpu_cloud.errors import CloudError
from edgegpu_sync.keys import KeySet, key_id
from edgegpu_sync.messages.downlink import KeySetLink
from edgegpu_sync.signing import Signer

_LOG = logging.getLogger(__name__)


class SigningKey:
    """The key that the controller signs with now."""

    def __init__(self, read: Callable[[], Signer]) -> None:
        """Read the key; `read` is called again for each new set.

        Raises:
            CloudError: it cannot be read.
        """
        self._read = read
        self.signer = read()
        self.chain: tuple[KeySetLink, ...] = ()

    def begin(self, chain: tuple[KeySetLink, ...]) -> None:
        """Take the present sets, first to last, and the key that is in effect with them."""
        self.chain = chain
        self.refresh()

    def refresh(self) -> None:
        """Take the key that is in effect with the newest set; one that cannot be read leaves the present one."""
        try:
            signer = self._read()
        except CloudError:
            _LOG.exception("cannot read the key: this controller goes on with %s", self.signer.kid)
            return
        if signer.kid != self.signer.kid:
            _LOG.warning("signs with %s from now on, no more with %s", signer.kid, self.signer.kid)
            self.signer = signer
        if not self._obeyed():
            _LOG.error("no box obeys this controller: its key %s is not in the newest key set", self.signer.kid)

    def _obeyed(self) -> bool:
        if not self.chain:
            return False
        newest = KeySet.model_validate_json(self.chain[-1].set)
        return self.signer.kid in {key_id(key.public) for key in newest.keys}
