"""The cloud side's errors: one base, and a class of its own only where a caller reacts to it."""


class CloudError(Exception):
    """An error of the cloud side; the text reads "cannot x: cause", `remedy` says what to do about it."""

    def __init__(self, text: str, *, remedy: str = "") -> None:
        super().__init__(f"{text}; {remedy}" if remedy else text)
        self.text = text
        self.remedy = remedy


class NotFoundError(CloudError):
    """A box or a command that does not exist, or a name that fits more than one."""


class ConflictError(CloudError):
    """A record that somebody else has changed since it was read: read it again."""


class ForbiddenError(CloudError):
    """A change or a look that the person's role does not allow."""
