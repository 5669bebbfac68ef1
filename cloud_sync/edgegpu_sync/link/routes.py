"""The routes from a link to its broker: straight or by a site's proxy, and which of them the next try takes."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from urllib.parse import quote, unquote, urlsplit

from edgegpu_sync.link.rules import ConnectionEnd, ReconnectBackoff

_PORTS = {"http": 80, "https": 443}

SPARE_FAILURES, SPARE_S = 4, 60.0
"""A route that is not the one that connected last waits as after so many failures more, and for 60 s at least in the
end: a firewall may swallow each try for 5 s, in which the other route cannot be tried."""

HOLD_BACK_S = 3.0
"""After a connection has ended its own route is tried alone for so long."""


def host_port(host: str, port: int) -> str:
    """Return HOST:PORT, an IPv6 address in brackets."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


@dataclass(frozen=True, slots=True, kw_only=True)
class HttpProxy:
    """A site's proxy for CONNECT; its text never has user and password."""

    host: str
    port: int
    tls: bool = False
    user: str = field(default="", repr=False)
    """USER:PASSWORD; empty: none is sent."""

    @property
    def url(self) -> str:
        """The URL with user and password: a secret where there is one."""
        user, _, password = self.user.partition(":")
        who = f"{quote(user, safe='')}:{quote(password, safe='')}@" if self.user else ""
        return str(self).replace("://", f"://{who}", 1)

    def __str__(self) -> str:
        """Return the address alone."""
        return f"http{'s' * self.tls}://{host_port(self.host, self.port)}"


def proxy_of(url: str) -> HttpProxy | None:
    """Return the proxy of `http://[USER:PASSWORD@]HOST[:PORT]`; None for an empty text.

    Raises:
        ValueError: the URL has no host, or a port that is none, or an @ after the host: then a / or # of the password
            would have ended the host.
    """
    if not url:
        return None
    parts = urlsplit(url)
    if not parts.hostname or parts.scheme not in _PORTS or "@" in f"{parts.path}{parts.query}{parts.fragment}":
        raise ValueError("not a proxy's address: http://HOST:PORT")
    user, _, password = parts.netloc.rpartition("@")[0].partition(":")
    return HttpProxy(
        host=parts.hostname,
        port=parts.port or _PORTS[parts.scheme],
        tls=parts.scheme == "https",
        user=f"{unquote(user)}:{unquote(password)}" if user or password else "",
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerRoute:
    """A route to the broker: its address, and the proxy to reach it by."""

    host: str
    port: int
    proxy: HttpProxy | None = None

    def __str__(self) -> str:
        """Return the addresses, without user and password."""
        return f"{host_port(self.host, self.port)}{f' by the proxy {self.proxy}' if self.proxy else ''}"


@dataclass(slots=True)
class _Tries:
    """The tries of one route: the backoff, when the next is due, and why the last has failed."""

    backoff: ReconnectBackoff = field(default_factory=ReconnectBackoff)
    due: float = 0.0
    why: str = ""


class RouteTable:
    """The tries of each route. Each waits by its own failures: a proxy that refuses does not hold the others back."""

    def __init__(self) -> None:
        """Make it empty: every route is due."""
        self._tries: dict[BrokerRoute, _Tries] = {}
        self._last: BrokerRoute | None = None

    def choose(self, routes: Sequence[BrokerRoute]) -> BrokerRoute:
        """Return the route that is due first; of several the first in order."""
        self._tries = {route: self._tries.get(route, _Tries()) for route in routes}
        return min(routes, key=lambda route: self._tries[route].due)

    def connected(self, route: BrokerRoute) -> str:
        """Record that a route has connected; return why the others have not, empty where none was tried."""
        self._last, self._tries[route].why = route, ""
        return self.why

    def ended(
        self, route: BrokerRoute, ending: ConnectionEnd, why: str, *, up_s: float, now: float, roll: float
    ) -> None:
        """Record the end of a try or of a connection that was up for `up_s` seconds; `roll` is random in [0, 1)."""
        tries = self._tries[route]
        if up_s:
            for spare in self._tries.values():
                if spare is not tries:
                    spare.backoff, spare.due, spare.why = ReconnectBackoff(SPARE_FAILURES), now + HOLD_BACK_S, ""
        tries.backoff = tries.backoff.after(up_s=up_s)
        longest_s = SPARE_S if self._last not in {None, route} else 0.0
        tries.due = now + tries.backoff.wait_s(ending, roll, longest_s=longest_s)
        tries.why = why

    def wait_s(self, now: float) -> float:
        """Return the seconds until the next try."""
        return max(0.0, min((one.due for one in self._tries.values()), default=now) - now)

    def wake(self) -> None:
        """Let every route be due."""
        for tries in self._tries.values():
            tries.due = 0.0

    @property
    def why(self) -> str:
        """Why the routes have failed, in their order."""
        return "; ".join(dict.fromkeys(one.why for one in self._tries.values() if one.why))
