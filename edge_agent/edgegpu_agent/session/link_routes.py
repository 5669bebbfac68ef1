"""The routes of this box to its broker: by the settings, and by what connected last."""

from edgegpu_agent.identity.identity_files import Broker
from edgegpu_agent.session.machine import LinkMemory
from edgegpu_agent.settings import CloudSection
from edgegpu_sync.link.events import LinkUp
from edgegpu_sync.link.routes import BrokerRoute, proxy_of


class BoxRoutes:
    """The routes that the link of this box tries, and the one by which it is up."""

    def __init__(self, broker: Broker, cloud: CloudSection, memory: LinkMemory) -> None:
        """Read what connected last.

        Args:
            broker: the address that the cloud named at the enrolment.
            cloud: the settings, with the proxy and an address of the broker that goes before that one.
            memory: keeps the route that connected last.
        """
        self._memory, self._last = memory, memory.recall_route()
        self._configured = configured_routes(broker, cloud)
        self._up: LinkUp | None = None

    def routes(self) -> tuple[BrokerRoute, ...]:
        """Return the routes to try, the best first.

        The route that connected last goes first while the settings have it. One that the settings have no more stays
        the last resort until another one has connected: a wrong setting takes no box off its link.
        """
        last, configured = self._last, self._configured
        if last is None:
            return configured
        if last in configured:
            return (last, *(route for route in configured if route != last))
        return (*configured, last)

    def connected(self, up: LinkUp) -> None:
        """Remember the route by which the link is up."""
        self._up = up
        if up.route is not None:
            self._last = up.route
            self._memory.remember_route(up.route)

    def status(self) -> dict[str, str]:
        """Return the fields of the agent's status for a link that is up."""
        up = self._up
        if up is None or up.route is None:
            return {}
        trouble = ""
        if up.route not in self._configured:
            head = f"connected to {up.route}, which the settings name no more"
            trouble = f"{head}: what they name does not connect: {up.failed}" if up.failed else head
        return {"route": str(up.route), "route_trouble": trouble}


def configured_routes(broker: Broker, cloud: CloudSection) -> tuple[BrokerRoute, ...]:
    """Return the routes that the settings have: straight and by the proxy, first to the broker that they name."""
    proxy = proxy_of(cloud.proxy)
    ends = dict.fromkeys([*([cloud.broker_address] if cloud.broker_address else []), (broker.host, broker.port)])
    proxies = [None, proxy] if proxy is not None else [None]
    return tuple(BrokerRoute(host=host, port=port, proxy=via) for host, port in ends for via in proxies)
