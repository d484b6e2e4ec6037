"""Ask the host of this machine to run `python -m MODULE ARGUMENTS…`, in place of Python.

The host runs it in a fork, with our environment, working directory and standard streams.  We
wait for that process and end with its status.  If the host is away, or the command is another
one, we execute an ordinary Python.

    IKEBANA_HOST=… python -I -S stand_in.py -m MODULE ARGUMENTS…

It runs without our packages on its path, and imports almost nothing, so that it starts fast.
"""

import json
import os
import sys
from array import array
from contextlib import suppress
from socket import AF_UNIX, SCM_RIGHTS, SOCK_STREAM, SOL_SOCKET, socket

VARIABLE = "IKEBANA_HOST"
"""The environment variable that names a host: numbers of owners and readers, and a folder."""
FORKS = "forks"
"""The name of the socket, in the folder of a host, at which it forks."""
# The protocol of the socket: the streams that are sent, and the size of a number in bytes.
STREAMS = (0, 1, 2)
INT = 4
# The longest socket address that all systems accept, in bytes.
_LONGEST_ADDRESS = 100
# The descriptors of folders whose paths are too long, which stay open.
_folders: "dict[str, int]" = {}


def main() -> None:
    """Have the host fork the process, or execute Python instead."""
    arguments = sys.argv[1:]
    host = socket(AF_UNIX, SOCK_STREAM)
    answer = b""
    if arguments[:1] == ["-m"]:
        with suppress(OSError):
            _ask(host, f"{os.environ[VARIABLE].split(' ', 2)[2]}/{FORKS}", arguments[1:])
            answer = host.recv(INT)
    if len(answer) < INT:
        os.execv(sys.executable, [sys.executable, *arguments])
    # The streams belong to the process now: readers must see their ends without waiting for us.
    for stream in STREAMS:
        os.close(stream)
    status = b""
    with suppress(OSError):
        status = host.recv(INT)
    os._exit(int.from_bytes(status, "big") if len(status) == INT else 1)


def short(address: str) -> str:
    """Shorten a socket's path, so that it can be bound and found in a deep folder."""
    if len(os.fsencode(address)) <= _LONGEST_ADDRESS:
        return address
    folder, name = os.path.split(address)
    if folder not in _folders:
        _folders[folder] = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    # The path is valid in this process, as long as it lives.
    return f"/proc/self/fd/{_folders[folder]}/{name}"


def _ask(host: socket, address: str, arguments: "list[str]") -> None:
    host.connect(short(address))
    request = {"arguments": arguments, "environment": dict(os.environ), "folder": os.getcwd()}
    body = json.dumps(request).encode()
    # The streams are sent together with the length, so no part of it can arrive without them.
    streams = [(SOL_SOCKET, SCM_RIGHTS, array("i", STREAMS))]
    host.sendmsg([len(body).to_bytes(INT, "big")], streams)
    host.sendall(body)


if __name__ == "__main__":
    main()
