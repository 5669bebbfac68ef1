"""The URL by which boxes reach this controller's HTTPS."""

from edgegpu_cloud.errors import CloudError
from edgegpu_cloud.layout import CloudConfig


def url_of(config: CloudConfig) -> str:
    """Return `https.url`, or the URL of the first name and the port.

    Raises:
        CloudError: there is neither.
    """
    if config.https.url:
        return config.https.url.rstrip("/")
    if not config.names:
        raise CloudError(
            "cannot tell boxes where to enrol: the controller has no name",
            remedy="set names or https.url in controller.yaml",
        )
    host = f"[{config.names[0]}]" if ":" in config.names[0] else config.names[0]
    return f"https://{host}:{config.https.port}"
