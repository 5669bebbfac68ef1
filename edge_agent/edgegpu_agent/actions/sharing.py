"""How GPU sharing stands on this box, read from what the installer leaves: the plugin's unit and its configuration."""

import logging

from edgegpu_agent.actions.transactions import at_work
from edgegpu_installer.layout import Layout
from edgegpu_plugin.config import schema
from edgegpu_plugin.errors import ConfigError
from edgegpu_sync.rules.settle import SharingFound

_LOG = logging.getLogger(__name__)

_ABSENT = SharingFound(installed=False)

_Mark = tuple[int, int, int] | None


class SharingOfBox:
    """Looks each time; the configuration is read again when it is another file."""

    def __init__(self, layout: Layout) -> None:
        """Prepare it; nothing is read yet."""
        self._layout = layout
        self._mark: _Mark = None
        self._read = SharingFound(installed=True)

    def look(self) -> SharingFound:
        """See `worker.ports.SharingSight`."""
        if not self._layout.has_sharing:
            return _ABSENT
        mark = self._file()
        if mark != self._mark:
            self._mark, self._read = mark, self._configured() if mark is not None else SharingFound(installed=True)
        return self._read

    def changing(self) -> bool:
        """See `worker.ports.SharingSight`; also where it cannot be told."""
        try:
            return at_work(self._layout)
        except OSError as error:
            _LOG.warning("cannot tell whether an installer is at work: %s", error)
            return True

    def _file(self) -> _Mark:
        try:
            info = self._layout.plugin_yaml.stat()
        except OSError:
            return None
        return info.st_ino, info.st_mtime_ns, info.st_size

    def _configured(self) -> SharingFound:
        try:
            found = schema.load(self._layout.plugin_yaml)
        except ConfigError:  # the plugin says so itself, and does not start with it
            return SharingFound(installed=True)
        return SharingFound(
            installed=True, policy=found.policy.value, excluded=found.exclude, unit_mib=found.resources.unit_mib
        )
