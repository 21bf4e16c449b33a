"""Tests with an image of their own: what their pods run, and how their output becomes a report. Pure.

The image need hold nothing of Muster: a line of shell runs the command, prints its output, and leaves it as the
termination message, compressed where it is long. What comes back is foreign text: bounded, and never evaluated.
"""

from __future__ import annotations

import base64
import binascii
import math
import zlib
from collections.abc import Sequence

from muster.certify.catalogue import CatalogueTest
from muster.certify.measure import MESSAGE_LIMIT, HowEnded, RankEnd, Report
from muster.certify.runners.placement import resource_claims, resources, tolerations
from muster.errors import BadInputError
from muster.kube.api import Object
from muster.read import formats
from muster.read.report import Report as Reading
from muster.read.report import Result, Verdict
from muster.read.source import SAMPLE_BYTES, Input
from muster.resources.certification import Pods, Reason
from muster.workloads import command

OUTPUT_LIMIT_BYTES = 1024 * 1024
"""Output that is read of one command."""
PACKED = "gz:"
_FOLDER = "/muster-output"
_WRAPPER = (
    f'cd / ; "$@" >{_FOLDER}/text 2>&1; code=$?; cat {_FOLDER}/text; '
    f"(gzip -9 <{_FOLDER}/text | base64 | tr -d '\\n') >{_FOLDER}/packed 2>/dev/null; "
    f'if [ -s {_FOLDER}/packed ] && [ "$(wc -c <{_FOLDER}/packed)" -lt 4090 ]; '
    f"then (printf {PACKED}; cat {_FOLDER}/packed) >/dev/termination-log; "
    f"else tail -c 4000 {_FOLDER}/text >/dev/termination-log; fi; exit $code"
)
"""A kubelet keeps 4,096 bytes of a termination message; JSON of a diagnostic shrinks to a tenth."""


def program_spec(test: CatalogueTest, nodes: Sequence[str], rank: int, pods: Pods, gpus: int) -> Object:
    """The parts of a pod's spec that make it run the command of `test`. Raises BadInputError (tolerations)."""
    environment = {
        **test.env,
        **pods.env,
        "MUSTER_NODE": nodes[rank],
        "MUSTER_NODES": ",".join(nodes),
        "RANK": str(rank),
        "WORLD_SIZE": str(len(nodes)),
    }
    spec: Object = {
        "tolerations": tolerations(pods),
        "enableServiceLinks": False,
        "securityContext": {"seccompProfile": {"type": "RuntimeDefault"}},
        "containers": [
            {
                "name": "test",
                "image": test.image,
                "imagePullPolicy": "IfNotPresent",
                "command": ["/bin/sh", "-c", _WRAPPER, "test", *test.command],
                "env": [{"name": name, "value": value} for name, value in sorted(environment.items())],
                "resources": resources(pods, gpus),
                "securityContext": {"allowPrivilegeEscalation": False},
                "terminationMessagePolicy": "FallbackToLogsOnError",
                "volumeMounts": [
                    {"name": "shm", "mountPath": "/dev/shm"},  # noqa: S108 - NCCL's shared memory
                    {"name": "output", "mountPath": _FOLDER},
                    *([{"name": "storage", "mountPath": "/storage"}] if pods.storage_claim else []),
                ],
            }
        ],
        "volumes": [
            {"name": "shm", "emptyDir": {"medium": "Memory"}},
            {"name": "output", "emptyDir": {"sizeLimit": "256Mi"}},
        ],
    }
    if pods.storage_claim:
        claim = {"claimName": pods.storage_claim}
        spec["volumes"].append({"name": "storage", "persistentVolumeClaim": claim})
    if claims := resource_claims(pods):
        spec["resourceClaims"] = claims
    if pods.image_pull_secrets:
        spec["imagePullSecrets"] = [{"name": name} for name in pods.image_pull_secrets]
    if pods.host_network:
        spec |= {"hostNetwork": True, "dnsPolicy": "ClusterFirstWithHostNet"}
    return spec


def output_of(message: str) -> str:
    """The output in a termination message; empty when it cannot be unpacked."""
    if not message.startswith(PACKED):
        return message
    try:
        packed = base64.b64decode(message[len(PACKED) :], validate=True)
        return zlib.decompressobj(31).decompress(packed, OUTPUT_LIMIT_BYTES).decode("utf-8", "replace")
    except (binascii.Error, zlib.error, ValueError):
        return ""


def end_of_program(node: str, test: CatalogueTest, exit_code: int, message: str) -> RankEnd:
    """How the command of `test` ended on `node`: what its output says, without one its exit code."""
    output = output_of(message)
    if not test.parser:
        judged = command.judge(test.command[0], exit_code, output)
        report = Report(
            node, judged.ok, judged.value, judged.unit, judged.reason, tuple(judged.suspects), judged.message
        )
        if report.value is not None and not math.isfinite(report.value):
            return RankEnd(node, HowEnded.MUTE)
        return RankEnd(node, HowEnded.REPORTED, report)
    if not output.strip():
        words = f"{test.command[0]} ended with exit code {exit_code} and printed nothing"
        return RankEnd(node, HowEnded.CRASHED if exit_code else HowEnded.MUTE, message=words)
    return RankEnd(node, HowEnded.REPORTED, _read(node, test, exit_code, output))


def _read(node: str, test: CatalogueTest, exit_code: int, output: str) -> Report:
    """What the parser of the test makes of the output. What it cannot read is a broken test, not a broken node."""
    raw = output.encode()
    try:
        found = formats.read([Input(node, raw[:SAMPLE_BYTES], lambda: [raw])], {}, test.parser)
    except BadInputError as error:
        return _harness(node, f"the output of {test.command[0]} cannot be read: {error}")
    value = _number(found, test)
    # How fast is fast enough is decided later, by floors and peers.
    counting = [v for v in found.verdicts if value is None or (v.result, v.reason) != (Result.UNKNOWN, NO_FLOOR)]
    worst = min(counting, key=lambda v: _ORDER.index(v.result), default=None)
    # A warning of a diagnostic is no proof that the node is well, and none that it is not.
    if worst is None or worst.result in (Result.INVALID, Result.UNKNOWN, Result.WARN):
        said = _words(worst) if worst is not None else f"no verdict in the output (exit code {exit_code})"
        return _harness(node, said)
    ok = worst.result is not Result.FAIL
    if ok and exit_code:
        return _harness(
            node, f"{test.command[0]} ended with exit code {exit_code} although its output tells no fault"
        )
    if ok and test.metric and value is None:
        return _harness(node, f"no {test.metric} in {test.unit} in the output")
    known = _REASONS.get(worst.reason) or next((r for r in Reason if r.value == worst.reason), None)
    reason = "" if ok else (known or test.below).value
    return Report(node, ok, value, test.unit, reason, (), "" if ok else _words(worst))


NO_FLOOR = "no-floor"
_REASONS = {"numeric-corruption": Reason.NUMERIC}
"""Reasons of readers that have another name here."""
_ORDER = (Result.FAIL, Result.INVALID, Result.UNKNOWN, Result.WARN, Result.PASS)


def _words(verdict: Verdict) -> str:
    return f"{verdict.of}: {verdict.message or verdict.reason}"[:MESSAGE_LIMIT]


def _harness(node: str, message: str) -> Report:
    return Report(node, False, None, "", Reason.HARNESS.value, (), message[:MESSAGE_LIMIT])


def _number(found: Reading, test: CatalogueTest) -> float | None:
    """The peak of the metric where the reader tells it (`busbw_max`), else the least value with it in its name."""
    numbers = {
        name: float(v.value)
        for name, v in sorted(found.values.items())
        if test.metric
        and test.metric in name
        and v.unit == test.unit
        and isinstance(v.value, int | float)
        and math.isfinite(v.value)
    }
    return numbers.get(f"{test.metric}_max", min(numbers.values(), default=None))
