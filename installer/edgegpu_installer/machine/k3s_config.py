"""The configuration of k3s in effect: files in order, drop-ins, and the command line; pure.

Source: k3s, `pkg/configfilearg/parser.go`. k3s reads `config.yaml` first, then `config.yaml.d/*.yaml` and `*.yml` by
name. A later key replaces an earlier one; `key+` appends to it. k3s puts the result before the words of the command
line: of a flag with one value the last counts, which is the command line's, and lists add up.
"""

from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import PurePosixPath
from typing import Any

import yaml

SCHEDULER_ARG = "kube-scheduler-arg"
COMMAND_LINE = "the command line of its unit"

_ALIASES = {"c": "config", "d": "data-dir", "t": "token", "s": "server", "o": "write-kubeconfig", "l": "log"}
_SWITCHES = frozenset({"docker", "disable-agent", "disable-scheduler", "with-node-id"})
_WITH_VALUE = frozenset({"config", "data-dir", "node-name", "container-runtime-endpoint"})
"""The flags that edgegpu reads, by their form. All others are read by the words around them."""
_ROLES = frozenset({"server", "agent"})
_ARGUMENTS = "-arg"
"""The end of the names of the flags that hold an argument for another program, such as `--kubelet-arg -v=3`."""

_ENVIRONMENT = {
    "config": "K3S_CONFIG_FILE", "data-dir": "K3S_DATA_DIR", "node-name": "K3S_NODE_NAME", "server": "K3S_URL",
    "write-kubeconfig": "K3S_KUBECONFIG_OUTPUT", "resolv-conf": "K3S_RESOLV_CONF",
}  # fmt: skip


_DROP_IN = "# edgegpu: which configuration the scheduler reads. `edgegpu uninstall` takes it away.\n"
_DROP_IN_WHOLE = """\
# What was in {scheduler} is in it. No "+": this list, with the arguments that were
# there before, takes the place of the one before; a change of that one needs `edgegpu install` again.
"""


@dataclass(frozen=True, slots=True)
class ConfigFile:
    """A file that k3s reads; `text` is None when it cannot be read, and `why` says why."""

    path: str
    text: str | None
    why: str = ""


@dataclass(frozen=True, slots=True)
class ConfigValue:
    """A value of a flag, and its source: a file's path, a variable's name, or COMMAND_LINE."""

    text: str
    source: str


@dataclass(frozen=True, slots=True)
class CommandLine:
    """The command line of k3s: its role and its flags."""

    role: str
    """`server`, `agent`, or empty when neither is given."""
    flags: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    unclear: tuple[str, ...] = ()
    """The flags that edgegpu reads and whose value cannot be told, such as a `--data-dir` that another flag follows."""


@dataclass(frozen=True, slots=True)
class EffectiveConfig:
    """The values of all flags in effect."""

    flags: Mapping[str, tuple[ConfigValue, ...]]
    problems: tuple[str, ...] = ()
    """The files that k3s would exit on, or that could not be read, each with the reason."""

    def values(self, name: str) -> tuple[ConfigValue, ...]:
        """Return all values of a flag, in k3s's order."""
        return self.flags.get(name, ())

    def last(self, name: str, default: str = "") -> str:
        """Return the last value of a flag; the default when it is missing or empty."""
        found = self.values(name)
        return found[-1].text if found and found[-1].text else default

    def on(self, name: str) -> bool:
        """Return whether a switch is on."""
        return self.last(name) == "true"


def command_line(words: Sequence[str]) -> CommandLine:
    """Parse the words after the program, such as `server --data-dir /x --docker`.

    A word that follows a flag which edgegpu does not know is its value unless it begins with a dash: k3s has switches
    in every release that we know nothing of, and ends on a word that belongs to no flag.
    """
    role, flags, unclear = "", dict[str, tuple[str, ...]](), list[str]()
    rest = deque(words)
    while rest:
        word = rest.popleft()
        if not word.startswith("-"):
            role = role or word
            continue
        name, sign, value = word.lstrip("-").partition("=")
        name = _ALIASES.get(name, name)
        if not sign:
            missing = "" if name in _WITH_VALUE else "true"
            value = rest.popleft() if _takes_next(name, rest, role=role) else missing
        if name in _WITH_VALUE and (not value or "%" in value):
            unclear.append(name)
        flags[name] = (*flags.get(name, ()), value)
    return CommandLine(role, flags, tuple(unclear))


def _takes_next(name: str, rest: Sequence[str], *, role: str) -> bool:
    """Return whether the next word is the value of a flag that has no `=`."""
    if not rest or name in _SWITCHES or (not role and rest[0] in _ROLES):
        return False
    return name.endswith(_ARGUMENTS) or not rest[0].startswith("-")


def config_path(line: CommandLine, environment: Mapping[str, str], default: str) -> str:
    """Return the file that k3s reads first; its drop-ins are in the folder `FILE.d`."""
    given = line.flags.get("config", ())
    return environment.get("K3S_CONFIG_FILE") or (given[0] if given else "") or default


def is_drop_in(name: str) -> bool:
    """Return whether k3s reads a file with that name in its drop-in folder."""
    return PurePosixPath(name).suffix.lower() in {".yaml", ".yml"}


def effective(
    line: CommandLine, environment: Mapping[str, str], files: Iterable[ConfigFile], *, without: str = ""
) -> EffectiveConfig:
    """Return k3s's flags in effect; `without` is a file to leave out, such as our own drop-in."""
    merged, problems = _merge(file for file in files if file.path != without)
    flags: dict[str, tuple[ConfigValue, ...]] = {
        name: (ConfigValue(environment[variable], variable),)
        for name, variable in _ENVIRONMENT.items()
        if environment.get(variable)
    }
    flags |= merged
    for name, texts in line.flags.items():
        flags[name] = merged.get(name, ()) + tuple(ConfigValue(text, COMMAND_LINE) for text in texts)
    return EffectiveConfig(flags, tuple(problems))


def scheduler_file(arguments: Iterable[ConfigValue]) -> tuple[ConfigValue, ...]:
    """Return the `config=` arguments of kube-scheduler, each with the file's path as its text."""
    pairs = ((value, *value.text.removeprefix("--").partition("=")) for value in arguments)
    return tuple(ConfigValue(path, value.source) for value, name, _, path in pairs if name.rstrip("+-") == "config")


def replaces_ours(files: Iterable[ConfigFile], ours: str) -> str | None:
    """Return the file after ours whose `kube-scheduler-arg:` (without +) replaces our list; None when there is none."""
    name = PurePosixPath(ours).name
    for file in files:
        if PurePosixPath(file.path).parent == PurePosixPath(ours).parent and PurePosixPath(file.path).name > name:
            keys = [key for key, _ in _pairs(file)[0]]
            if SCHEDULER_ARG in keys:
                return file.path
    return None


def naming(files: Iterable[ConfigFile], name: str) -> tuple[str, ...]:
    """Return the files that have a flag, with `+` or without."""
    return tuple(file.path for file in files if name in {key.removesuffix("+") for key, _ in _pairs(file)[0]})


def render_drop_in(ours: str, scheduler: str, without_ours: Sequence[ConfigValue]) -> str:
    """Return our drop-in's text: one more argument for the scheduler, or the whole list when it has a file already.

    Args:
        ours: the path of our scheduler configuration.
        scheduler: the path of the configuration that it has without edgegpu, empty when it has none.
        without_ours: its arguments without edgegpu; those of the command line stay there.
    """
    if not scheduler:
        return f"{_DROP_IN}{argument_list([f'config={ours}'], key=f'{SCHEDULER_ARG}+')}\n"
    named = scheduler_file(without_ours)
    in_files = [value for value in without_ours if value.source != COMMAND_LINE]
    others = [value.text for value in in_files if not scheduler_file([value])]
    whole = _DROP_IN_WHOLE.format(scheduler=named[-1].text if named else scheduler)
    return f"{_DROP_IN}{whole}{argument_list([*others, f'config={ours}'])}\n"


def argument_list(arguments: Iterable[str], *, key: str = SCHEDULER_ARG) -> str:
    """Return the scheduler's arguments as YAML for a configuration file: the key, then one argument a line."""
    return "\n".join([f"{key}:", *(f"  {argument_item(one)}" for one in arguments)])


def argument_item(argument: str) -> str:
    """Return one line of that list, without its indent."""
    text = argument.replace("'", "''")
    return f"- '{text}'"


def _merge(files: Iterable[ConfigFile]) -> tuple[dict[str, tuple[ConfigValue, ...]], list[str]]:
    merged: dict[str, tuple[ConfigValue, ...]] = {}
    problems: list[str] = []
    for file in files:
        pairs, problem = _pairs(file)
        problems += [problem] if problem else []
        for key, texts in pairs:
            name = key.removesuffix("+")
            values = tuple(ConfigValue(text, file.path) for text in texts)
            merged[name] = merged.get(name, ()) + values if name != key else values
    return merged, problems


def _pairs(file: ConfigFile) -> tuple[list[tuple[str, list[str]]], str]:
    """Return the keys and values of a file in their order, and what is wrong with the file."""
    if file.text is None:
        return [], f"{file.path} cannot be read: {file.why}"
    try:
        document = next(iter(yaml.safe_load_all(file.text)), None)
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        return [], f"{file.path} is no YAML{f' (line {mark.line + 1})' if mark else ''}: k3s would not start with it"
    if document is None:
        return [], ""
    if not isinstance(document, dict):
        return [], f"{file.path} is no table of keys and values: k3s would not start with it"
    return [(_text(key), _texts(value)) for key, value in document.items()], ""


def _texts(value: Any) -> list[str]:  # noqa: ANN401  (YAML)
    return [_text(one) for one in value] if isinstance(value, list) else [_text(value)]


def _text(value: Any) -> str:  # noqa: ANN401  (YAML)
    match value:
        case None:
            return ""
        case bool():
            return str(value).lower()
        case _:
            return str(value)
