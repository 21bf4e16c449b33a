"""Nodes as network namespaces of this machine, each pair with a wire of its own: one link can be made slow."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import combinations

from muster.certify.runners.local import Place

NETWORK = "10.231.0"
OUTSIDE = f"{NETWORK}.254"
PORT_INTERFACE = "eth0"
"""Interface of each node to the coordinator; it bears the address of the node."""


def why_not() -> str:
    """What keeps this machine from making namespaces; empty where nothing does."""
    if shutil.which("ip") is None or shutil.which("tc") is None:
        return "the programs ip and tc are not installed"
    name = f"mprobe{os.getpid() % 10_000}"
    made = subprocess.run(["ip", "netns", "add", name], capture_output=True, text=True)
    if made.returncode:
        return f"namespaces are not allowed: {made.stderr.strip()}"
    try:
        for command in (
            ["link", "set", "lo", "up"],
            ["link", "add", "probe0", "type", "veth", "peer", "name", "probe1"],
        ):
            done = subprocess.run(["ip", "-n", name, *command], capture_output=True, text=True)
            if done.returncode:
                return f"ip {' '.join(command)} fails: {done.stderr.strip()}"
        slow = _slow_command(name, "probe0")
        done = subprocess.run(slow, capture_output=True, text=True)
        return f"{' '.join(slow)} fails: {done.stderr.strip()}" if done.returncode else ""
    finally:
        subprocess.run(["ip", "netns", "del", name], capture_output=True)


@contextmanager
def nodes_in_namespaces(names: Sequence[str]) -> Iterator[dict[str, Place]]:
    """Places for the workers of `names`; everything is taken away again at the end."""
    spaces = {node: _space(i) for i, node in enumerate(names)}
    try:
        for i, node in enumerate(names):
            _node(i, spaces[node])
        for i, j in combinations(range(len(names)), 2):
            _wire(i, j, spaces[names[i]], spaces[names[j]])
        yield {
            node: Place(
                host=_address(i),
                prefix=("ip", "netns", "exec", spaces[node]),
                env={"GLOO_SOCKET_IFNAME": PORT_INTERFACE},
            )
            for i, node in enumerate(names)
        }
    finally:
        for i, space in enumerate(spaces.values()):
            subprocess.run(["ip", "link", "del", _outer(i)], capture_output=True)
            subprocess.run(["ip", "netns", "del", space], capture_output=True)


def make_slow(names: Sequence[str], a: str, b: str) -> None:
    """Let only 6 Mbit/s through between `a` and `b`, both ways; all other paths stay as they are."""
    i, j = names.index(a), names.index(b)
    for here, there in ((i, j), (j, i)):
        _run(*_slow_command(_space(here), f"to{there}"))


def _slow_command(space: str, interface: str) -> list[str]:
    shape = ["tbf", "rate", "6mbit", "burst", "32kb", "latency", "400ms"]
    return ["ip", "netns", "exec", space, "tc", "qdisc", "replace", "dev", interface, "root", *shape]


def _space(i: int) -> str:
    return f"muster{os.getpid() % 100_000}n{i}"


def _outer(i: int) -> str:
    return f"mo{os.getpid() % 100_000}n{i}"


def _address(i: int) -> str:
    return f"{NETWORK}.{i + 1}"


def _run(*command: str) -> None:
    subprocess.run(command, check=True, capture_output=True, text=True)


def _node(i: int, space: str) -> None:
    """A namespace with a wire to the outside, over which the coordinator comes."""
    outer = _outer(i)
    _run("ip", "netns", "add", space)
    _run("ip", "-n", space, "link", "set", "lo", "up")
    _run("ip", "link", "add", outer, "type", "veth", "peer", "name", PORT_INTERFACE, "netns", space)
    _run("ip", "addr", "add", f"{OUTSIDE}/32", "dev", outer)
    _run("ip", "link", "set", outer, "up")
    _run("ip", "route", "add", f"{_address(i)}/32", "dev", outer, "src", OUTSIDE)
    _run("ip", "-n", space, "addr", "add", f"{_address(i)}/32", "dev", PORT_INTERFACE)
    _run("ip", "-n", space, "link", "set", PORT_INTERFACE, "up")
    _run("ip", "-n", space, "route", "add", f"{OUTSIDE}/32", "dev", PORT_INTERFACE)


def _wire(i: int, j: int, a: str, b: str) -> None:
    _run("ip", "-n", a, "link", "add", f"to{j}", "type", "veth", "peer", "name", f"to{i}", "netns", b)
    for here, there, space in ((i, j, a), (j, i, b)):
        _run("ip", "-n", space, "link", "set", f"to{there}", "up")
        _run("ip", "-n", space, "route", "add", f"{_address(there)}/32", "dev", f"to{there}", "src", _address(here))
