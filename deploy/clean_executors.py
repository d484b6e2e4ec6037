"""Delete the executor pods of an earlier driver: clean_executors.py LABEL_SELECTOR.

Executors belong to the driver's pod, which lives on when only its container is started
again; they would be left behind, ended or not.  Speaks to the API server with the
pod's own token.  A failure is told and is no reason not to start: such executors
can't commit anything, since the new driver fences them.
"""

import os
import ssl
import sys
import urllib.parse
import urllib.request
from pathlib import Path

_ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")
_TIMEOUT_S = 10


def main(selector: str) -> None:
    """Ask once."""
    server = f"{os.environ['KUBERNETES_SERVICE_HOST']}:{os.environ['KUBERNETES_SERVICE_PORT']}"
    namespace = (_ACCOUNT / "namespace").read_text()
    query = urllib.parse.urlencode({"labelSelector": selector})
    request = urllib.request.Request(
        f"https://{server}/api/v1/namespaces/{namespace}/pods?{query}",
        method="DELETE",
        headers={"Authorization": f"Bearer {(_ACCOUNT / 'token').read_text()}"},
    )
    context = ssl.create_default_context(cafile=str(_ACCOUNT / "ca.crt"))
    with urllib.request.urlopen(request, timeout=_TIMEOUT_S, context=context):
        pass


if __name__ == "__main__":
    try:
        main(sys.argv[1])
    except (OSError, KeyError) as error:
        print(f"could not delete the executors of an earlier driver: {error!r}", file=sys.stderr)
