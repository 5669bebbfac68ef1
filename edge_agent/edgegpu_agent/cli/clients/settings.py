"""The plugin's configuration file, read by the plugin's own reader."""

from pathlib import Path

from edgegpu_agent.cli.common import CliError
from edgegpu_plugin.config.schema import PluginConfig, load
from edgegpu_plugin.errors import ConfigError


def load_settings(path: Path) -> PluginConfig:
    """Return the configuration in a file.

    Raises:
        CliError: the file cannot be used; `more["problems"]` has a line for each problem.
    """
    try:
        return load(path)
    except ConfigError as error:
        problems = list(error.problems)
        raise CliError(
            f"cannot use the configuration {path}: {'; '.join(problems)}",
            remedy="correct the file, then run `edgegpu config check` again",
            more={"file": str(path), "problems": problems},
        ) from error
