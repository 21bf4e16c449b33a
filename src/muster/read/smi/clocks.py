"""Clocks that are held down, the PCIe link, and settings that are off or wait for a reset. Pure.

Power capping by software and a low PCIe generation on an idle GPU are normal.
"""

from __future__ import annotations

from collections.abc import Iterator

from muster.read.smi.finding import GpuFinding, warning
from muster.read.smi.state import GpuReading
from muster.resources.fault import Hint, Scope, Severity

BUSY_PERCENT = 10.0


def speed(gpu: GpuReading) -> Iterator[GpuFinding]:
    """Clocks and PCIe link."""
    active = gpu.slowdowns
    heat = {"slowdowns": list(active), "temperature_c": gpu.temperature_c}
    if "hw-thermal" in active or ("hw" in active and _hot(gpu)):
        yield warning(
            "hw-thermal-slowdown",
            "thermal",
            "The GPU is so hot that its hardware lowers the clocks",
            ("slowdown.hw-thermal", "slowdown.hw", "slowdown_mask"),
            heat,
            "Look at cooling: inlet temperature, fans, coolant and the seat of {gpu}.",
        )
    elif "hw-power-brake" in active:
        yield warning(
            "hw-power-brake",
            "power",
            "The machine's power supply holds the GPU's clocks down",
            ("slowdown.hw-power-brake", "slowdown_mask"),
            {"slowdowns": list(active)},
            "Look at the power supplies, their feeds and the power budget of the chassis.",
        )
    elif "hw" in active:
        yield warning(
            "hw-slowdown",
            "thermal",
            "The hardware lowers the clocks",
            ("slowdown.hw", "slowdown_mask"),
            heat,
            "Look at temperature and power supply of {gpu}: the hardware lowers its clocks by half or more.",
        )
    elif "sw-thermal" in active:
        yield warning(
            "sw-thermal-slowdown",
            "thermal",
            "The driver lowers the clocks because of the temperature",
            ("slowdown.sw-thermal", "slowdown_mask"),
            heat,
            "Look at cooling before the hardware has to slow {gpu} down.",
        )
    yield from _pcie(gpu)


def _hot(gpu: GpuReading) -> bool:
    limit = gpu.slowdown_temperature_c
    return gpu.temperature_c is not None and limit is not None and gpu.temperature_c >= limit


def _pcie(gpu: GpuReading) -> Iterator[GpuFinding]:
    width, most = gpu.pcie_width, gpu.pcie_width_max
    if width and most and width < most:
        yield warning(
            "pcie-width",
            "pcie",
            f"The PCIe link runs with {width} of {most} lanes",
            ("pcie_width",),
            {"width": width, "width_max": most},
            "Reseat {gpu} or its riser when the node is out of service; look for PCIe errors in the kernel log.",
        )
    generation, fastest = gpu.pcie_gen, gpu.pcie_gen_max
    busy = gpu.performance_state == "P0" and (gpu.utilization_percent or 0) >= BUSY_PERCENT
    if generation and fastest and generation < fastest and busy:
        yield warning(
            "pcie-generation",
            "pcie",
            f"The PCIe link runs at generation {generation} of {fastest} under load",
            ("pcie_gen",),
            {"generation": generation, "generation_max": fastest},
            "Compare with the other GPUs of the node; look for PCIe errors in the kernel log.",
        )


def settings(gpu: GpuReading) -> Iterator[GpuFinding]:
    """ECC and MIG."""
    if gpu.ecc_enabled is not None and gpu.ecc_pending is not None and gpu.ecc_enabled != gpu.ecc_pending:
        word = "on" if gpu.ecc_pending else "off"
        yield _setting(
            "ecc-mode-pending", f"ECC will be switched {word} at the next reset", ("ecc_pending",), Hint.RESET_GPU
        )
    elif gpu.ecc_enabled is False:
        yield _setting("ecc-disabled", "ECC is switched off", ("ecc_enabled",), Hint.INSPECT)
    if gpu.mig_enabled is not None and gpu.mig_pending is not None and gpu.mig_enabled != gpu.mig_pending:
        word = "on" if gpu.mig_pending else "off"
        yield _setting(
            "mig-mode-pending", f"MIG will be switched {word} at the next reset", ("mig_pending",), Hint.RESET_GPU
        )


def _setting(code: str, name: str, fields: tuple[str, ...], hint: Hint) -> GpuFinding:
    advice = {
        Hint.RESET_GPU: "Reset {gpu} when it is idle, so that the setting takes effect.",
        Hint.INSPECT: "Switch ECC on (`nvidia-smi -e 1`) and reset {gpu}, unless it is off on purpose.",
    }
    return GpuFinding(
        code=code,
        check="gpu-setting",
        name=name,
        severity=Severity.WARNING,
        scope=Scope.CONFIG,
        hint=hint,
        reason=code,
        fields=fields,
        next=advice[hint],
    )
