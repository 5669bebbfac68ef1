"""The types of values in the configuration, each with its check and with a text that says what would be right."""

import ipaddress
import re
from pathlib import Path
from typing import Annotated, Any

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, StrictInt, StrictStr

_LABEL = r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?"
_SUBDOMAIN = re.compile(rf"{_LABEL}(\.{_LABEL})*")
_RESOURCE_NAME = re.compile(r"[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?")
_CARD_NAME = re.compile(r"[0-9]{1,3}(:[0-9]{1,3})?|(GPU|MIG)-[0-9A-Za-z/-]{1,59}")
_MOST_NODE = 253
_MOST_DOMAIN = 240
"""Kubernetes keeps 253 characters for a domain and puts `requests.` in front of it for quotas."""


class Section(BaseModel):
    """A part of the file: an unknown key is a mistake."""

    model_config = ConfigDict(frozen=True, extra="forbid", validate_default=True)


def says(right: str) -> Any:  # noqa: ANN401  (what pydantic's Field is)
    """Return a pydantic Field described by what its value must be, as the text after "give"."""
    return Field(description=right)


def _node_name(text: str) -> str:
    if len(text) > _MOST_NODE or not _SUBDOMAIN.fullmatch(text):
        raise ValueError("not a node's name")
    return text


def _resource(text: str) -> str:
    domain, slash, name = text.partition("/")
    if not (slash and len(domain) <= _MOST_DOMAIN and _SUBDOMAIN.fullmatch(domain) and _RESOURCE_NAME.fullmatch(name)):
        raise ValueError("not a resource name")
    if domain == "kubernetes.io" or domain.endswith(".kubernetes.io"):
        raise ValueError("not allowed: Kubernetes reserves this domain")
    return text


def _absolute(path: Path) -> Path:
    if not path.is_absolute():
        raise ValueError("not an absolute path")
    return path


def _listen(text: str) -> str:
    host, colon, port = text.rpartition(":")
    if not (colon and port.isascii() and port.isdigit() and int(port) < 1 << 16):
        raise ValueError("not an address with a port")
    host = host.removeprefix("[").removesuffix("]")
    try:
        loopback = ipaddress.ip_address("127.0.0.1" if host == "localhost" else host).is_loopback
    except ValueError:
        raise ValueError("not an IP address with a port") from None
    if not loopback:
        raise ValueError("reachable from other machines, and who reaches the extender can bind pods")
    return text


def _text(value: object) -> object:
    """Turn the number that YAML reads from a bare index into text."""
    return str(value) if isinstance(value, int) and not isinstance(value, bool) else value


def _card(text: str) -> str:
    if not is_card_name(text):
        raise ValueError("not the name of a card")
    return text


def is_card_name(text: str) -> bool:
    """Return whether a text has the form of a card's number, of a MIG device (`0:1`) or of a UUID.

    The form is that of the cloud's exclusions, and of the UUIDs of MIG devices that older drivers give.
    """
    return _CARD_NAME.fullmatch(text) is not None


def none_if_auto(value: object) -> object:
    """Return None for `auto`, as for a value that was left out."""
    return None if value == "auto" else value


def word_of_switch(value: object) -> object:
    """Return `on` or `off` where YAML 1.1 reads these words as true and false."""
    return {True: "on", False: "off"}[value] if isinstance(value, bool) else value


AbsolutePath = Annotated[Path, AfterValidator(_absolute), says("an absolute path")]

CardName = Annotated[StrictStr, BeforeValidator(_text), AfterValidator(_card)]

Mib = Annotated[StrictInt, Field(ge=0, le=1_048_576)]

Seconds = Annotated[float, Field(gt=0, le=31_536_000)]
"""At most a year: infinity is no time that can be waited for."""

Listen = Annotated[StrictStr, AfterValidator(_listen), says("a loopback address and a port, such as 127.0.0.1:8787")]

NodeName = Annotated[
    StrictStr,
    AfterValidator(_node_name),
    says("the name of this machine in `kubectl get nodes`: lower-case letters, digits, - and ."),
]

ResourceName = Annotated[
    StrictStr,
    AfterValidator(_resource),
    says("a name with its domain, such as baidu.com/vcuda-memory, another one for memory than for core"),
]
