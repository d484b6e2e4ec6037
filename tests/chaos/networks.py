"""A network of this machine's own, between whose members connections can be cut one by one.

Each member is a network namespace with an address on a bridge, at which this machine reaches
all of them.  What two members send each other can be thrown away, while both still hear from
everybody else.  It takes root.
"""

import os
import secrets
import shlex
import shutil
import subprocess
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from chaos.runs import Wrong


class Network:
    """A bridge with members, known by numbers from 1 on; `close` removes it."""

    def __init__(self, members: Iterable[int]) -> None:
        # Two of them at a time must not meet.
        self._name = f"ik{secrets.token_hex(3)}"
        self._subnet = f"10.213.{secrets.randbelow(256)}"
        self._members = list(members)
        self.here = f"{self._subnet}.254"
        """An address of this machine."""
        self.here_too = f"{self._subnet}.253"
        """Another one, from which members can be cut off while they reach the first."""
        _ip("link", "add", self._name, "type", "bridge")
        try:
            for address in (self.here, self.here_too):
                _ip("addr", "add", f"{address}/24", "dev", self._name)
            _ip("link", "set", self._name, "up")
            for number in self._members:
                self._join(number)
        except BaseException:
            self.close()
            raise

    def address(self, number: int) -> str:
        """Where a member is reached."""
        return f"{self._subnet}.{number}"

    def java(
        self, number: int, java: Path, folder: Path, disks: Mapping[Path, Path] | None = None
    ) -> Path:
        """A program in `folder` that runs a Java as a member.

        Of `disks` it sees the second folder where the first one is, and so does what it starts.
        """
        folder.mkdir(parents=True, exist_ok=True)
        program = folder / "java"
        mounts = "".join(
            f"mount --bind {shlex.quote(str(own))} {shlex.quote(str(seen))} && "
            for seen, own in (disks or {}).items()
        )
        # `ip netns exec` gives it mounts of its own.
        inside = f"""sh -c '{mounts}exec {java} "$@"' java "$@\""""
        program.write_text(f"#!/bin/sh\nexec ip netns exec {self._namespace(number)} {inside}\n")
        program.chmod(0o700)
        return program

    @contextmanager
    def cut(self, number: int, address: str) -> Iterator[None]:
        """Throw away what a member and an address send each other, for a `with` block."""
        namespace = self._namespace(number)
        # What comes from where nothing can be sent to is thrown away then.
        strict = "echo 1 > /proc/sys/net/ipv4/conf/all/rp_filter"
        _ip("netns", "exec", namespace, "sh", "-c", strict)
        _ip("-n", namespace, "route", "add", "blackhole", f"{address}/32")
        try:
            yield
        finally:
            _ip("-n", namespace, "route", "del", "blackhole", f"{address}/32")

    @contextmanager
    def apart(self, alone: int) -> Iterator[None]:
        """Throw away what a member and the other ones send each other, for a `with` block."""
        others = [number for number in self._members if number != alone]
        ways = [(alone, other) for other in others] + [(other, alone) for other in others]
        for number, other in ways:
            self._route("add", number, other)
        try:
            yield
        finally:
            for number, other in ways:
                self._route("del", number, other)

    def close(self) -> None:
        """Remove all of it."""
        for number in self._members:
            command = ["ip", "netns", "del", self._namespace(number)]
            subprocess.run(command, capture_output=True, check=False)
        subprocess.run(["ip", "link", "del", self._name], capture_output=True, check=False)

    def _namespace(self, number: int) -> str:
        return f"{self._name}-{number}"

    def _join(self, number: int) -> None:
        namespace, link = self._namespace(number), f"{self._name}v{number}"
        _ip("netns", "add", namespace)
        peer = ("peer", "name", "eth0", "netns", namespace)
        _ip("link", "add", link, "type", "veth", *peer)
        _ip("link", "set", link, "master", self._name, "up")
        _ip("-n", namespace, "addr", "add", f"{self.address(number)}/24", "dev", "eth0")
        for device in ("eth0", "lo"):
            _ip("-n", namespace, "link", "set", device, "up")

    def _route(self, what: str, number: int, other: int) -> None:
        where = f"{self.address(other)}/32"
        _ip("-n", self._namespace(number), "route", what, "blackhole", where)


def available() -> bool:
    """Whether this process may make one."""
    return os.geteuid() == 0 and shutil.which("ip") is not None


def _ip(*arguments: str) -> None:
    done = subprocess.run(["ip", *arguments], capture_output=True, text=True, check=False)
    if done.returncode:
        raise Wrong(f"could not `ip {' '.join(arguments)}`: {done.stderr.strip()}")
