"""The command line's errors: a sentence, and what to do about it."""


class CliError(Exception):
    """Something that a command cannot do; the text reads "cannot x: cause"."""

    def __init__(self, text: str, *, remedy: str = "", more: dict[str, object] | None = None) -> None:
        super().__init__(text)
        self.text = text
        self.remedy = remedy
        self.more = more or {}
        """Further keys for `--json`."""

    def document(self) -> dict[str, object]:
        """Return what `--json` prints: `error`, `remedy` and whatever the command adds."""
        return {"error": self.text, "remedy": self.remedy, **self.more}
