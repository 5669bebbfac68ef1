"""The questions of an installation, asked on /dev/tty, because the install script comes on stdin."""

from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import IO, Self

from edgegpu_installer.cluster.nodes import NodeFacts
from edgegpu_installer.errors import InstallError

_YES = frozenset({"y", "yes"})
_NO = frozenset({"n", "no", ""})


class Terminal:
    """The terminal of the person who runs the install line."""

    def __init__(self, reading: IO[str], writing: IO[str]) -> None:
        self._reading, self._writing = reading, writing

    @classmethod
    def find(cls, path: Path = Path("/dev/tty")) -> Self | None:
        """Open the terminal of this process; None when it has none (cron, a pipe from another machine)."""
        try:
            return cls(path.open(encoding="utf-8"), path.open("w", encoding="utf-8"))
        except OSError:
            return None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._reading.close()
        self._writing.close()

    def say(self, text: str) -> None:
        """Print a line on the terminal."""
        self._writing.write(text + "\n")
        self._writing.flush()

    def ask(self, question: str) -> str:
        """Ask a question and return the answer without blanks around it.

        Raises:
            InstallError: the terminal was closed.
        """
        self._writing.write(question + " ")
        self._writing.flush()
        line = self._reading.readline()
        if not line:
            raise InstallError(
                "cannot go on: the terminal was closed before the question was answered",
                remedy="run it again, or answer with options: --node NAME, --yes",
            )
        return line.strip()

    def confirm(self, question: str) -> bool:
        """Ask until the answer is yes or no; an empty line means no. Raises InstallError as `ask`."""
        while True:
            answer = self.ask(f"{question} [y/N]").lower()
            if answer in _YES:
                return True
            if answer in _NO:
                return False
            self.say("answer y or n")


def choose_nodes(terminal: Terminal, nodes: Sequence[NodeFacts], *, here: str, cards_here: int) -> tuple[str, ...]:
    """Show the cards of each node, ask which nodes have GPUs to share, and return their names.

    An empty answer takes the proposed nodes: this one when it has cards, and those that have cards as the cluster says.
    Raises InstallError as `ask`.
    """
    proposed = tuple(n.name for n in nodes if n.seems_to_have_cards or (n.name == here and cards_here))
    terminal.say("Which nodes of this cluster have NVIDIA GPUs to share?")
    for number, node in enumerate(nodes, 1):
        mark = "*" if node.name in proposed else " "
        seen = _cards(cards_here) if node.name == here else _told(node)
        terminal.say(f" {mark} {number}  {node.name}  {node.role}{', here' if node.name == here else ''}: {seen}")
    names = " ".join(proposed) or "none"
    while True:
        answer = terminal.ask(f"Numbers or names, separated by blanks; Enter takes those with a star ({names}):")
        if not answer:
            return proposed
        chosen, unknown = _parse(answer, nodes)
        if not unknown:
            return chosen
        terminal.say(f"there is no node {' '.join(unknown)}")


def _parse(answer: str, nodes: Sequence[NodeFacts]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the nodes that an answer names, in the cluster's order, and the words that name no node."""
    by_word = {str(number): node.name for number, node in enumerate(nodes, 1)} | {
        node.name: node.name for node in nodes
    }
    words = answer.replace(",", " ").split()
    if words == ["none"]:
        return (), ()
    named = {by_word[word] for word in words if word in by_word}
    return tuple(n.name for n in nodes if n.name in named), tuple(word for word in words if word not in by_word)


def _cards(count: int) -> str:
    return "no NVIDIA card seen" if not count else f"{count} NVIDIA card{'s' if count > 1 else ''} seen"


def _told(node: NodeFacts) -> str:
    """Return what the cluster knows of a node's cards; another machine's cards cannot be seen from here."""
    if node.cards is not None:
        return f"{_cards(node.cards)} by its edgegpu plugin, {node.memory_units} units offered"
    if node.signs:
        return f"said to have cards by {', '.join(node.signs)}"
    return "labelled before" if node.labelled else "nothing known from here"
