"""Program `command`: somebody else's program, in this node's worker.

Runs the argument list `command`. Its last output line that is a JSON report (`{"ok": true, "value": 3.2, "unit":
"GB/s", "reason": "", "message": ""}`) decides; without one, the exit code. A report of success with an exit code that
is not 0 is no success. The program gets MUSTER_NODE, MUSTER_NODES (comma-separated, in rank order), RANK, WORLD_SIZE.
"""

from __future__ import annotations

import json
import math
import os
import signal
import subprocess
import threading
from typing import IO

from muster.workloads.context import RankContext
from muster.workloads.rank import MESSAGE_LIMIT, REASONS, RankFailure, RankResult

TAIL_BYTES = 64 * 1024


def run(context: RankContext) -> RankResult:
    """The program."""
    context.params.refuse_others("command", "unit")
    argv = context.params.texts("command")
    if not argv:
        raise RankFailure("harness", "no command: give `command` as a list of words")
    limit_s = max(0.1, context.spec.timeout_s - 1.0)
    environment = os.environ | {"MUSTER_NODE": context.node, "MUSTER_NODES": ",".join(context.spec.nodes)}
    try:
        # In the process group of the run: whoever ends the run ends the command too.
        process = subprocess.Popen(
            argv, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, env=environment
        )
    except (OSError, ValueError) as error:
        raise RankFailure("harness", f"{argv[0]} does not start: {error}") from error
    context.progress.enter("command")
    assert process.stdout is not None  # noqa: S101 - it is a pipe
    tail = _Tail(process.stdout)
    try:
        code = process.wait(limit_s)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
        raise RankFailure("timeout", f"{argv[0]} did not end within {limit_s:.0f} s; {tail.last_line()}") from None
    return judge(argv[0], code, tail.text())


class _Tail:
    """The last part of an output, read while the program runs."""

    def __init__(self, stream: IO[bytes]) -> None:
        self._kept = b""
        self._thread = threading.Thread(target=self._read, args=(stream,), daemon=True)
        self._thread.start()

    def text(self) -> str:
        # A grandchild may hold the pipe open for ever.
        self._thread.join(timeout=2.0)
        return self._kept.decode("utf-8", "replace")

    def last_line(self) -> str:
        lines = self.text().strip().splitlines()
        return lines[-1][:200] if lines else "no output"

    def _read(self, stream: IO[bytes]) -> None:
        while piece := os.read(stream.fileno(), 65536):
            self._kept = (self._kept + piece)[-TAIL_BYTES:]


def judge(name: str, code: int, output: str) -> RankResult:
    """What exit code and output mean. Pure."""
    report = last_report(output)
    if report is not None:
        if report.ok and code != 0:
            return RankResult(ok=False, reason="crash", message=f"{name} reported success and ended with {code}")
        return report
    if code == 0:
        return RankResult(ok=True)
    lines = output.strip().splitlines()
    told = (
        f"killed by {signal.Signals(-code).name}"
        if code < 0 and -code in list(signal.Signals)
        else f"ended with {code}"
    )
    return RankResult(ok=False, reason="crash", message=f"{name} {told}: {lines[-1][:200] if lines else 'no output'}")


def last_report(output: str) -> RankResult | None:
    """The last line that is a JSON object with a boolean `ok`; None when there is none."""
    for line in reversed(output.splitlines()):
        text = line.strip()
        if not text.startswith("{"):
            continue
        try:
            found = json.loads(text)
        except (ValueError, RecursionError):
            continue
        if not isinstance(found, dict) or not isinstance(found.get("ok"), bool):
            continue
        value, reason = found.get("value"), str(found.get("reason") or "")
        number = float(value) if isinstance(value, int | float) and not isinstance(value, bool) else None
        suspects = found.get("suspects")
        result = RankResult(
            ok=found["ok"],
            value=number,
            unit=str(found.get("unit") or "")[:40],
            reason=reason if reason in REASONS or not reason else "hardware",
            message=str(found.get("message") or "")[:MESSAGE_LIMIT],
            suspects=tuple(str(each) for each in suspects if isinstance(each, str))
            if isinstance(suspects, list)
            else (),
        )
        if number is not None and not math.isfinite(number):
            return result.honest()
        if not result.ok and not result.reason:
            return RankResult(ok=False, value=number, unit=result.unit, reason="hardware", message=result.message)
        return result
    return None
