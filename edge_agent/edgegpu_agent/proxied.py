"""HTTPS by a proxy where one is configured, else straight; the environment's variables do not count."""

from typing import Any
from urllib.parse import unquote, urlsplit

import urllib3


def pool(proxy: str, **options: Any) -> urllib3.PoolManager:  # noqa: ANN401  (what PoolManager takes)
    """Return a pool of connections.

    Args:
        proxy: http://[USER:PASSWORD@]HOST:PORT, or nothing. urllib3 itself passes over what stands before the @.
        options: of PoolManager.
    """
    if not proxy:
        return urllib3.PoolManager(**options)
    who, at, place = urlsplit(proxy).netloc.rpartition("@")
    headers = urllib3.make_headers(proxy_basic_auth=unquote(who)) if at else None
    return urllib3.ProxyManager(f"{urlsplit(proxy).scheme}://{place}", proxy_headers=headers, **options)
