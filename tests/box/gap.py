"""Asks an API server every 50 ms until stdin ends, then prints its longest silence in s: `python gap.py URL`."""

import ssl
import sys
import threading
import time
import urllib.error
import urllib.request


def answers(url: str, context: ssl.SSLContext) -> bool:
    """Say whether anything but a fault of the server came back; a 401 is an answer."""
    try:
        urllib.request.urlopen(url, timeout=1, context=context).close()  # noqa: S310  (the test's own URL)
    except urllib.error.HTTPError as error:
        return error.code < 500
    except OSError:
        return False
    return True


def main() -> None:
    """Measure."""
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    ended = threading.Event()

    def wait() -> None:
        sys.stdin.read()
        ended.set()

    threading.Thread(target=wait, daemon=True).start()
    last, longest = time.monotonic(), 0.0
    while not ended.is_set():
        if answers(sys.argv[1], context):
            now = time.monotonic()
            longest, last = max(longest, now - last), now
        ended.wait(0.05)
    print(f"{max(longest, time.monotonic() - last):.3f}")  # noqa: T201  (who started it reads this)


if __name__ == "__main__":
    main()
