"""The errors of the journal."""


class BoxJournalError(Exception):
    """The base of the journal's errors: the journal cannot be used, and the agent must restart."""


class JournalFullError(BoxJournalError):
    """The journal has no room for a write that can wait: nothing was written, and nothing was lost."""
