"""What can go wrong with the journal."""


class BoxJournalError(Exception):
    """The base of this package's errors: the journal cannot be used, and the agent must start anew."""


class JournalFullError(BoxJournalError):
    """Nothing was written, and nothing else was lost: what must be written has its room, the rest waits."""
