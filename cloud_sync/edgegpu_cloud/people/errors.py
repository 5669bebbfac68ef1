"""The errors of people that callers react to."""

from edgegpu_cloud.errors import CloudError
from edgegpu_cloud.phrases import phrase


class SignInRefusedError(CloudError):
    """A sign-in with a wrong name or password: the text does not say which."""

    def __init__(self) -> None:
        remedy = phrase("check both; an admin can make a link for a new password")
        super().__init__(phrase("cannot sign in: name or password is wrong"), remedy=remedy)


class LockedOutError(CloudError):
    """A sign-in that was not looked at, after too many failed ones. `retry_after_s`: whole seconds, at least 1."""

    def __init__(self, retry_after_s: float) -> None:
        self.retry_after_s = max(1, int(-(-retry_after_s // 1)))
        super().__init__(
            phrase("cannot sign in: too many failed tries"),
            remedy=phrase("wait %(retry_after_s)s s, then try again", retry_after_s=self.retry_after_s),
        )


class HashQueueFullError(CloudError):
    """More sign-ins at one moment than this process checks. `retry_after_s`: when a place may be free."""

    retry_after_s = 5

    def __init__(self) -> None:
        super().__init__(
            phrase("cannot check the password: too many sign-ins at once"), remedy=phrase("try again in a few seconds")
        )


class WeakPasswordError(CloudError):
    """A password that is not accepted."""


class LinkRefusedError(CloudError):
    """A one-time link that is unknown, used or too old: the text does not say which."""

    def __init__(self) -> None:
        remedy = phrase("ask for a new one: an admin makes it on the page People, or `edgegpu-cloud people link`")
        super().__init__(phrase("cannot use this link: it was used already, or is too old"), remedy=remedy)


class LastAdminError(CloudError):
    """A change after which nobody could manage people."""

    def __init__(self, name: str) -> None:
        text = phrase("cannot change %(name)s so: no enabled admin with all boxes in scope would be left", name=name)
        super().__init__(text, remedy=phrase("make another account such an admin first"))
