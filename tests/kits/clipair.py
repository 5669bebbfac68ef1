"""A controller's folder and the console over its store: commands are given here, and to the console from elsewhere."""

from __future__ import annotations

import time
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from kits.cert import Authority
from kits.cloudcli import Done, ok, run
from kits.console import ConsoleSite

from edgegpu_cloud.cli.remote.client import CA_FILE, TOKEN
from edgegpu_cloud.layout import CloudLayout, load, store_url
from edgegpu_cloud.store.store import ControllerStore

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    import pytest
    from kits.todaysstores import TodaysStores


@dataclass(frozen=True)
class Pair:
    """A controller's folder, and the URL of its console."""

    folder: Path
    url: str
    site: ConsoleSite

    def here(self, *words: str) -> Done:
        """Give a command on the controller's machine."""
        return run(*words, folder=self.folder)

    def there(self, *words: str) -> Done:
        """Give a command on another machine, as otto."""
        return run("--server", self.url, *words)


@contextmanager
def made_pair(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, stores: TodaysStores) -> Iterator[Pair]:
    """Make a controller without boxes, in the database of the day, and serve its console."""
    folder = tmp_path / "cloud"
    with stores.url(empty=True) as url:
        ok("init", "--name", "localhost", "--folder", str(folder), *(("--database", url) if stores.server else ()))
        layout = CloudLayout(folder)
        store = ControllerStore.open(store_url(layout, load(layout.config).database))
        site = ConsoleSite(store, now_s=time.time())
        authority = Authority("authority")
        (tmp_path / "ca.crt").write_text(authority.pem)
        monkeypatch.setenv(CA_FILE, str(tmp_path / "ca.crt"))
        monkeypatch.setenv(TOKEN, "egt_otto")
        monkeypatch.setenv("EDGEGPU_DEBUG", "")
        with site.served(tmp_path, authority) as served_at:
            yield Pair(folder, served_at, site)
        store.close()
