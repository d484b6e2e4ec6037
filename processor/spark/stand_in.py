"""The program that Spark runs as its Python, in place of the real one.

It asks a fork server to run `python -m MODULE ARGUMENTS…` in a fork, with its own environment,
working directory and standard streams, waits for that process and ends with its status.  If the
server is away, or the command is another one, it executes an ordinary Python.

    python -I -S stand_in.py SOCKET -m MODULE ARGUMENTS…

It runs without our packages on its path, and imports almost nothing, so that it starts fast.
"""

import json
import os
import sys
from array import array
from contextlib import suppress
from socket import AF_UNIX, SCM_RIGHTS, SOCK_STREAM, SOL_SOCKET, socket

# The protocol of the socket: the streams that are sent, and the size of a number in bytes.
STREAMS = (0, 1, 2)
INT = 4
# The longest socket address that all systems accept, in bytes.
_LONGEST_ADDRESS = 100
# The descriptors of folders whose paths are too long, which stay open.
_folders: "dict[str, int]" = {}


def main() -> None:
    """Have the server fork the process, or execute Python instead."""
    address, arguments = sys.argv[1], sys.argv[2:]
    server = socket(AF_UNIX, SOCK_STREAM)
    answer = b""
    if arguments[0] == "-m":
        with suppress(OSError):
            _ask(server, address, arguments[1:])
            answer = server.recv(INT)
    if len(answer) < INT:
        os.execv(sys.executable, [sys.executable, *arguments])
    # The streams belong to the process now: readers must see their ends without waiting for us.
    for stream in STREAMS:
        os.close(stream)
    status = b""
    with suppress(OSError):
        status = server.recv(INT)
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


def _ask(server: socket, address: str, arguments: "list[str]") -> None:
    server.connect(short(address))
    request = {"arguments": arguments, "environment": dict(os.environ), "folder": os.getcwd()}
    body = json.dumps(request).encode()
    # The streams are sent together with the length, so no part of it can arrive without them.
    streams = [(SOL_SOCKET, SCM_RIGHTS, array("i", STREAMS))]
    server.sendmsg([len(body).to_bytes(INT, "big")], streams)
    server.sendall(body)


if __name__ == "__main__":
    main()
