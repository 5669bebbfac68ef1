"""The errors of the identity: one base, and a subclass only where a caller reacts to it."""


class IdentityError(Exception):
    """A problem of this box's identity; the text is "cannot x: cause", and `remedy` says what to do."""

    def __init__(self, text: str, remedy: str = "") -> None:
        self.text = text
        self.remedy = remedy
        super().__init__(f"{text}; {remedy}" if remedy else text)


class UnreachableError(IdentityError):
    """The cloud gave no answer, or none that can be used; the agent tries again."""


class DeniedError(IdentityError):
    """The cloud refused, and would refuse the same request again; `code` names the reason."""

    def __init__(self, code: str, text: str, remedy: str = "") -> None:
        super().__init__(text, remedy)
        self.code = code
