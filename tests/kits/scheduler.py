"""What the corpus of scheduler configurations is made with: files that they name, and edits of a good one."""

import base64
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum
from pathlib import Path
from typing import Any

import yaml

from edgegpu_installer.plan import certificates
from edgegpu_installer.scheduler.file import ExtenderEndpoint

Json = dict[str, Any]


class Verdict(StrEnum):
    """What becomes of a file."""

    GOOD = "good"
    """The scheduler starts with it, and we say so."""
    BAD = "bad"
    """The scheduler ends about it."""
    STRICTER = "stricter"
    """The scheduler would take it, and we do not: it means less than it seems, or cannot be told from a bad one."""


@dataclass(frozen=True, slots=True)
class Case:
    """One file."""

    name: str
    text: str
    verdict: Verdict


@dataclass(frozen=True, slots=True)
class Materials:
    """Files that the cases name, and the certificates in them."""

    folder: Path
    extender: ExtenderEndpoint
    other_key: str

    @property
    def kubeconfig(self) -> str:
        """The scheduler's kubeconfig."""
        return str(self.folder / "kubeconfig")


KUBECONFIG: Json = {
    "apiVersion": "v1",
    "kind": "Config",
    "clusters": [{"name": "c", "cluster": {"server": "https://127.0.0.1:1"}}],
    "users": [{"name": "u", "user": {"token": "t"}}],
    "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u"}}],
    "current-context": "x",
}


def materials(folder: Path) -> Materials:
    """Lay the files that the cases name into a folder."""
    made, other = (certificates.make(datetime(2026, 1, 1, tzinfo=UTC)) for _ in range(2))
    files = {
        "kubeconfig": yaml.safe_dump(KUBECONFIG),
        "no-context": yaml.safe_dump(KUBECONFIG | {"current-context": "y"}),
        "names-a-file": yaml.safe_dump(KUBECONFIG | {"users": [{"name": "u", "user": {"client-key": "gone.key"}}]}),
        "empty": "",
        "broken": "a: [",
        "client.crt": made.client.cert,
        "client.key": made.client.key,
        "ca.crt": made.ca,
        "words": "no certificate\n",
    }
    for name, text in files.items():
        (folder / name).write_text(text)
    extender = ExtenderEndpoint(ca=made.ca, cert=made.client.cert, key=made.client.key)
    return Materials(folder, extender, other.client.key)


Edit = Callable[[Json, Materials], object]


def first(document: Json) -> Json:
    found: Json = document["extenders"][0]
    return found


def put(**fields: Any) -> Edit:  # noqa: ANN401  (JSON)
    return lambda document, _: document.update(fields)


def client(**fields: Any) -> Edit:  # noqa: ANN401  (JSON)
    return lambda document, _: document["clientConnection"].update(fields)


def ours(**fields: Any) -> Edit:  # noqa: ANN401  (JSON)
    return lambda document, _: first(document).update(fields)


def tls(**fields: Any) -> Edit:  # noqa: ANN401  (JSON)
    return lambda document, _: first(document)["tlsConfig"].update(fields)


def second(**fields: Any) -> Edit:  # noqa: ANN401  (JSON)
    other = {"urlPrefix": "http://127.0.0.1:9", "filterVerb": "filter", **fields}
    return lambda document, _: document["extenders"].append(other)


def kubeconfig(name: str) -> Edit:
    return lambda document, given: document["clientConnection"].update(kubeconfig=str(given.folder / name))


def managed(*names: Any) -> Edit:  # noqa: ANN401  (JSON)
    return ours(managedResources=[{"name": name} for name in names])


def profiles(*profiles: Any) -> Edit:  # noqa: ANN401  (JSON)
    return put(profiles=list(profiles))


def args(name: str, **args: Any) -> Edit:  # noqa: ANN401  (JSON)
    return profiles({"pluginConfig": [{"name": name, "args": args}]})


def by_file(cert: str, key: str, ca: str) -> Edit:
    def edit(document: Json, given: Materials) -> None:
        files = {"certFile": cert, "keyFile": key, "caFile": ca}
        first(document)["tlsConfig"] = {name: str(given.folder / file) for name, file in files.items()}

    return edit


def drop(*path: str) -> Edit:
    def edit(document: Json, _: Materials) -> None:
        part = document
        for name in path[:-1]:
            part = part[name][0] if isinstance(part[name], list) else part[name]
        del part[path[-1]]

    return edit


def points(point: str, *, enabled: tuple[Any, ...] = (), disabled: tuple[str, ...] = ()) -> Edit:
    chosen: Json = {}
    if enabled:
        chosen["enabled"] = [{"name": one} if isinstance(one, str) else one for one in enabled]
    if disabled:
        chosen["disabled"] = [{"name": one} for one in disabled]
    return profiles({"plugins": {point: chosen}})


def base64_of(pem: str) -> str:
    """Return a PEM text as a configuration holds it."""
    return base64.b64encode(pem.encode()).decode()
