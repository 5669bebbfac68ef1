"""`/metrics` in Prometheus' text format: the fleet's numbers, the durations of requests, the process."""

import time
from collections.abc import Iterator, Sequence
from ipaddress import ip_address, ip_network
from typing import TYPE_CHECKING

from fastapi import APIRouter, Request
from prometheus_client import CollectorRegistry, Histogram, PlatformCollector, ProcessCollector, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector
from starlette.concurrency import run_in_threadpool
from starlette.responses import PlainTextResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from edgegpu_cloud.console.api.access import api_visitor
from edgegpu_cloud.console.visitor import NotSignedInError
from edgegpu_cloud.errors import CloudError
from edgegpu_cloud.fleet.access import Permission
from edgegpu_cloud.fleet.numbers import FleetCounter, FleetNumbers

if TYPE_CHECKING:
    from edgegpu_cloud.console.web import ConsoleParts

router = APIRouter()
MEDIA_TYPE = "text/plain; version=0.0.4; charset=utf-8"
_BUCKETS = (0.01, 0.05, 0.1, 0.25, 1.0, 5.0)
_METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE"})


class ConsoleMetrics:
    """The metrics of one console process."""

    def __init__(self, counter: FleetCounter, *, sources: Sequence[str] = ()) -> None:
        """Take what counts the fleet, and the addresses or networks that read without a token."""
        self._networks = [ip_network(one) for one in sources]
        self._registry = CollectorRegistry()
        ProcessCollector(registry=self._registry)
        PlatformCollector(registry=self._registry)
        self._registry.register(_FleetCollector(counter))
        self._durations = Histogram(
            "edgegpu_http_request_duration_seconds",
            "Until the answer of a request began.",
            ("method", "route", "status"),
            buckets=_BUCKETS,
            registry=self._registry,
        )

    def text(self) -> bytes:
        """Return all metrics.

        Raises:
            StoreError: the database does not answer.
        """
        return generate_latest(self._registry)

    def is_source(self, host: str) -> bool:
        """Whether an address may read without a token."""
        try:
            address = ip_address(host)
        except ValueError:
            return False
        return any(address in network for network in self._networks)

    def observe(self, scope: Scope, status: int, duration_s: float) -> None:
        """Count a request under the template of its route: what people send is no label."""
        route = getattr(scope.get("route"), "path", "")
        root = str(scope.get("root_path", ""))
        method = scope["method"] if scope["method"] in _METHODS else "other"
        template = f"{root}{route}" if route else "other"
        self._durations.labels(method, template, f"{status // 100}xx").observe(duration_s)


class TimedRequests:
    """Measures the requests of an application."""

    def __init__(self, app: ASGIApp, metrics: ConsoleMetrics) -> None:
        self._app, self._metrics = app, metrics

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request; a stream counts until it begins."""
        began_s = time.monotonic()

        async def send_measured(message: Message) -> None:
            if message["type"] == "http.response.start":
                self._metrics.observe(scope, int(message["status"]), time.monotonic() - began_s)
            await send(message)

        await self._app(scope, receive, send_measured if scope["type"] == "http" else send)


class _FleetCollector(Collector):
    """The numbers of the fleet as metrics, counted when somebody asks."""

    def __init__(self, counter: FleetCounter) -> None:
        self._counter = counter

    def describe(self) -> list[Metric]:
        """Return nothing: a registry that asks for names does not count the fleet."""
        return []

    def collect(self) -> Iterator[Metric]:
        """Yield the metrics."""
        found = self._counter.numbers()
        yield _boxes(found)
        yield _gauge("edgegpu_boxes_with_problems", "Boxes that refused or failed at a request.", found.boxes.problems)
        yield _gauge("edgegpu_boxes_waiting", "Boxes that have not done all requests yet.", found.boxes.waiting)
        yield _gauge("edgegpu_units", "Units of memory on all cards that are shared.", found.boxes.units)
        yield _gauge(
            "edgegpu_free_units", "Units of memory of connected boxes that no pod holds.", found.boxes.free_units
        )
        yield _gauge("edgegpu_alerts_firing", "Alerts that fire.", found.alerts)
        commands = GaugeMetricFamily(
            "edgegpu_commands", "Commands under way, and those that ended within the last hour.", labels=["state"]
        )
        for state, number in sorted(found.commands.items()):
            commands.add_metric([state], number)
        yield commands
        held = GaugeMetricFamily("edgegpu_partitions_held", "Partitions by controller.", labels=["controller"])
        for controller, number in sorted(found.partitions.items()):
            held.add_metric([controller], number)
        yield held
        messages = CounterMetricFamily("edgegpu_messages_ingested", "Messages of boxes that a controller has taken.")
        messages.add_metric([], found.messages)
        yield messages
        refused = CounterMetricFamily(
            "edgegpu_enrolments_refused",
            "Requests to enrol that were refused with an alarm, or unread, as their token was refused too often.",
            labels=["how"],
        )
        for how, number in found.refusals.items():
            refused.add_metric([how.value], number)
        yield refused
        yield _gauge("edgegpu_numbers_time_seconds", "When these numbers were counted, since 1970.", found.at_s)


def _gauge(name: str, text: str, value: float) -> Metric:
    return GaugeMetricFamily(name, text, value=value)


def _boxes(found: FleetNumbers) -> Metric:
    boxes = GaugeMetricFamily(
        "edgegpu_boxes", "Boxes by state; `ignored`: revoked, set aside or blocked.", labels=["state"]
    )
    states = {"online": found.boxes.connected, "offline": found.boxes.offline, "ignored": found.boxes.ignored}
    for state, number in states.items():
        boxes.add_metric([state], number)
    return boxes


@router.get("/metrics")
async def metrics(request: Request) -> Response:
    """Return the metrics to a named address, or to whoever may see all boxes."""
    parts: ConsoleParts = request.state.parts
    if request.client is None or not parts.metrics.is_source(request.client.host):
        try:
            visitor = await api_visitor(request, None)
        except NotSignedInError:
            words = "send an API token, or name this address in console.metrics_from\n"
            return PlainTextResponse(words, 401, headers={"WWW-Authenticate": "Bearer"})
        if not visitor.access.may(Permission.METRICS):
            return PlainTextResponse("your scope is a part of the boxes: these are numbers of all\n", 403)
    try:
        return Response(await run_in_threadpool(parts.metrics.text), media_type=MEDIA_TYPE)
    except CloudError:
        return PlainTextResponse("the store does not answer\n", 503)
