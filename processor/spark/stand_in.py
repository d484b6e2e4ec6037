"""The program that Spark runs as its Python: a process forked from one with all imports.

It asks a fork server for `python -m MODULE ARGUMENTS…` with its own environment, working directory
and standard streams, waits for the end of that process and ends with its status.  Where the
server is away, or something else is asked for, it becomes an ordinary Python.

    python -I -S stand_in.py SOCKET -m MODULE ARGUMENTS…

It runs with none of our packages on its path, and imports next to nothing: starting fast
is all that it is for.
"""

import json
import os
import sys
from array import array
from contextlib import suppress
from socket import AF_UNIX, SCM_RIGHTS, SOCK_STREAM, SOL_SOCKET, socket

# What both ends of the socket agree on: the streams that travel, and the bytes of a number.
STREAMS = (0, 1, 2)
INT = 4
# What fits into an address of a socket everywhere, in bytes.
_LONGEST_ADDRESS = 100


def main() -> None:
    """Hand the process over, or become it."""
    address, arguments = sys.argv[1], sys.argv[2:]
    server = socket(AF_UNIX, SOCK_STREAM)
    answer = b""
    if arguments[0] == "-m":
        with suppress(OSError):
            _ask(server, address, arguments[1:])
            answer = server.recv(INT)
    if len(answer) < INT:
        os.execv(sys.executable, [sys.executable, *arguments])
    # The streams are the process's now: their ends must not wait for us.
    for stream in STREAMS:
        os.close(stream)
    status = b""
    with suppress(OSError):
        status = server.recv(INT)
    os._exit(int.from_bytes(status, "big") if len(status) == INT else 1)


def short(address: str) -> str:
    """A socket's path by which it can be bound and found, however deep its folder lies."""
    if len(os.fsencode(address)) <= _LONGEST_ADDRESS:
        return address
    folder, name = os.path.split(address)
    # It stays open: the path is of this process, as long as it lives.
    return f"/proc/self/fd/{os.open(folder, os.O_RDONLY | os.O_DIRECTORY)}/{name}"


def _ask(server: socket, address: str, arguments: "list[str]") -> None:
    server.connect(short(address))
    request = {"arguments": arguments, "environment": dict(os.environ), "folder": os.getcwd()}
    body = json.dumps(request).encode()
    # The streams travel with the length, so that no part of it can be without them.
    streams = [(SOL_SOCKET, SCM_RIGHTS, array("i", STREAMS))]
    server.sendmsg([len(body).to_bytes(INT, "big")], streams)
    server.sendall(body)


if __name__ == "__main__":
    main()
