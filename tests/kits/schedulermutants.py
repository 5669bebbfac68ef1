"""Mutants of good scheduler configurations: a value, a field or a character is not what it was."""

import base64
import copy
import json
import random
import re
from collections.abc import Iterator
from typing import Any

import yaml

_VALUES: tuple[Any, ...] = (
    0, 1, -1, 2, 1.5, True, False, None, "", "x", "1", "30s", "0s", "1h", "5.5ms", "1e3", "yes", "2001-01-01", "*", [],
    {}, [1], {"a": 1}, 101, 1 << 31, 1 << 63, "baidu.com/vcuda-core", "http://127.0.0.1:1", "/x", "DoNotSchedule",
    "PrioritySort", "DefaultBinder", "ImageLocality",
)  # fmt: skip
_CHARACTERS = "\n \t:-{}[]'\"#&*!|>%@`,?0x1.~\r\u2028\x85é"
_LONGEST_CUT = 60
_IN_THE_TREE, _AS_JSON = 0.6, 0.2

Path = tuple[str | int, ...]


def mutant(chance: random.Random, good: list[str]) -> str:
    """Return one of some good files with one to three changes."""
    text = chance.choice(good)
    if chance.random() > _IN_THE_TREE:
        return _in_the_text(chance, text)
    document = yaml.safe_load(text)
    for _ in range(chance.choice((1, 1, 2))):
        _in_the_tree(chance, document)
    if chance.random() < _AS_JSON:
        return json.dumps(document)
    return yaml.safe_dump(document, sort_keys=False, width=1 << 20)


def damaged(chance: random.Random, text: str, field: str) -> str:
    """Return a file with one bit of a certificate or key changed, inside of its PEM."""
    tls = yaml.safe_load(text)["extenders"][0]["tlsConfig"]
    first, *body, last = base64.b64decode(tls[field]).decode().splitlines()
    content = bytearray(base64.b64decode("".join(body)))
    content[chance.randrange(len(content))] ^= 1 << chance.randrange(8)
    pem = "\n".join([first, base64.encodebytes(content).decode().strip(), last, ""])
    return text.replace(tls[field], base64.b64encode(pem.encode()).decode())


def _paths(value: Any, path: Path = ()) -> Iterator[Path]:  # noqa: ANN401  (JSON)
    if path:
        yield path
    parts = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, inner in parts:
        yield from _paths(inner, (*path, key))


def _at(document: Any, path: Path) -> Any:  # noqa: ANN401  (JSON)
    for key in path:
        document = document[key]
    return document


def _in_the_tree(chance: random.Random, document: Any) -> None:  # noqa: ANN401  (JSON)
    paths = list(_paths(document))
    if not paths:
        return
    *above, key = chance.choice(paths)
    part = _at(document, tuple(above))
    match chance.randrange(5):
        case 0:
            part[key] = copy.deepcopy(chance.choice(_VALUES))
        case 1:
            del part[key]
        case 2 if isinstance(part, list):
            part.append(copy.deepcopy(part[int(key)]))
        case 3 if isinstance(part, dict):
            fields = sorted({str(name) for path in paths for name in path if isinstance(name, str)})
            part[chance.choice(fields)] = copy.deepcopy(chance.choice(_VALUES))
        case _:
            part[key] = copy.deepcopy(_at(document, chance.choice(paths)))


def _in_the_text(chance: random.Random, text: str) -> str:
    for _ in range(chance.choice((1, 1, 2, 3))):
        place = chance.randrange(len(text)) if text else 0
        match chance.randrange(4):
            case 0:
                text = text[:place] + text[place + 1 :]
            case 1:
                text = text[:place] + chance.choice(_CHARACTERS) + text[place:]
            case 2:
                text = text[:place] + chance.choice(_CHARACTERS) + text[place + 1 :]
            case _:
                text = text[:place] + text[place + chance.randrange(_LONGEST_CUT) :]
    return re.sub("\0", "", text)
