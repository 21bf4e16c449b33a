"""Running `fio` and reading its JSON."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from muster.workloads.rank import RankFailure

OUTPUT_LIMIT_BYTES = 4 << 20
JOBS = ("write", "read", "randwrite", "randread")


@dataclass(frozen=True)
class FioFigures:
    version: str
    write_bytes_per_s: float
    read_bytes_per_s: float
    random_write_iops: float
    random_read_iops: float
    random_read_p99_s: float


def measure(
    program: str, folder: Path, size: int, block: int, random_block: int, seconds: float, timeout_s: float
) -> FioFigures:
    """Runs four jobs one after the other over one file, which is removed. Raises `RankFailure`."""
    path = folder / f".muster-fio-{os.uname().nodename}-{os.getpid()}"
    command = [
        program,
        "--output-format=json",
        f"--filename={path}",
        f"--size={size}",
        "--ioengine=psync",
        "--direct=1",
    ]
    for job in JOBS:
        bs = random_block if job.startswith("rand") else block
        command += [f"--name={job}", f"--rw={job}", f"--bs={bs}", "--stonewall"]
        command += (
            ["--time_based", f"--runtime={max(1, round(seconds))}"] if job.startswith("rand") else ["--end_fsync=1"]
        )
    try:
        done = subprocess.run(command, capture_output=True, timeout=timeout_s, check=False)
    except subprocess.TimeoutExpired as error:
        raise RankFailure("timeout", f"fio did not end within {timeout_s:.0f} s") from error
    except OSError as error:
        raise RankFailure("harness", f"fio does not start: {error}") from error
    finally:
        path.unlink(missing_ok=True)
    if done.returncode:
        told = done.stderr.decode("utf-8", "replace").strip().splitlines()
        raise RankFailure("harness", f"fio ended with {done.returncode}: {told[-1][:200] if told else 'no message'}")
    try:
        return read_fio(done.stdout[:OUTPUT_LIMIT_BYTES].decode("utf-8", "replace"))
    except ValueError as error:
        raise RankFailure("harness", f"the output of fio cannot be read: {error}") from error


def read_fio(text: str) -> FioFigures:
    """Pure. Text before the JSON (warnings) is passed over. Raises `ValueError` when a job is missing or has
    failed."""
    start = text.find("{")
    found = json.loads(text[start:] if start >= 0 else text)
    jobs = {str(each.get("jobname")): each for each in found.get("jobs", ()) if isinstance(each, dict)}
    for name in JOBS:
        if name not in jobs:
            raise ValueError(f"job {name} is missing")
        if jobs[name].get("error"):
            raise ValueError(f"job {name} ended with error {jobs[name]['error']}")
    return FioFigures(
        version=str(found.get("fio version", "fio"))[:40],
        write_bytes_per_s=_figure(jobs["write"], "write", "bw_bytes"),
        read_bytes_per_s=_figure(jobs["read"], "read", "bw_bytes"),
        random_write_iops=_figure(jobs["randwrite"], "write", "iops"),
        random_read_iops=_figure(jobs["randread"], "read", "iops"),
        random_read_p99_s=_percentile(jobs["randread"]["read"]) / 1e9,
    )


def _figure(job: Mapping[str, object], direction: str, key: str) -> float:
    part = job.get(direction)
    value = part.get(key) if isinstance(part, dict) else None
    if isinstance(value, bool) or not isinstance(value, int | float) or not value > 0:
        raise ValueError(f"{direction}.{key} of job {job.get('jobname')} is {value!r}")
    return float(value)


def _percentile(part: Mapping[str, object]) -> float:
    """Nanoseconds within which 99 % of the operations completed; 0 where fio does not say."""
    latency = part.get("clat_ns")
    listed = latency.get("percentile") if isinstance(latency, dict) else None
    value = listed.get("99.000000") if isinstance(listed, dict) else None
    return float(value) if isinstance(value, int | float) else 0.0
