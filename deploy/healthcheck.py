"""Check the driver in this container by its own port; a container without one passes always.

It asks at the address of probes if there is one; a sink has no other.  A run that answers over TLS
is asked over TLS, and as it is in this container, any certificate of its will do.
"""

import http.client
import os
import ssl
import sys

probes = os.environ.get("IKEBANA_PROBES") or os.environ.get("IKEBANA_DELIVER_HTTP")
address = probes or os.environ.get("IKEBANA_HTTP")
if address:
    host, _, port = address.rpartition(":")
    host = "127.0.0.1" if host in ("", "0.0.0.0") else host
    try:
        if probes or not os.environ.get("IKEBANA_TLS_CERT"):
            asking = http.client.HTTPConnection(host, int(port), timeout=4)
        else:
            unverified = ssl._create_unverified_context()
            asking = http.client.HTTPSConnection(host, int(port), timeout=4, context=unverified)
        asking.request("GET", "/live")
        sys.exit(asking.getresponse().status != http.client.OK)
    except OSError as error:
        sys.exit(f"{host}:{port}: {error}")
