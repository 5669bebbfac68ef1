"""A small MQTT broker for a laptop without mosquitto: a process around amqtt. MQTT 3.1.1, TLS, and no rights at all."""

import argparse
import asyncio
import logging
import signal
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

MISSING = "amqtt is not installed: it comes with `make venv`, or install mosquitto"


def _listeners(chosen: argparse.Namespace) -> dict[str, Any]:
    """Return a listener for each pair of port and authority; the first is amqtt's default, which the others copy."""
    common = {"type": "tcp", "ssl": True, "certfile": str(chosen.cert), "keyfile": str(chosen.key)}
    return {
        "default" if not at else f"more-{at}": {**common, "bind": f"127.0.0.1:{port}", "cafile": authority}
        for at, (port, authority) in enumerate(chosen.listen)
    }


async def _serve(chosen: argparse.Namespace) -> None:
    from amqtt.broker import Broker  # type: ignore[import-untyped]  # noqa: PLC0415  (it may not be there)

    logging.getLogger("amqtt").setLevel(logging.CRITICAL)
    plugins = {"amqtt.plugins.authentication.AnonymousAuthPlugin": {"allow_anonymous": True}}
    broker = Broker({"listeners": _listeners(chosen), "plugins": plugins})
    ended, loop = asyncio.Event(), asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, ended.set)
    await broker.start()
    await ended.wait()
    await broker.shutdown()


def main(argv: Sequence[str] | None = None) -> int:
    """Run it until SIGTERM; returns 1 where there is no amqtt."""
    parser = argparse.ArgumentParser(prog="python -m edgegpu_sim.broker", description=__doc__)
    parser.add_argument("--listen", nargs=2, action="append", required=True, metavar=("PORT", "CA"))
    parser.add_argument("--cert", type=Path, required=True)
    parser.add_argument("--key", type=Path, required=True)
    chosen = parser.parse_args(argv)
    try:
        asyncio.run(_serve(chosen))
    except ImportError:
        sys.stderr.write(f"{MISSING}\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
