"""An HTTPS server of one folder, run beside the boxes: `python web.py FOLDER CERT KEY PORT`."""

import http.server
import ssl
import sys
from functools import partial


def main() -> None:
    """Serve until killed."""
    folder, cert, key, port = sys.argv[1:]
    handler = partial(http.server.SimpleHTTPRequestHandler, directory=folder)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(cert, key)
    with http.server.ThreadingHTTPServer(("0.0.0.0", int(port)), handler) as server:  # noqa: S104  (a LAN of its own)
        server.socket = context.wrap_socket(server.socket, server_side=True)
        print("serving", flush=True)  # noqa: T201  (who started it waits for this)
        server.serve_forever()


if __name__ == "__main__":
    main()
