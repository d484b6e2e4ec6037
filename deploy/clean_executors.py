"""Delete the executor pods of an earlier driver: clean_executors.py LABEL_SELECTOR.

Kubernetes deletes executors together with the driver's pod.  When only the driver's container
is started again, its pod stays, and so would the executors of the earlier driver.  The script
asks the API server with the pod's own token.  If that fails, it prints the error and the driver
starts anyway: it fences the old executors, so they cannot commit anything.
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
    """Send one request for the deletion."""
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
