"""Where a box belongs, as `edgegpu install` is told it, and whether its token has been spent already."""

from edgegpu_agent.cli.errors import CliError
from edgegpu_agent.identity.device import CloudAddress, load_identity
from edgegpu_agent.identity.enrolment import token_hash
from edgegpu_agent.identity.errors import IdentityError
from edgegpu_agent.settings import CloudSection
from edgegpu_installer.layout import Layout


def cloud_of(url: str, ca_sha256: str) -> CloudAddress:
    """Return the options in the form in which the agent reads them; without an address they are passed on.

    Raises:
        CliError: one of them cannot be.
    """
    if not url:
        return CloudAddress(url="", ca_sha256=ca_sha256)
    try:
        cloud = CloudSection(url=url, ca_sha256=ca_sha256)
    except ValueError as error:
        raise CliError(
            f"cannot install with --cloud {url} --ca-sha256 {ca_sha256}: no https address, or no SHA-256",
            remedy="take the line from your cloud anew",
        ) from error
    return CloudAddress(url=cloud.url, ca_sha256=cloud.ca_sha256)


def is_spent(layout: Layout, token: str) -> bool:
    """Say whether this box is who it is by this very token: the same line, pasted again, has nothing to hand in."""
    try:
        identity = load_identity(layout.state / "identity")
    except IdentityError:
        return False
    return identity is not None and bool(token) and identity.device.token_sha256 == token_hash(token)
