"""What a node is asked to run: one run of one test, as JSON between coordinator, worker and program.

Standard library only: this package runs in any image that has Python 3.10.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field

SPEC_LIMIT_BYTES = 1024 * 1024
NODES_LIMIT = 10_000
NAME_LIMIT = 253
TIMEOUT_LIMIT_S = 7 * 86_400.0
DEVICES = ("cpu", "cuda")
_RUN_CHARACTERS = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_.")


class SpecError(ValueError):
    """The text is no run that can be carried out; the sentence names the field."""


@dataclass(frozen=True)
class RunSpec:
    """One run, as one of its nodes sees it."""

    run: str
    """Identity of the run, the key of idempotence; letters, digits and `-_.`."""
    test: str
    """Name in the catalogue, for example `all-reduce`."""
    program: str
    """Name of a program of this package, or `command` for the argv in `params["command"]`."""
    params: Mapping[str, object] = field(default_factory=dict)
    nodes: tuple[str, ...] = ()
    """Names in rank order."""
    node_index: int = 0
    """Place of this node in `nodes`."""
    ranks_per_node: int = 1
    device: str = "cpu"
    """`cuda` or `cpu`."""
    rendezvous: str = ""
    """`host:port` on the first node; empty for one node alone."""
    timeout_s: float = 300.0
    env: Mapping[str, str] = field(default_factory=dict)
    """Environment of the program (`NCCL_IB_HCA`)."""
    inject: Mapping[str, object] = field(default_factory=dict)
    """A fault to act out for real; refused by a worker that was not started with `--allow-injection`."""

    @property
    def node(self) -> str:
        """Name of this node."""
        return self.nodes[self.node_index]

    @property
    def world_size(self) -> int:
        """Ranks of the run over all its nodes."""
        return len(self.nodes) * self.ranks_per_node

    def to_json(self) -> str:
        """The spec as JSON with sorted keys: equal specs give equal texts."""
        return json.dumps(
            {
                "run": self.run,
                "test": self.test,
                "program": self.program,
                "params": dict(self.params),
                "nodes": list(self.nodes),
                "nodeIndex": self.node_index,
                "ranksPerNode": self.ranks_per_node,
                "device": self.device,
                "rendezvous": self.rendezvous,
                "timeoutS": self.timeout_s,
                "env": dict(self.env),
                "inject": dict(self.inject),
            },
            sort_keys=True,
            separators=(",", ":"),
        )

    @staticmethod
    def from_json(text: str | bytes) -> RunSpec:
        """Read a spec. Raises SpecError for anything that is not one, whatever it is."""
        return _read(text)


def _read(text: str | bytes) -> RunSpec:
    if len(text) > SPEC_LIMIT_BYTES:
        raise SpecError(f"The run is described by more than {SPEC_LIMIT_BYTES} bytes.")
    try:
        found = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise SpecError(f"The run is not described by JSON: {error}.") from error
    if not isinstance(found, dict):
        raise SpecError("The run is not described by a JSON object.")
    unknown = sorted(set(found) - _FIELDS)
    if unknown:
        raise SpecError(f"The run has fields that are not known: {', '.join(unknown)[:NAME_LIMIT]}.")
    spec = RunSpec(
        run=_word(found, "run"),
        test=_word(found, "test"),
        program=_word(found, "program"),
        params=_mapping(found, "params"),
        nodes=_names(found),
        node_index=_whole(found, "nodeIndex", 0, NODES_LIMIT),
        ranks_per_node=_whole(found, "ranksPerNode", 1, 1024),
        device=_word(found, "device"),
        rendezvous=_text(found, "rendezvous"),
        timeout_s=_seconds(found),
        env={key: str(value) for key, value in _mapping(found, "env").items()},
        inject=_mapping(found, "inject"),
    )
    return _checked(spec)


_FIELDS = frozenset(json.loads(RunSpec("", "", "").to_json()))


def _checked(spec: RunSpec) -> RunSpec:
    if not set(spec.run) <= _RUN_CHARACTERS or spec.run.startswith("."):
        raise SpecError("The field run may hold letters, digits, '-', '_' and '.', and starts with no '.'.")
    if spec.node_index >= len(spec.nodes):
        raise SpecError(f"The field nodeIndex is {spec.node_index}, and the run has {len(spec.nodes)} node(s).")
    if spec.device not in DEVICES:
        raise SpecError(f"The field device must be one of {', '.join(DEVICES)}.")
    if len(spec.nodes) > 1 or spec.rendezvous:
        host_and_port(spec.rendezvous)
    return spec


def _is_port(digits: str) -> bool:
    return len(digits) <= 5 and 0 < int(digits) < 65_536


def host_and_port(text: str) -> tuple[str, int]:
    """`host:port` taken apart; an IPv6 address stands in brackets. Raises SpecError."""
    host, colon, port = text.rpartition(":")
    if not colon or not host or not port.isascii() or not port.isdigit() or not _is_port(port):
        raise SpecError(f"The field rendezvous must read host:port, and is '{text[:NAME_LIMIT]}'.")
    return host.removeprefix("[").removesuffix("]"), int(port)


def _text(found: Mapping[str, object], key: str) -> str:
    value = found.get(key, "")
    if not isinstance(value, str) or len(value) > 2 * NAME_LIMIT:
        raise SpecError(f"The field {key} must be a text of at most {2 * NAME_LIMIT} characters.")
    return value


def _word(found: Mapping[str, object], key: str) -> str:
    value = _text(found, key)
    if not value or len(value) > NAME_LIMIT or not value.isprintable():
        raise SpecError(f"The field {key} must be a name of 1 to {NAME_LIMIT} characters.")
    return value


def _names(found: Mapping[str, object]) -> tuple[str, ...]:
    value = found.get("nodes")
    if not isinstance(value, list) or not 0 < len(value) <= NODES_LIMIT:
        raise SpecError(f"The field nodes must be a list of 1 to {NODES_LIMIT} names.")
    names = tuple(n for n in value if isinstance(n, str) and n and len(n) <= NAME_LIMIT)
    if len(names) != len(value) or len(set(names)) != len(names):
        raise SpecError("The field nodes must hold names, each of them once.")
    return names


def _mapping(found: Mapping[str, object], key: str) -> Mapping[str, object]:
    value = found.get(key, {})
    if not isinstance(value, dict):
        raise SpecError(f"The field {key} must be an object.")
    return value


def _whole(found: Mapping[str, object], key: str, least: int, most: int) -> int:
    value = found.get(key, least)
    if not isinstance(value, int) or isinstance(value, bool) or not least <= value <= most:
        raise SpecError(f"The field {key} must be a whole number from {least} to {most}.")
    return value


def _seconds(found: Mapping[str, object]) -> float:
    value = found.get("timeoutS")
    if isinstance(value, bool) or not isinstance(value, int | float) or value != value:
        raise SpecError("The field timeoutS must be a number of seconds.")
    # Compared before anything else: a whole number may be too large to become a float.
    if not 0 < value <= TIMEOUT_LIMIT_S:
        raise SpecError(f"The field timeoutS must be above 0 and at most {TIMEOUT_LIMIT_S:g}.")
    return float(value)
