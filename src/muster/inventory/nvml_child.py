"""The process that asks NVML: `python -m muster.inventory.nvml_child`. It writes what it learns as lines of JSON.

NVML can block for ever inside the kernel, so it never runs in a process that matters. Each line is written before the
next call is made: whoever ends this process still has what came before, and the call in which it hung.
"""

from __future__ import annotations

import importlib
import json
import sys
import uuid
from collections.abc import Callable
from ctypes import byref
from dataclasses import dataclass
from functools import partial
from typing import Any

_MIB = 1024 * 1024
_MIG_LIMIT = 16
"""More MIG devices than any GPU has."""


def _tell(**line: Any) -> None:
    sys.stdout.write(json.dumps(line) + "\n")
    sys.stdout.flush()


@dataclass(frozen=True)
class _Gap:
    """Something that NVML answered without saying it."""

    reason: str


class _Asker:
    """Asks one question after the other and tells each answer."""

    def __init__(self, nvml: Any) -> None:
        self._nvml = nvml

    def call(self, function: str, *arguments: Any) -> Any:
        """One call of NVML, announced before it is made. Raises NVMLError."""
        _tell(call=function)
        return getattr(self._nvml, function)(*arguments)

    def ask(self, names: tuple[str, ...], gpu: int | None, question: Callable[[], tuple[Any, ...]]) -> bool:
        """Tell the answers to `question` under `names`, or why there are none. Returns whether there were some."""
        where = {} if gpu is None else {"gpu": gpu}
        try:
            answers = question()
        except self._nvml.NVMLError as error:
            # Not supported: this model has nothing of the kind, which is no gap in what is known.
            if error.value != self._nvml.NVML_ERROR_NOT_SUPPORTED:
                for name in names:
                    _tell(**where, name=name, error=self.words(error), lost=self.is_lost(error))
            return False
        for name, answer in zip(names, answers, strict=True):
            if isinstance(answer, _Gap):
                _tell(**where, name=name, error=answer.reason, lost=False)
            elif answer is not None:
                _tell(**where, name=name, value=str(answer))
        return True

    def words(self, error: Any) -> str:
        names = [
            name
            for name in sorted(vars(self._nvml))
            if name.startswith("NVML_ERROR_") and getattr(self._nvml, name) == error.value
        ]
        return f"{error} ({names[0] if names else error.value})"

    def is_lost(self, error: Any) -> bool:
        return bool(error.value in (self._nvml.NVML_ERROR_GPU_IS_LOST, self._nvml.NVML_ERROR_GPU_NOT_FOUND))


def main() -> None:
    """Tell everything that NVML knows about this machine."""
    try:
        pynvml: Any = importlib.import_module("pynvml")
    except ImportError:
        _tell(
            failure="the NVML binding is not installed; install it with: pip install 'muster-gpu[nvml]'",
            why="binding",
        )
        return
    asker = _Asker(pynvml)
    try:
        asker.call("nvmlInit")
    except pynvml.NVMLError as error:
        absent = (pynvml.NVML_ERROR_LIBRARY_NOT_FOUND, pynvml.NVML_ERROR_DRIVER_NOT_LOADED)
        _tell(failure=asker.words(error), why="absent" if error.value in absent else "error")
        return
    asker.ask(("driver.version",), None, lambda: (asker.call("nvmlSystemGetDriverVersion"),))
    asker.ask(("nvml.version",), None, lambda: (asker.call("nvmlSystemGetNVMLVersion"),))
    asker.ask(("cuda.driver_version",), None, lambda: (_cuda(asker.call("nvmlSystemGetCudaDriverVersion_v2")),))
    try:
        count = asker.call("nvmlDeviceGetCount")
    except pynvml.NVMLError as error:
        _tell(failure=asker.words(error), why="error")
        return
    for gpu in range(count):
        _device(asker, pynvml, gpu)
    _tell(end=True)


def _cuda(version: int) -> str:
    return f"{version // 1000}.{version % 1000 // 10}"


def _device(asker: _Asker, nvml: Any, gpu: int) -> None:
    _tell(gpu=gpu)
    try:
        handle = asker.call("nvmlDeviceGetHandleByIndex", gpu)
        _tell(gpu=gpu, pci=_text(asker.call("nvmlDeviceGetPciInfo", handle).busId))
    except nvml.NVMLError as error:
        _tell(gpu=gpu, name="nvml", error=asker.words(error), lost=asker.is_lost(error))
        return
    for names, question in _questions(asker, nvml, handle):
        asker.ask(names, gpu, question)
    _mig(asker, nvml, gpu, handle)
    _links(asker, nvml, gpu, handle)


Question = tuple[tuple[str, ...], Callable[[], tuple[Any, ...]]]


def _questions(asker: _Asker, nvml: Any, handle: Any) -> tuple[Question, ...]:
    """The questions with one call each."""
    call = asker.call

    def one(name: str, function: str, read: Callable[[Any], Any] = lambda value: value, *more: Any) -> Question:
        return (name,), lambda: (read(call(function, handle, *more)),)

    def modes(value: list[int]) -> tuple[str, ...]:
        return tuple(_on_off(mode) for mode in value)

    return (
        one("product", "nvmlDeviceGetName"),
        one("uuid", "nvmlDeviceGetUUID"),
        one("serial", "nvmlDeviceGetSerial"),
        one("board_part_number", "nvmlDeviceGetBoardPartNumber"),
        one("compute_capability", "nvmlDeviceGetCudaComputeCapability", lambda pair: f"{pair[0]}.{pair[1]}"),
        one("memory_mib", "nvmlDeviceGetMemoryInfo", lambda info: info.total // _MIB),
        one("vbios", "nvmlDeviceGetVbiosVersion"),
        one("inforom", "nvmlDeviceGetInforomImageVersion"),
        one("gsp_firmware", "nvmlDeviceGetGspFirmwareVersion", _text),
        (("ecc_mode", "ecc_mode_pending"), lambda: modes(call("nvmlDeviceGetEccMode", handle))),
        (("mig_mode", "mig_mode_pending"), lambda: modes(call("nvmlDeviceGetMigMode", handle))),
        one("compute_mode", "nvmlDeviceGetComputeMode", lambda mode: _compute_mode(nvml, mode)),
        one("persistence_mode", "nvmlDeviceGetPersistenceMode", _on_off),
        one("power_limit_w", "nvmlDeviceGetPowerManagementLimit", _watts),
        one("pcie_max_generation", "nvmlDeviceGetMaxPcieLinkGeneration"),
        one("pcie_max_width", "nvmlDeviceGetMaxPcieLinkWidth"),
        one("pcie_generation", "nvmlDeviceGetCurrPcieLinkGeneration"),
        one("pcie_width", "nvmlDeviceGetCurrPcieLinkWidth"),
        (_FABRIC, lambda: _fabric(asker, nvml, handle)),
        (_REMAPPED, lambda: _remapped(call("nvmlDeviceGetRemappedRows", handle))),
        (("retired_pages",), lambda: (_retired(asker, nvml, handle),)),
        one("temperature_c", "nvmlDeviceGetTemperature", lambda value: value, nvml.NVML_TEMPERATURE_GPU),
        one("power_w", "nvmlDeviceGetPowerUsage", _watts),
        one("performance_state", "nvmlDeviceGetPerformanceState", lambda state: f"P{state}"),
    )


_REMAPPED = (
    "remapped_rows_correctable",
    "remapped_rows_uncorrectable",
    "remapped_rows_pending",
    "remapped_rows_failed",
)
_FABRIC = ("fabric.state", "fabric.cluster_uuid", "fabric.clique", "fabric.health_mask")
_FABRIC_STATES = {1: "not-started", 2: "in-progress", 3: "completed"}


def _text(value: Any) -> str:
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value)


def _on_off(mode: int) -> str:
    return {0: "disabled", 1: "enabled"}.get(mode, str(mode))


def _watts(milliwatts: int) -> str:
    return f"{milliwatts / 1000:g}"


def _compute_mode(nvml: Any, mode: int) -> str:
    names = {
        nvml.NVML_COMPUTEMODE_DEFAULT: "default",
        nvml.NVML_COMPUTEMODE_PROHIBITED: "prohibited",
        nvml.NVML_COMPUTEMODE_EXCLUSIVE_PROCESS: "exclusive-process",
    }
    return names.get(mode, str(mode))


def _remapped(rows: tuple[int, int, int, int]) -> tuple[str, ...]:
    correctable, uncorrectable, pending, failed = rows
    return str(correctable), str(uncorrectable), "yes" if pending else "no", "yes" if failed else "no"


def _retired(asker: _Asker, nvml: Any, handle: Any) -> int:
    causes = (
        nvml.NVML_PAGE_RETIREMENT_CAUSE_MULTIPLE_SINGLE_BIT_ECC_ERRORS,
        nvml.NVML_PAGE_RETIREMENT_CAUSE_DOUBLE_BIT_ECC_ERROR,
    )
    return sum(len(asker.call("nvmlDeviceGetRetiredPages", handle, cause)) for cause in causes)


def _fabric(asker: _Asker, nvml: Any, handle: Any) -> tuple[str | _Gap | None, ...]:
    """What the fabric manager assigned. Before it is done, domain and partition are not known."""
    info = nvml.c_nvmlGpuFabricInfo_v2_t()
    asker.call("nvmlDeviceGetGpuFabricInfoV", handle, byref(info))
    if info.state == nvml.NVML_GPU_FABRIC_STATE_NOT_SUPPORTED:
        return None, None, None, None
    state = _FABRIC_STATES.get(info.state, str(info.state))
    mask = f"0x{info.healthMask:x}"
    if info.state != nvml.NVML_GPU_FABRIC_STATE_COMPLETED:
        gap = _Gap(f"the registration with the fabric is {state}")
        return state, gap, gap, mask
    if info.status != nvml.NVML_SUCCESS:
        raise nvml.NVMLError(info.status)
    cluster = bytes(info.clusterUuid)
    return state, str(uuid.UUID(bytes=cluster)) if any(cluster) else None, str(info.cliqueId), mask


def _mig(asker: _Asker, nvml: Any, gpu: int, handle: Any) -> None:
    """MIG devices, each named by its GPU instance and compute instance."""
    try:
        if not asker.call("nvmlDeviceGetMigMode", handle)[0]:
            return
        devices = _mig_devices(asker, nvml, handle)
    except nvml.NVMLError as error:
        if error.value != nvml.NVML_ERROR_NOT_SUPPORTED:
            _tell(gpu=gpu, name="mig", error=asker.words(error), lost=asker.is_lost(error))
        return
    _tell(gpu=gpu, name="mig.count", value=str(len(devices)))
    for key, device in devices.items():
        asker.ask((f"{key}.uuid",), gpu, partial(_mig_uuid, asker, device))
        asker.ask((f"{key}.profile",), gpu, partial(_mig_profile, asker, device))
        asker.ask((f"{key}.slices", f"{key}.memory_mib"), gpu, partial(_mig_size, asker, device))


def _mig_devices(asker: _Asker, nvml: Any, handle: Any) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for index in range(min(asker.call("nvmlDeviceGetMaxMigDeviceCount", handle), _MIG_LIMIT)):
        try:
            device = asker.call("nvmlDeviceGetMigDeviceHandleByIndex", handle, index)
        except nvml.NVMLError as error:
            if error.value in (nvml.NVML_ERROR_NOT_FOUND, nvml.NVML_ERROR_INVALID_ARGUMENT):
                continue  # no device with this number
            raise
        instance = asker.call("nvmlDeviceGetGpuInstanceId", device)
        compute = asker.call("nvmlDeviceGetComputeInstanceId", device)
        found[f"mig.{instance}.{compute}"] = device
    return found


def _mig_uuid(asker: _Asker, device: Any) -> tuple[str]:
    return (asker.call("nvmlDeviceGetUUID", device),)


def _mig_profile(asker: _Asker, device: Any) -> tuple[str]:
    """`NVIDIA H100 80GB HBM3 MIG 1g.10gb` -> `1g.10gb`."""
    return (str(asker.call("nvmlDeviceGetName", device)).rpartition(" MIG ")[2],)


def _mig_size(asker: _Asker, device: Any) -> tuple[str, str]:
    found = asker.call("nvmlDeviceGetAttributes_v2", device)
    return f"{found.gpuInstanceSliceCount}/{found.computeInstanceSliceCount}", str(found.memorySizeMB)


def _links(asker: _Asker, nvml: Any, gpu: int, handle: Any) -> None:
    """NVLinks. Numbers that the GPU has no link for are answered with not supported or invalid argument."""
    states: dict[int, bool] = {}
    for link in range(nvml.NVML_NVLINK_MAX_LINKS):
        try:
            states[link] = bool(asker.call("nvmlDeviceGetNvLinkState", handle, link))
        except nvml.NVMLError as error:
            if error.value not in (nvml.NVML_ERROR_NOT_SUPPORTED, nvml.NVML_ERROR_INVALID_ARGUMENT):
                for name in ("nvlink.count", "nvlink.active", "nvlink.version"):
                    _tell(gpu=gpu, name=name, error=asker.words(error), lost=asker.is_lost(error))
                return
    versions: set[int] = set()
    for link, up in states.items():
        _tell(gpu=gpu, name=f"nvlink.{link}.state", value="up" if up else "down")
        if up:
            remote = (f"nvlink.{link}.remote",)
            asker.ask(remote, gpu, partial(_remote, asker, nvml, handle, link))
            try:
                versions.add(asker.call("nvmlDeviceGetNvLinkVersion", handle, link))
            except nvml.NVMLError as error:
                if error.value != nvml.NVML_ERROR_NOT_SUPPORTED:
                    _tell(gpu=gpu, name="nvlink.version", error=asker.words(error), lost=asker.is_lost(error))
        else:
            _tell(gpu=gpu, name=f"nvlink.{link}.remote", error="the link is down", lost=False)
    if states:
        _tell(gpu=gpu, name="nvlink.count", value=str(len(states)))
        _tell(gpu=gpu, name="nvlink.active", value=str(sum(states.values())))
    if versions:
        _tell(gpu=gpu, name="nvlink.version", value=",".join(str(version) for version in sorted(versions)))


def _remote(asker: _Asker, nvml: Any, handle: Any, link: int) -> tuple[str]:
    kinds = {
        nvml.NVML_NVLINK_DEVICE_TYPE_GPU: "gpu",
        nvml.NVML_NVLINK_DEVICE_TYPE_IBMNPU: "npu",
        nvml.NVML_NVLINK_DEVICE_TYPE_SWITCH: "switch",
    }
    kind = kinds.get(asker.call("nvmlDeviceGetNvLinkRemoteDeviceType", handle, link), "unknown")
    address = _text(asker.call("nvmlDeviceGetNvLinkRemotePciInfo", handle, link).busId).strip().lower()
    if len(address) == len("00000000:80:00.0"):
        address = address.removeprefix("0000")  # sysfs writes four digits
    return (f"{kind} {address}".strip(),)


if __name__ == "__main__":
    main()
