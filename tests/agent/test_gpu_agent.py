"""The GPU monitor behind the agent: what an operator sees over upgrades, resets, driver changes and swaps."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from muster.agent.gpu.config import GpuConfig
from muster.agent.gpu.monitor import GpuMonitor
from muster.agent.gpu.sample import GpuSample, LinkSample, Sample
from muster.agent.state import MemoryStateStore
from muster.agent.timing import TimingConfig, limits
from muster.resources.fault import Severity
from muster.resources.node_health import Gpu, MonitorState, Observed
from muster.sim.virtual import VirtualClock, run_virtual
from tests.agent.node import PCI, UUID, Bench, xid


class Gpus:
    """The GPUs of the bench's node; a test changes their readings."""

    def __init__(self) -> None:
        self.readings: list[dict[str, Any]] = [{"uuid": UUID[n], "pci": PCI[n], "index": n} for n in range(2)]
        self.failure = ""
        self.hung = False
        self.stuck = 0

    async def sample(self, deadline_s: float, *, deep: bool) -> Sample:
        if self.failure or self.hung:
            return Sample(failure=self.failure or "NVML did not answer", hung=self.hung, stuck=self.stuck)
        return Sample(gpus=tuple(GpuSample(**reading) for reading in self.readings), complete=True)

    async def close(self) -> None:
        pass


def on_bench(story: Callable[[Bench, Gpus], Awaitable[Any]]) -> Any:
    async def main(clock: VirtualClock) -> Any:
        bench, gpus = await Bench.make(clock), Gpus()
        bench.monitors = (GpuMonitor(GpuConfig(), gpus),)
        bench.limits = limits(TimingConfig())
        return await story(bench, gpus)

    return run_virtual(main)


async def seen(bench: Bench) -> Observed:
    observed = await bench.server.observed()
    assert observed is not None
    return observed


async def codes(bench: Bench) -> list[str]:
    return [fault.code for fault in await bench.server.faults()]


@pytest.mark.parametrize("forgets", [True, False], ids=["another format", "same format"])
def test_an_upgrade_of_the_agent_opens_nothing_on_a_node_with_old_counters(forgets: bool) -> None:
    """Counters are totals over the life of the driver; that a new agent reads them differently is no fault."""

    async def story(bench: Bench, gpus: Gpus) -> None:
        for reading, total in zip(gpus.readings, (45, 12), strict=True):
            link = LinkSample(link=0, up=True, crc=total, replay=total, recovery=total)
            reading |= {"links": (link,), "ecc_corrected": 10**6, "ecc_uncorrected": 3, "pcie_replays": 9000}
        await bench.start(settle_s=3600)
        assert await codes(bench) == []
        await bench.stop()
        if forgets:
            bench.state = MemoryStateStore()
        bench.version = "2.0"
        bench.monitors = (GpuMonitor(GpuConfig(), gpus),)
        await bench.start(settle_s=3600)
        observed = await seen(bench)
        assert (observed.agent_version, observed.faults, observed.recent) == ("2.0", (), ())

    on_bench(story)


def test_an_error_while_the_agent_was_replaced_is_not_lost() -> None:
    async def story(bench: Bench, gpus: Gpus) -> None:
        gpus.readings[0]["ecc_uncorrected"] = 3
        await bench.start(settle_s=400)
        await bench.stop()
        gpus.readings[0]["ecc_uncorrected"] = 5
        bench.monitors = (GpuMonitor(GpuConfig(), gpus),)
        await bench.start(settle_s=10)
        (fault,) = await bench.server.faults()
        assert (fault.code, fault.count, fault.entity.uuid) == ("gpu-ecc-uncorrected", 2, UUID[0])

    on_bench(story)


def test_a_driver_that_is_reloaded_condemns_nothing() -> None:
    async def story(bench: Bench, gpus: Gpus) -> None:
        await bench.start(settle_s=1000)
        gpus.failure = "Driver Not Loaded (9)"
        bench.machine.change(gpus=tuple(Gpu(index=n, uuid="", pci=PCI[n]) for n in range(2)))
        await bench.clock.sleep(300)
        observed = await seen(bench)
        states = {m.name: m for m in observed.monitors}
        assert (observed.faults, states["gpu"].state) == ((), MonitorState.DEGRADED)
        assert states["gpu"].message == "not readable now: Driver Not Loaded (9)"
        gpus.failure = ""
        await bench.clock.sleep(60)
        assert {m.name: m.state for m in (await seen(bench)).monitors}["gpu"] is MonitorState.OK

    on_bench(story)


def test_a_lost_gpu_opens_after_two_looks_and_closes_when_it_answers() -> None:
    async def story(bench: Bench, gpus: Gpus) -> None:
        await bench.start(settle_s=1001)
        gpus.readings[1]["lost"] = True
        await bench.clock.sleep(30)
        assert await codes(bench) == [], "one look may fall into a reset"
        await bench.clock.sleep(30)
        (fault,) = await bench.server.faults()
        assert (fault.code, fault.severity, fault.entity.uuid) == ("gpu-lost", Severity.FATAL, UUID[1])
        gpus.readings[1]["lost"] = False
        await bench.clock.sleep(31)
        observed = await seen(bench)
        assert ([p.closed_by for p in observed.recent], observed.faults) == (["healthy-reading"], ())

    on_bench(story)


def test_one_bad_look_in_a_row_of_good_ones_is_nothing() -> None:
    async def story(bench: Bench, gpus: Gpus) -> None:
        await bench.start(settle_s=1001)
        for _ in range(6):
            gpus.readings[1]["lost"] = True
            await bench.clock.sleep(30)
            gpus.readings[1]["lost"] = False
            await bench.clock.sleep(30)
        assert await codes(bench) == []

    on_bench(story)


def test_a_gpu_that_goes_is_missing_after_the_grace_of_a_boot() -> None:
    async def story(bench: Bench, gpus: Gpus) -> None:
        await bench.start(settle_s=400)
        del gpus.readings[1]
        await bench.reboot()
        await bench.clock.sleep(280)
        assert await codes(bench) == [], "GPUs take their time after a boot"
        await bench.clock.sleep(90)
        (fault,) = await bench.server.faults()
        assert (fault.code, fault.scope.value) == ("gpu-missing", "node")
        assert UUID[1] in fault.message

    on_bench(story)


def test_new_errors_close_by_a_reset_that_cleared_them() -> None:
    async def story(bench: Bench, gpus: Gpus) -> None:
        gpus.readings[0]["ecc_uncorrected"] = 1
        await bench.start(settle_s=100)
        gpus.readings[0]["ecc_uncorrected"] = 4
        await bench.clock.sleep(31)
        assert await codes(bench) == ["gpu-ecc-uncorrected"]
        await bench.clock.sleep(3600)
        assert await codes(bench) == ["gpu-ecc-uncorrected"], "that no more came is no proof"
        bench.log.write(f"GPU reset executed: {UUID[0]}, success: true")
        gpus.readings[0]["ecc_uncorrected"] = 0
        await bench.clock.sleep(31)
        observed = await seen(bench)
        assert (observed.faults, [p.closed_by for p in observed.recent]) == ((), ["clean-after-reset"])

    on_bench(story)


def test_a_gpu_that_moved_keeps_its_faults_and_a_swapped_one_takes_them_along() -> None:
    async def story(bench: Bench, gpus: Gpus) -> None:
        gpus.readings[0]["remap_failed"] = True
        await bench.start(settle_s=100)
        bench.log.write(xid(94))
        await bench.clock.sleep(10)
        await bench.stop()
        gpus.readings[0]["pci"] = "0000:9a:00.0"
        moved = Gpu(index=0, uuid=UUID[0], pci="0000:9a:00.0")
        bench.machine.change(gpus=(moved, bench.machine.readings.gpus[1]))
        await bench.start(settle_s=100)
        observed = await seen(bench)
        assert [(f.code, f.entity.uuid, f.entity.pci) for f in observed.faults] == [
            ("gpu-remap-failed", UUID[0], "0000:9a:00.0"),
            ("94", UUID[0], "0000:9a:00.0"),
        ]
        await bench.stop()
        gpus.readings[0] = {"uuid": "GPU-new", "pci": "0000:9a:00.0", "index": 0}
        new = Gpu(index=0, uuid="GPU-new", pci="0000:9a:00.0")
        bench.machine.change(gpus=(new, bench.machine.readings.gpus[1]), boot_id="boot-2")
        bench.log.restart("boot-2")
        gpus.failure = "Driver Not Loaded (9)"
        await bench.start(settle_s=100)
        assert "gpu-remap-failed" in await codes(bench), "a reading that fails is no clean one"
        gpus.failure = ""
        await bench.clock.sleep(60)
        observed = await seen(bench)
        assert [(f.code, f.severity) for f in observed.faults] == [("gpu-swapped", Severity.INFO)]
        assert sorted((p.fault.code, p.closed_by) for p in observed.recent) == [
            ("94", "gpu-gone"),
            ("gpu-remap-failed", "gpu-gone"),
        ]

    on_bench(story)


def test_a_hang_of_nvml_is_unknown_then_a_warning_and_fatal_with_lasting_proof() -> None:
    async def story(bench: Bench, gpus: Gpus) -> list[tuple[list[str], str]]:
        await bench.start(settle_s=1001)
        gpus.hung = True
        found = []
        for stuck in (0, 0, 0, 2, 2, 2, 2, 2, 2):
            gpus.stuck = stuck
            await bench.clock.sleep(30)
            observed = await seen(bench)
            state = {m.name: m.state for m in observed.monitors}["gpu"]
            found.append(([f"{f.code} {f.severity}" for f in observed.faults], state.value))
        gpus.hung = False
        await bench.clock.sleep(31)
        return [*found, (await codes(bench), "")]

    assert on_bench(story) == [
        ([], "degraded"),
        ([], "degraded"),
        *[(["nvml-hang warning"], "degraded")] * 6,
        (["nvml-hang fatal"], "degraded"),
        ([], ""),
    ]


def test_a_reboot_is_no_proof_for_a_link_that_is_still_down_nor_for_a_rate_that_nobody_measured() -> None:
    async def story(bench: Bench, gpus: Gpus) -> None:
        def show(up: bool, replays: int, throttle: int) -> None:
            links = (LinkSample(link=0, up=True), LinkSample(link=1, up=up))
            gpus.readings[0] |= {"links": links, "pcie_replays": replays, "throttle": throttle}

        show(True, 0, 0)
        await bench.start(settle_s=405)
        for look in range(8):
            show(False, 1000 * look, 0x40)
            await bench.clock.sleep(30)
        before = sorted(await codes(bench))
        assert before == ["gpu-pcie-replays", "gpu-thermal-throttle", "nvlink-down"]
        show(False, 0, 0x40)
        bench.monitors = (GpuMonitor(GpuConfig(), gpus),)
        await bench.reboot()
        for look in range(1, 6):
            show(False, 1000 * look, 0x40)
            await bench.clock.sleep(30)
            assert sorted(await codes(bench)) == before
        assert (await seen(bench)).recent == ()
        assert {m.name: m.state for m in (await seen(bench)).monitors}["gpu"] is MonitorState.OK
        show(True, 5000, 0)
        await bench.clock.sleep(90)
        assert await codes(bench) == []
        # What the next boot shows was proved here.
        bench.monitors = (GpuMonitor(GpuConfig(), gpus),)
        show(False, 0, 0)
        await bench.reboot("boot-3")
        await bench.clock.sleep(1000)
        assert await codes(bench) == []

    on_bench(story)


def test_a_reset_is_no_proof_for_a_rate_that_nobody_measured() -> None:
    async def story(bench: Bench, gpus: Gpus) -> None:
        await bench.start(settle_s=65)
        for look in range(8):
            gpus.readings[0]["pcie_replays"] = 1000 * look
            await bench.clock.sleep(30)
        assert await codes(bench) == ["gpu-pcie-replays"]
        bench.log.write(f"GPU reset executed: {UUID[0]}, success: true")
        gpus.readings[0]["pcie_replays"] = 0
        await bench.clock.sleep(30)
        assert await codes(bench) == ["gpu-pcie-replays"]
        await bench.clock.sleep(31)
        assert await codes(bench) == []

    on_bench(story)


@pytest.mark.parametrize("interval_s", [5.0, 30.0, 400.0, 3600.0])
def test_a_missing_gpu_is_told_however_seldom_somebody_looks(interval_s: float) -> None:
    async def story(bench: Bench, gpus: Gpus) -> list[str]:
        bench.monitors = (GpuMonitor(GpuConfig(interval_s=interval_s), gpus),)
        bench.limits = limits(TimingConfig(), interval_s)
        await bench.start(settle_s=3 * interval_s + 400)
        del gpus.readings[1]
        await bench.clock.sleep(3 * interval_s)
        return await codes(bench)

    assert on_bench(story) == ["gpu-missing"]
