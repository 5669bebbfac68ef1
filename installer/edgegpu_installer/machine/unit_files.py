"""The unit files of a box: which unit runs k3s, with which arguments and which environment variables."""

import re
import shlex
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import PurePosixPath

from edgegpu_installer.layout import Layout

_FOLDERS = (
    "/etc/systemd/system",
    "/run/systemd/system",
    "/usr/local/lib/systemd/system",
    "/usr/lib/systemd/system",
    "/lib/systemd/system",
)
"""The folders from which systemd reads units; for each name the first folder that has it counts."""

_PROGRAMS = ("k3s", "rke2")
_PREFIXES = "-@:+!"
_VARIABLE = re.compile(r"\$(?:\{(\w+)\}|(\w+))")
_MOST_TEXT = 1 << 20


@dataclass(frozen=True, slots=True)
class KubeUnit:
    """A unit whose ExecStart runs `k3s server`, `k3s agent` or rke2; `words` are the arguments after the program."""

    name: str
    """The unit's name without `.service`."""
    path: str
    program: str
    words: tuple[str, ...]
    environment: Mapping[str, str]

    @property
    def is_rke2(self) -> bool:
        """Whether the unit runs RKE2."""
        return PurePosixPath(self.program).name.startswith("rke2")


def kube_units(layout: Layout) -> list[KubeUnit]:
    """Return the units that run k3s or RKE2, sorted by name; files that cannot be read are skipped."""
    files: dict[str, str] = {}
    for folder in _FOLDERS:
        for path in sorted(layout.at(folder).glob("*.service")):
            files.setdefault(path.name, f"{folder}/{path.name}")
    units = (_unit(layout, path) for _, path in sorted(files.items()))
    return [unit for unit in units if unit is not None]


def other_distribution(layout: Layout) -> str | None:
    """Return the name of a Kubernetes that edgegpu does not run on and that a unit here starts; None without one."""
    for folder in _FOLDERS:
        for path in sorted(layout.at(folder).glob("*.service")):
            if path.name.startswith("snap.microk8s."):
                return "microk8s"
            command = [value for key, value in _settings(_text(layout, f"{folder}/{path.name}")) if key == "ExecStart"]
            if any(PurePosixPath(word).name == "k0s" for value in command for word in value.split()[:1]):
                return "k0s"
    return None


def unit_command(layout: Layout, name: str) -> tuple[list[str], Mapping[str, str]]:
    """Return the words of the unit's ExecStart, variables put in, and its environment; no words without that unit."""
    for folder in _FOLDERS:
        path = f"{folder}/{name}.service"
        if layout.at(path).is_file():
            return _command(layout, name, [_text(layout, path), *_drop_ins(layout, name)])
    return [], {}


def environment_file(layout: Layout, path: str) -> dict[str, str]:
    """Return the variables of a file as systemd reads it for EnvironmentFile=; none when it cannot be read."""
    return _environment_file(_text(layout, path))


def _unit(layout: Layout, path: str) -> KubeUnit | None:
    name = PurePosixPath(path).name.removesuffix(".service")
    texts = [_text(layout, path), *_drop_ins(layout, name)]
    if not any(program in text for text in texts for program in _PROGRAMS):
        return None
    words, environment = _command(layout, name, texts)
    for place, word in enumerate(words[:3]):
        if PurePosixPath(word).name in {*_PROGRAMS, "rke2-server", "rke2-agent"}:
            rest = tuple(words[place + 1 :])
            if {"server", "agent"} & set(rest):
                return KubeUnit(name, path, word, rest, environment)
    return None


def _command(layout: Layout, name: str, texts: list[str]) -> tuple[list[str], dict[str, str]]:
    command, environment = "", dict[str, str]()
    for text in texts:
        for key, value in _settings(text):
            match key:
                case "ExecStart":
                    command = value or ""
                case "Environment":
                    environment |= dict(_assignments(shlex.split(value)))
                case "EnvironmentFile":
                    file = value.removeprefix("-").replace("%N", name).replace("%n", f"{name}.service")
                    environment |= _environment_file(_text(layout, file))
                case _:
                    pass
    return _words(command, environment), environment


def _drop_ins(layout: Layout, name: str) -> Iterator[str]:
    files: dict[str, str] = {}
    for folder in _FOLDERS:
        for path in layout.at(f"{folder}/{name}.service.d").glob("*.conf"):
            files.setdefault(path.name, f"{folder}/{name}.service.d/{path.name}")
    for _, file in sorted(files.items()):
        yield _text(layout, file)


def _text(layout: Layout, path: str) -> str:
    try:
        with layout.at(path).open(encoding="utf-8", errors="replace") as file:
            return file.read(_MOST_TEXT)
    except OSError:
        return ""


def _settings(text: str) -> Iterator[tuple[str, str]]:
    for line in re.sub(r"\\\n", " ", text).splitlines():
        key, sign, value = line.strip().partition("=")
        if sign and not key.startswith(("#", ";")):
            yield key.strip(), value.strip()


def _assignments(words: list[str]) -> Iterator[tuple[str, str]]:
    for word in words:
        name, sign, value = word.partition("=")
        if sign:
            yield name, value


def _environment_file(text: str) -> dict[str, str]:
    values: dict[str, str] = {}
    for line in text.replace("\\\n", "").splitlines():
        name, sign, value = line.strip().partition("=")
        if sign and name and not name.startswith(("#", ";")):
            values[name.removeprefix("export ").strip()] = value.strip().strip("\"'")
    return values


def _words(command: str, environment: Mapping[str, str]) -> list[str]:
    try:
        raw = shlex.split(command.lstrip(_PREFIXES))
    except ValueError:
        return []
    words: list[str] = []
    for word in raw:
        if re.fullmatch(r"\$\w+", word):
            words += environment.get(word[1:], "").split()
        else:
            words.append(_VARIABLE.sub(lambda found: environment.get(found[1] or found[2], ""), word))
    return words
