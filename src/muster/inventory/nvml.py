"""What NVML knows about the GPUs, asked in a process of its own with a deadline.

The binding is NVIDIA's `nvidia-ml-py` (extra `nvml`). Every call that fails becomes an unknown reading with the
reason of NVML; what a model does not support is absent.
"""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import IO, Any

from muster.inventory.gpu import NOT_LOADED, addresses
from muster.inventory.machine import Findings, Unknown
from muster.inventory.readings import known
from muster.read.pci import normalise

DEADLINE_S = 30.0
"""A machine with eight GPUs answers in about a second; waking GPUs without persistence mode takes several."""
_AFTER_KILL_S = 1.0
_MAX_ANSWER_BYTES = 4 * 1024 * 1024
LOST = "lost"


@dataclass
class Device:
    """One GPU as NVML lists it. `pci` is empty when not even that could be asked."""

    pci: str = ""
    values: dict[str, str] = field(default_factory=dict)
    errors: dict[str, str] = field(default_factory=dict)
    lost: bool = False


@dataclass
class Answer:
    """Everything that NVML said. `failure` is why it said nothing, or nothing more."""

    values: dict[str, str] = field(default_factory=dict)
    errors: dict[str, str] = field(default_factory=dict)
    devices: list[Device] = field(default_factory=list)
    failure: str = ""
    absent: bool = False
    """The failure is that there is no library, no binding or no driver: nothing to wonder about without GPUs."""


def ask(*, deadline_s: float = DEADLINE_S, environment: Mapping[str, str] | None = None) -> Answer:
    """Ask NVML of this machine. Returns after at most `deadline_s` and a moment, also when NVML hangs.

    `environment` replaces that of this process.
    """
    with tempfile.TemporaryFile() as file:
        # A file and no pipe: a process that hangs in the kernel cannot be ended, and must not be waited for.
        hung = _run(file, deadline_s, environment)
        file.seek(0)
        return read_answer(file.read(_MAX_ANSWER_BYTES), hung=f"{deadline_s:g} s" if hung else "")


def _run(output: IO[bytes], deadline_s: float, environment: Mapping[str, str] | None) -> bool:
    process = subprocess.Popen(
        # -P: a file in the folder where somebody happens to stand must not be taken for the binding.
        [sys.executable, "-P", "-m", "muster.inventory.nvml_child"],
        stdin=subprocess.DEVNULL,
        stdout=output,
        stderr=subprocess.DEVNULL,
        env=None if environment is None else dict(environment),
        start_new_session=True,
    )
    try:
        process.wait(deadline_s)
    except subprocess.TimeoutExpired:
        process.kill()
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(_AFTER_KILL_S)
        return True
    except BaseException:
        process.kill()
        raise
    return False


def read_answer(output: bytes, *, hung: str = "") -> Answer:
    """Read what the process wrote. `hung` is the time after which it was ended; empty when it ended by itself."""
    answer = Answer()
    call, gpu, ended = "start", -1, False
    for line in output.splitlines():
        try:
            told = json.loads(line)
        except ValueError:
            break  # cut off in the middle of a line
        if not isinstance(told, dict):
            break
        call = str(told.get("call", call))
        ended = ended or "end" in told or "failure" in told
        if "failure" in told:
            answer.failure, answer.absent = str(told["failure"]), told.get("why") != "error"
        if "gpu" in told:
            gpu = int(told["gpu"])
            while len(answer.devices) <= gpu:
                answer.devices.append(Device())
            _keep(answer.devices[gpu], told)
        elif "name" in told:
            _keep_pair(answer.values, answer.errors, told)
    if not ended:
        about = f" of GPU {gpu}" if gpu >= 0 else ""
        how = f"did not answer within {hung}" if hung else "ended its process"
        answer.failure = f"NVML {how} in {call}{about}"
    return answer


def _keep(device: Device, told: Mapping[str, Any]) -> None:
    if "pci" in told:
        device.pci = normalise(str(told["pci"])) or str(told["pci"])
    device.lost = device.lost or bool(told.get("lost"))
    if "name" in told:
        _keep_pair(device.values, device.errors, told)


def _keep_pair(values: dict[str, str], errors: dict[str, str], told: Mapping[str, Any]) -> None:
    name = str(told["name"])
    if "value" in told:
        values[name] = str(told["value"])
    else:
        errors[name] = str(told.get("error", ""))


def merge(found: Findings, answer: Answer) -> Findings:
    """The readings of the files, completed by what NVML said. GPUs keep the numbers of their PCI addresses.

    Where both tell the same reading the files count, except for one that they could not tell.
    """
    bus = addresses(found)
    numbers = sorted({*bus, *(device.pci for device in answer.devices if device.pci)})
    if not numbers and answer.absent and found.values().get("gpu") == "none found":
        return found
    merged = _renumbered(found, bus, numbers, len(answer.devices))
    if answer.failure:
        merged.miss("nvml", answer.failure)
    if answer.values.get("driver.version"):
        # Where /proc/driver is not visible, the library still knows the driver.
        merged.readings = [r for r in merged.readings if (r.name, r.value) != ("driver.version", NOT_LOADED)]
    _put(merged, "", answer.values, answer.errors)
    silent = [address for address in bus if address not in [device.pci for device in answer.devices]]
    nameless = [device for device in answer.devices if not device.pci]
    # A GPU whose handle cannot be had does not tell its address; those that nobody else has are theirs, in order.
    belongs = len(silent) == len(nameless)
    for device in answer.devices:
        address = device.pci or (silent.pop(0) if belongs else "")
        if not address:
            reason = device.errors.get("nvml", "it was not asked")
            merged.miss(
                f"gpu.nvml-index-{answer.devices.index(device)}", f"NVML tells no address of this GPU: {reason}"
            )
            continue
        key = f"gpu.{numbers.index(address)}."
        if address not in bus:
            merged.add(f"{key}pci", address)
        merged.add(f"{key}nvml", LOST if device.lost else "ok")
        _put(merged, key, device.values, {name: why for name, why in device.errors.items() if name != "nvml"})
        if "nvml" in device.errors:
            merged.miss(f"{key}nvml", device.errors["nvml"])
    if not answer.failure:
        for address in silent:
            merged.add(f"gpu.{numbers.index(address)}.nvml", "not listed")
    told = merged.values()
    merged.unknown = [
        unknown for unknown in merged.unknown if unknown.name not in told or unknown.name.endswith(".nvml")
    ]
    return merged


def _renumbered(found: Findings, bus: Sequence[str], numbers: Sequence[str], listed: int) -> Findings:
    """The findings of the files with the numbers that GPUs have when those of NVML are counted as well."""
    if list(bus) == list(numbers) and listed <= len(numbers):
        return Findings(list(found.readings), list(found.unknown))
    merged = Findings()
    for reading in found.readings:
        if reading.name in ("gpu", "gpu.count"):
            continue
        merged.add(_renamed(reading.name, bus, numbers), reading.value, reading.reading_class)
    merged.unknown = [Unknown(_renamed(u.name, bus, numbers), u.reason) for u in found.unknown if u.name != "gpu"]
    merged.add("gpu.count", str(max(len(numbers), listed)))
    return merged


def _renamed(name: str, bus: Sequence[str], numbers: Sequence[str]) -> str:
    head, _, rest = name.partition(".")
    index, _, field_name = rest.partition(".")
    if head != "gpu" or not index.isdigit() or int(index) >= len(bus):
        return name
    return f"gpu.{numbers.index(bus[int(index)])}.{field_name}"


def _put(merged: Findings, key: str, values: Mapping[str, str], errors: Mapping[str, str]) -> None:
    told = merged.values()
    for name, value in values.items():
        if known(f"{key}{name}") is not None and f"{key}{name}" not in told:
            merged.add(f"{key}{name}", value)
    for name, reason in errors.items():
        merged.miss(f"{key}{name}", f"NVML: {reason}")
