"""Check the driver in this container by its own port; a container without one passes always."""

import http.client
import os
import sys

address = os.environ.get("IKEBANA_HTTP")
if address:
    host, _, port = address.rpartition(":")
    host = "127.0.0.1" if host in ("", "0.0.0.0") else host
    try:
        asking = http.client.HTTPConnection(host, int(port), timeout=4)
        asking.request("GET", "/live")
        sys.exit(asking.getresponse().status != http.client.OK)
    except OSError as error:
        sys.exit(f"{host}:{port}: {error}")
