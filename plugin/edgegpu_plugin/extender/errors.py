"""What can keep the extender from running."""

from edgegpu_plugin.errors import PluginError


class ExtenderError(PluginError):
    """The extender cannot listen; the text names the setting and the remedy."""
