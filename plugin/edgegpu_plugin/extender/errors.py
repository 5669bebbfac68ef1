"""What can keep the extender from running."""


class ExtenderError(Exception):
    """The extender cannot listen; the text names the setting and the remedy."""
