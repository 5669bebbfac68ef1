"""The option `--isolation` of an installation, and what stands in for it where nobody gives it."""

from collections.abc import Callable

from edgegpu_agent.cli.common import CliError
from edgegpu_core.choices.modes import PluginIsolation
from edgegpu_installer.layout import Layout
from edgegpu_plugin.config import schema
from edgegpu_plugin.containers.limiter_files import find_limiter
from edgegpu_plugin.errors import ConfigError, PluginError


def wanted_isolation(text: str | None, layout: Layout, *, say: Callable[[str], None]) -> str | None:
    """Return the isolation to set; None where the plugin's configuration or the default says it.

    Without libraries that fit this machine no container could start under the limiter: as a default it is left out
    then, and told.

    Args:
        text: the option; None where it was not given.
        layout: the paths of this box.
        say: called with a line for the user.

    Raises:
        CliError: there is no such mode, the limiter was asked for and has no libraries that fit, or mps was asked for
            and the configuration has processes killed, which faults the other clients of MPS.
    """
    if text not in {None, *PluginIsolation}:
        remedy = "give none, limiter or mps"
        raise CliError(f"cannot install with --isolation {text}: there is no such mode", remedy=remedy)
    path = layout.plugin_yaml
    try:
        so_far = schema.load(path).isolation if path.exists() else schema.IsolationSection()
        if text in {PluginIsolation.NONE, PluginIsolation.LIMITER} and PluginIsolation.MPS in (so_far.pods_may or ()):
            raise CliError(
                f"cannot install with --isolation {text}: in {path} isolation.pods_may has mps, which needs that mode",
                remedy=f"take mps out of isolation.pods_may in {path}",
            )
        if text == PluginIsolation.NONE:
            return text
        if text is None and "mode" in so_far.model_fields_set:
            return None
        find_limiter(so_far.libraries)
    except ConfigError:
        return text  # the installation names what is wrong with the configuration
    except PluginError as error:
        if text is None:
            say(f"note: no container will be held to its share (isolation none): {error}")
            return PluginIsolation.NONE.value
        remedy = "install from a bundle for this machine's processor, or give --isolation none"
        raise CliError(f"cannot install with --isolation {text}: {error}", remedy=remedy) from error
    if text == PluginIsolation.MPS and so_far.on_bypass is schema.BypassPolicy.KILL:
        raise CliError(
            f"cannot install with --isolation mps: {path} has isolation.on_bypass: kill, and a client of MPS that is "
            "killed faults the others on its card",
            remedy=f"set isolation.on_bypass to report in {path}, or give --isolation limiter",
        )
    return text
