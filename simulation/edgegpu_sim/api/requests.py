"""The API's paths and requests, except watches: from a route and a body to a status code and an object."""

import base64
import json
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import count
from urllib.parse import parse_qs, unquote, urlsplit

from edgegpu_sim.api.errors import ApiError, bad_request, not_found
from edgegpu_sim.api.objects import Json, ObjectSelector
from edgegpu_sim.api.registry import KINDS, Registry

_VERBS = {"POST": "create", "PUT": "update", "PATCH": "patch"}


@dataclass(frozen=True, slots=True)
class Route:
    """The target of one request; `rest` is the path below a `proxy` subresource.

    `form` is the kind of a patch: `merge`, `strategic` or `apply`.
    """

    verb: str
    resource: str
    namespace: str = ""
    name: str = ""
    sub: str = ""
    rest: str = ""
    query: dict[str, str] = field(default_factory=dict)
    form: str = "merge"


def parse(method: str, target: str) -> Route | None:
    """Return the route of a request; None for a path that the API does not have."""
    url = urlsplit(target)
    query = {key: values[-1] for key, values in parse_qs(url.query).items()}
    parts = [unquote(part) for part in url.path.strip("/").split("/")]
    if parts[:2] == ["api", "v1"]:
        version, parts = "v1", parts[2:]
    elif parts[:1] == ["apis"]:
        version, parts = "/".join(parts[1:3]), parts[3:]
    else:
        return None
    namespace = ""
    if parts[:1] == ["namespaces"] and len(parts) > 2 and parts[2] in KINDS:  # noqa: PLR2004  (namespaces/X/kind)
        namespace, parts = parts[1], parts[2:]
    if not parts or parts[0] not in KINDS or KINDS[parts[0]].version != version:
        return None
    resource, name, sub, *rest = [*parts, "", ""][: max(len(parts), 3)]
    return Route(_verb(method, name, query), resource, namespace, name, sub, "/".join(rest), query)


def _verb(method: str, name: str, query: dict[str, str]) -> str:
    if method == "GET":
        if query.get("watch") in {"true", "1"}:
            return "watch"
        return "get" if name else "list"
    if method == "DELETE":
        return "delete" if name else "deletecollection"
    return _VERBS.get(method, method.lower())


NodeProxy = Callable[[str], Json]
"""A kubelet's own API: from a path (`pods`, `runningpods`) to a PodList."""

_MOST_PAGES = 256


class Requests:
    """The requests to one registry and to the kubelets behind it."""

    def __init__(self, registry: Registry) -> None:
        self._registry = registry
        self._pages: dict[str, tuple[list[Json], int]] = {}
        self._numbers = count(1)
        self.proxies: dict[str, NodeProxy] = {}

    def answer(self, route: Route, body: Json) -> tuple[int, Json]:
        """Execute a request and return the HTTP status and the object.

        Raises:
            ApiError: the request was refused.
        """
        if route.verb in {"get", "list"}:
            return 200, self._read(route)
        if route.verb == "create":
            return 201, self._create(route, body)
        return 200, self._change(route, body)

    def _read(self, route: Route) -> Json:
        match route.verb, route.sub:
            case "get", "proxy":
                return self._proxy(route)
            case "get", "" | "status":
                return self._registry.get(route.resource, route.namespace, route.name)
            case "list", "":
                return self._list(route)
        raise _not_allowed(route)

    def _create(self, route: Route, body: Json) -> Json:
        match route.resource, route.sub:
            case _, "":
                return self._registry.create(route.resource, _placed(body, route.namespace))
            case "pods", "binding":
                self._registry.bind(route.namespace, route.name, body)
                return _success()
            case "pods", "eviction":
                self._registry.evict(route.namespace, route.name, body)
                return _success()
        raise _not_allowed(route)

    def _change(self, route: Route, body: Json) -> Json:
        where = (route.resource, route.namespace, route.name)
        match route.verb, route.sub:
            case "patch", "" if route.form == "apply":
                return self._registry.apply(*where, _placed(body, route.namespace))
            case "patch", "" | "status" if route.form == "strategic":
                return self._registry.patch_strategic(*where, body, sub=route.sub)
            case "patch", "" | "status":
                return self._registry.patch(*where, body, sub=route.sub)
            case "update", "" | "status":
                return self._registry.replace(*where, body, sub=route.sub)
            case "delete", "":
                grace = {k: int(v) for k, v in route.query.items() if k == "gracePeriodSeconds"}
                return self._registry.delete(*where, {**body, **grace})
        raise _not_allowed(route)

    def _list(self, route: Route) -> Json:
        registry, token = self._registry, route.query.get("continue", "")
        if token:
            if token not in self._pages:
                raise ApiError(410, "Expired", "the provided continue parameter is too old to display a list")
            items, version = self._pages.pop(token)
        else:
            with registry.store.lock:
                items = registry.items(route.resource, route.namespace, selector_of(route))
                version = registry.store.version
        limit = int(route.query.get("limit") or 0)
        metadata: Json = {"resourceVersion": str(version)}
        if 0 < limit < len(items):
            metadata["continue"] = self._keep(items[limit:], version)
            metadata["remainingItemCount"] = len(items) - limit
            items = items[:limit]
        kind = KINDS[route.resource]
        # Objects in a list have neither kind nor version, as with a real API server.
        bare = [{k: v for k, v in item.items() if k not in {"kind", "apiVersion"}} for item in items]
        return {"kind": f"{kind.kind}List", "apiVersion": kind.version, "metadata": metadata, "items": bare}

    def _keep(self, items: list[Json], version: int) -> str:
        token = base64.urlsafe_b64encode(json.dumps([version, next(self._numbers)]).encode()).decode()
        self._pages[token] = (items, version)
        for old in list(self._pages)[:-_MOST_PAGES]:
            self._pages.pop(old, None)
        return token

    def _proxy(self, route: Route) -> Json:
        self._registry.get("nodes", "", route.name)
        proxy = self.proxies.get(route.name)
        if proxy is None:
            raise ApiError(502, "BadGateway", "error trying to reach service: dial tcp: connect: connection refused")
        if route.resource != "nodes":
            raise not_found("proxy", route.rest)
        return proxy(route.rest.strip("/"))


def selector_of(route: Route) -> ObjectSelector:
    """Return the selector in a request's query.

    Raises:
        ApiError: 400, it cannot be read.
    """
    try:
        return ObjectSelector.parse(route.query.get("labelSelector", ""), route.query.get("fieldSelector", ""))
    except ValueError as error:
        raise bad_request(str(error)) from error


def _placed(body: Json, namespace: str) -> Json:
    """Return an object with the namespace of its path; an object with another namespace is refused."""
    metadata = body.get("metadata") or {}
    if namespace and metadata.get("namespace", namespace) != namespace:
        raise bad_request("the namespace of the provided object does not match the namespace sent on the request")
    return {**body, "metadata": {**metadata, **({"namespace": namespace} if namespace else {})}}


def _not_allowed(route: Route) -> ApiError:
    what = f"{route.verb} {route.resource}/{route.sub}"
    return ApiError(405, "MethodNotAllowed", f"the server does not allow this method on the requested resource: {what}")


def _success() -> Json:
    return {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "code": 201}
