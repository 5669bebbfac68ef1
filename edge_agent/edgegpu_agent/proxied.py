"""HTTPS through the configured proxy, or without one; the environment's proxy variables are ignored."""

from typing import Any
from urllib.parse import unquote, urlsplit

import urllib3


def pool(proxy: str, **options: Any) -> urllib3.PoolManager:  # noqa: ANN401  (what PoolManager takes)
    """Return a pool of connections, through the proxy if there is one.

    Args:
        proxy: http://[USER:PASSWORD@]HOST:PORT, or empty. urllib3 itself ignores the part before the @.
        options: the options of PoolManager.
    """
    if not proxy:
        return urllib3.PoolManager(**options)
    who, at, place = urlsplit(proxy).netloc.rpartition("@")
    headers = urllib3.make_headers(proxy_basic_auth=unquote(who)) if at else None
    return urllib3.ProxyManager(f"{urlsplit(proxy).scheme}://{place}", proxy_headers=headers, **options)
