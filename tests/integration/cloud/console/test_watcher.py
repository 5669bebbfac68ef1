"""The watcher of the store tells what changes, also what has changed before its thread began."""

import asyncio
import threading

from kits.console import ConsoleSite


def test_a_change_between_a_page_and_the_watchers_first_look_is_told(site: ConsoleSite) -> None:
    async def told() -> list[str]:
        with site.watcher.subscription() as queue:
            device = site.add(1, "hall-1")
            thread = threading.Thread(target=site.watcher.run)
            thread.start()
            try:
                found = await asyncio.wait_for(queue.get(), 30)
            finally:
                site.watcher.stop()
                thread.join()
        assert device in found
        return list(found)

    assert asyncio.run(told())
