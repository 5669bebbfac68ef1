"""The URLs by which boxes reach this controller's HTTPS, and people its console."""

from edgegpu_cloud.errors import CloudError
from edgegpu_cloud.layout import CloudConfig, ConsoleConfig


def url_of(config: CloudConfig) -> str:
    """Return `https.url`, or the URL of the first name and the port.

    Raises:
        CloudError: there is neither.
    """
    return config.https.url.rstrip("/") or _made(config, config.https.port, "https.url")


def console_url(config: CloudConfig, console: ConsoleConfig) -> str:
    """Return `console.url`, or the URL of the first name and the console's port.

    Raises:
        CloudError: there is neither.
    """
    return console.url.rstrip("/") or _made(config, console.port, "console.url")


def link_url(config: CloudConfig, secret: str) -> str:
    """Return the URL of a one-time link. The secret stands in the query, which no log of ours keeps.

    Raises:
        CloudError: this controller serves no console, or there is no name for it.
    """
    if config.console is None:
        remedy = "add the section `console` to controller.yaml: docs/cloud/console.md says how"
        raise CloudError("cannot make a link: this controller serves no console", remedy=remedy)
    return f"{console_url(config, config.console)}/link?code={secret}"


def _made(config: CloudConfig, port: int, key: str) -> str:
    if not config.names:
        raise CloudError(
            "cannot make a URL of this controller: it has no name", remedy=f"set names or {key} in controller.yaml"
        )
    host = f"[{config.names[0]}]" if ":" in config.names[0] else config.names[0]
    return f"https://{host}:{port}"
