"""The cloud side's errors: one base, and a class of its own only where a caller reacts to it."""


class CloudError(Exception):
    """Something that the cloud side cannot do; the text reads "cannot x: cause", `remedy` says what to do about it."""

    def __init__(self, text: str, *, remedy: str = "") -> None:
        super().__init__(f"{text}; {remedy}" if remedy else text)
        self.text = text
        self.remedy = remedy


class NotFoundError(CloudError):
    """A box or a command that there is not, or a name that fits more than one."""


class ConflictError(CloudError):
    """Somebody else has changed it since it was read: read it again."""
