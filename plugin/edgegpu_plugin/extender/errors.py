"""What can keep the extender from running."""

from edgegpu_plugin.errors import PluginError


class ExtenderError(PluginError):
    """The extender cannot listen; the text names the setting and the remedy."""


class CertificateError(ExtenderError):
    """A TLS file is not there or not what it should be: a matter of configuration, which no new start mends."""
