"""NVLinks against what the machine should have. Where nobody says whether links are expected it stays unknown."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from muster.errors import BadInputError
from muster.read.diagnostics.nvlink import GpuLinks, LinkState, NvlinkStatus
from muster.read.report import ReadFault, Result, Value, Verdict
from muster.read.source import Context
from muster.resources.fault import Hint, Scope, Severity

_COUNTED = (LinkState.UP, LinkState.DOWN, LinkState.DISABLED, LinkState.NOT_SUPPORTED)


@dataclass(frozen=True)
class Expected:
    """`nvlink`: None when it is not told whether the machine has NVLink."""

    nvlink: bool | None
    per_gpu: int | None


def expected(context: Context) -> Expected:
    """Reads `nvlink_expected` and `nvlinks_per_gpu`. Raises BadInputError."""
    told = context.get("nvlink_expected")
    if told not in (None, True, False, "unknown"):
        raise BadInputError(f"nvlink_expected in the context must be true, false or unknown, not {told!r:.40}.")
    count = context.get("nvlinks_per_gpu")
    if count is not None and (isinstance(count, bool) or not isinstance(count, int) or not 0 <= count <= 256):
        raise BadInputError(f"nvlinks_per_gpu in the context must be a whole number, not {count!r:.40}.")
    nvlink = told if isinstance(told, bool) else (count > 0 if count is not None else None)
    return Expected(nvlink, count)


def values(status: NvlinkStatus) -> dict[str, Value]:
    """Links by state, links down by GPU, switches."""
    down = {
        index: gpu.count(LinkState.DOWN) for index, gpu in sorted(status.gpus.items()) if gpu.count(LinkState.DOWN)
    }
    found = {
        "nvlinks": Value({state.value: status.total(state) for state in _COUNTED}),
        "nvlinks_down_by_gpu": Value(down),
        "gpus": Value(len(status.gpus)),
    }
    silent = sorted(index for index, gpu in status.gpus.items() if gpu.all_down)
    if silent:
        found["gpus_with_all_links_down"] = Value(silent)
    if status.switches is not None:
        found["nvswitches"] = Value(len(status.switches))
        states = [state for links in status.switches.values() for state in links]
        if states:
            found["nvswitch_links"] = Value({state.value: states.count(state) for state in _COUNTED})
    return found


def judge(
    status: NvlinkStatus, want: Expected, file: str, suffix: str = ""
) -> tuple[list[Verdict], tuple[ReadFault, ...]]:
    """Verdicts on `nvlink` and, where it is broken, on `node`; the fault behind them. `suffix` tells files apart."""
    of = f"nvlink{suffix}"
    bad = {index: gpu for index, gpu in sorted(status.gpus.items()) if _short(gpu, want)}
    if want.nvlink is False:
        return [Verdict(of, Result.PASS, "not-expected")], ()
    if want.nvlink and bad:
        fault = _fault(bad, len(status.gpus), want, file)
        return [
            Verdict(of, Result.FAIL, str(fault.code)),
            Verdict("node", Result.FAIL, str(fault.code), fault.name),
        ], (fault,)
    if not status.complete or not status.gpus:
        return [Verdict(of, Result.UNKNOWN, "truncated-output")], ()
    if want.nvlink:
        unread = status.total(LinkState.UNKNOWN)
        if unread:
            return [Verdict(of, Result.UNKNOWN, "no-reading", f"{unread} links in a state that is not known.")], ()
        return [Verdict(of, Result.PASS, "links-up")], ()
    if status.total(LinkState.UP) and not any(_short(gpu, Expected(True, None)) for gpu in status.gpus.values()):
        return [Verdict(of, Result.PASS, "links-up", "Every link that the machine shows is up.")], ()
    message = "Tell whether this machine has NVLink (nvlink_expected in the context)."
    return [Verdict(of, Result.UNKNOWN, "expectation-missing", message)], ()


def _short(gpu: GpuLinks, want: Expected) -> bool:
    """Fewer links than the GPU should have."""
    up = gpu.count(LinkState.UP)
    if gpu.all_down or gpu.count(LinkState.DOWN) or gpu.count(LinkState.DISABLED):
        return True
    if want.per_gpu is not None and (gpu.links or gpu.unsupported):
        return up < want.per_gpu
    return gpu.unsupported or (bool(gpu.links) and not up and not gpu.count(LinkState.UNKNOWN))


def _fault(bad: Mapping[int, GpuLinks], gpus: int, want: Expected, file: str) -> ReadFault:
    down = sum(gpu.count(LinkState.DOWN) for gpu in bad.values())
    disabled = sum(gpu.count(LinkState.DISABLED) for gpu in bad.values())
    all_down = any(gpu.all_down for gpu in bad.values())
    code = "nvlink-down" if down or all_down else "nvlink-disabled" if disabled else "nvlink-missing"
    entity, scope = _entity(bad, gpus)
    affected = [
        {"kind": "gpu", "index": index} | ({"uuid": gpu.uuid} if gpu.uuid else {}) for index, gpu in bad.items()
    ]
    links = {
        index: [n for n, state in sorted(gpu.links.items()) if state in (LinkState.DOWN, LinkState.DISABLED)]
        for index, gpu in bad.items()
    }
    what = {"nvlink-down": "down", "nvlink-disabled": "disabled", "nvlink-missing": "missing"}[code]
    who = "every GPU" if len(bad) == gpus else f"GPU {', '.join(map(str, list(bad)[:16]))}"
    return ReadFault(
        code=code,
        kind="nvlink",
        entity=entity,
        severity=Severity.FATAL,
        scope=scope,
        hint=Hint.INSPECT,
        name=f"NVLinks of {who} are {what}",
        count=down + disabled or len(bad),
        count_is="exact" if not all_down else "lower-bound",
        first=None,
        last=None,
        details={"affected": affected, "links": links, "expected_per_gpu": want.per_gpu, "file": file},
        evidence=(),
        next="Take the node out of service. Look at the fabric manager and the NVLink lines of the kernel log first: "
        + ("all GPUs at once is rarely the GPUs." if len(bad) == gpus else f"then at {who}."),
    )


def _entity(bad: Mapping[int, GpuLinks], gpus: int) -> tuple[dict[str, Any], Scope]:
    """The node when several GPUs are concerned (or its only one); else the GPU, or its one link."""
    if len(bad) > 1 or gpus <= 1:
        return {"kind": "node", "pci": None}, Scope.NODE
    ((index, gpu),) = bad.items()
    entity: dict[str, Any] = {"kind": "gpu", "index": index, "pci": None} | ({"uuid": gpu.uuid} if gpu.uuid else {})
    broken: Sequence[int] = [n for n, s in gpu.links.items() if s in (LinkState.DOWN, LinkState.DISABLED)]
    if len(broken) == 1:
        return {**entity, "kind": "nvlink", "link": broken[0]}, Scope.LINK
    return entity, Scope.GPU
