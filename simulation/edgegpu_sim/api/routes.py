"""Reads the API's paths and says which verb of which resource a request is."""

from dataclasses import dataclass, field
from urllib.parse import parse_qs, unquote, urlsplit

from edgegpu_sim.api.registry import KINDS

_VERBS = {"POST": "create", "PUT": "update", "PATCH": "patch"}


@dataclass(frozen=True, slots=True)
class Route:
    """One request: resource, and what of it; `rest` is the path below a `proxy` subresource.

    `form` is how a patch is written: `merge`, `strategic` or `apply`.
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
