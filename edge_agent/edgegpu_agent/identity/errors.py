"""The identity's errors: one base, and a class of its own only where a caller reacts to it."""


class IdentityError(Exception):
    """Something about this box's identity that cannot be: "cannot x: cause", and in `remedy` what to do about it."""

    def __init__(self, text: str, remedy: str = "") -> None:
        self.text = text
        self.remedy = remedy
        super().__init__(f"{text}; {remedy}" if remedy else text)


class UnreachableError(IdentityError):
    """The cloud did not answer, or not as it should: it is asked again."""


class DeniedError(IdentityError):
    """The cloud answered that it will not; asked the same again it says the same. `code` names the reason."""

    def __init__(self, code: str, text: str, remedy: str = "") -> None:
        super().__init__(text, remedy)
        self.code = code
