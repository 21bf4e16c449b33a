"""The GPU monitor through its real child process over the stand-in of NVML: every call is a real one."""

from __future__ import annotations

import asyncio
import os
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from muster.agent.gpu.config import GpuConfig
from muster.agent.gpu.monitor import GpuMonitor
from muster.agent.gpu.sample import Sample
from muster.agent.gpu.sampler import NvmlSampler, read_output
from muster.agent.monitor import Look, NodeFacts
from muster.clock import SystemClock
from muster.resources.fault import Severity
from muster.resources.node_health import Gpu
from tests.inventory.conftest import nvml_library as nvml_library  # the fixture

pytestmark = pytest.mark.full
START = datetime(2026, 1, 5, 8, 0, tzinfo=UTC)
H100 = "gpus 8\nlinks 18\nfabric 0 0 3\nset crc -1 0\nset replay -1 0\nset recovery -1 0\n"
FACTS = NodeFacts(
    boot_id="boot-1",
    booted_at=None,
    gpus=tuple(Gpu(index=n, uuid="", pci=f"0000:{16 + n:02x}:00.0") for n in range(8)),
)


class Bench:
    """A monitor over the stand-in; each look has a scenario of its own."""

    def __init__(self, folder: Path, library: Path, **config: object) -> None:
        self.scenario = folder / "scenario"
        environment = {**os.environ, "LD_LIBRARY_PATH": str(library), "NVML_SCENARIO": str(self.scenario)}
        self.sampler = NvmlSampler(SystemClock(), environment=environment)
        self.monitor = GpuMonitor(GpuConfig(**{"deadline_s": 30.0, **config}), self.sampler)  # type: ignore[arg-type]
        self.now = START

    def look(self, *scenarios: str) -> Look:
        """The last of the looks at these scenarios, 30 s apart."""

        async def looks() -> Look:
            for scenario in scenarios:
                self.scenario.write_text(scenario)
                self.now += timedelta(seconds=30)
                found = await self.monitor.look(FACTS, self.now)
            return found

        return asyncio.run(looks())

    def bad(self, *scenarios: str) -> list[tuple[str, str]]:
        return [(p.code, p.entity.key()) for p in self.look(*scenarios).probes if p.healthy is False]


@pytest.fixture
def bench(tmp_path: Path, nvml_library: Path) -> Bench:
    return Bench(tmp_path, nvml_library)


def uuid(number: int) -> str:
    return f"GPU-{number:08d}-0000-0000-0000-000000000000"


def test_eight_healthy_gpus(bench: Bench) -> None:
    look = bench.look(H100)
    assert (look.unknown, look.sightings) == ((), ())
    assert [p.code for p in look.probes if p.healthy is False] == []
    told = {p.code for p in look.probes}
    assert {"gpu-missing", "gpu-lost", "gpu-remap-failed", "gpu-sram-threshold", "gpu-fabric-state"} <= told
    assert {"gpu-recovery-action", "gpu-inforom-corrupted", "nvlink-down", "nvml-hang"} <= told
    assert sum(p.code == "nvlink-down" for p in look.probes) == 8 * 18
    again = bench.look(H100)
    assert sum(p.code == "nvlink-errors" for p in again.probes) == 8 * 18
    assert "gpu-inforom-corrupted" not in {p.code for p in again.probes}, "the flash is read once an hour"


STATES = [
    ("set remap_pending 2 1", "gpu-remap-pending", 2, 1),
    ("set remap_failed 2 1", "gpu-remap-failed", 2, 1),
    ("set sram_threshold 2 1", "gpu-sram-threshold", 2, 1),
    ("set pages_pending 2 1", "gpu-pages-pending", 2, 1),
    ("set inforom 2 14", "gpu-inforom-corrupted", 2, 1),
    ("set persistence 2 0", "gpu-persistence-off", 2, 1),
    ("set ecc_pending 2 0", "gpu-ecc-mode-pending", 2, 1),
    ("set action 2 1", "gpu-recovery-action", 2, 1),
    ("set width 2 8", "gpu-pcie-width", 2, 1),
    ("set gen 2 3\nset busy 2 80", "gpu-pcie-generation", 2, 3),
    ("set throttle 2 0x40", "gpu-thermal-throttle", 2, 3),
    ("set throttle 2 0x80", "gpu-power-brake", 2, 3),
    ("set throttle 2 0x8", "gpu-hw-slowdown", 2, 3),
    ("set temperature 2 95", "gpu-temperature", 2, 3),
    ("set margin 2 -3", "gpu-temperature", 2, 3),
    ("set fabric_state 2 2", "gpu-fabric-state", 2, 3),
    ("set fabric_status 2 15", "gpu-fabric-state", 2, 3),
    ("set fabric_health 2 0x1", "gpu-fabric-health", 2, 3),
]


@pytest.mark.parametrize(("line", "code", "number", "looks"), STATES, ids=[row[0] for row in STATES])
def test_each_state_of_one_gpu(bench: Bench, line: str, code: str, number: int, looks: int) -> None:
    assert bench.bad(*([H100 + line + "\n"] * looks)) == [(code, f"gpu/{uuid(number)}")]


def test_growth_of_errors(bench: Bench) -> None:
    bench.look(H100 + "set ecc_uncorrected 1 4\nset sram_parity 1 1\n")
    look = bench.look(H100 + "set ecc_uncorrected 1 6\nset sram_parity 1 1\nset sram_secded 1 1\n")
    assert [(s.code, s.count, s.entity.uuid) for s in look.sightings] == [
        ("gpu-ecc-uncorrected", 2, uuid(1)),
        ("gpu-sram-uncorrected", 1, uuid(1)),
    ]


def test_rates(bench: Bench) -> None:
    steps = [H100 + f"set replays 3 {n * 9}\nset ecc_corrected 3 {n * 90}\n" for n in range(4)]
    assert bench.bad(*steps) == [
        ("gpu-ecc-corrected-storm", f"gpu/{uuid(3)}"),
        ("gpu-pcie-replays", f"gpu/{uuid(3)}"),
    ]


@pytest.mark.parametrize("name", ["crc", "old_crc"])
def test_errors_of_links_on_new_and_old_gpus(bench: Bench, name: str) -> None:
    steps = [
        f"gpus 1\nlinks 2\nset {name} 0 {n * 4000}\nset old_replay 0 0\nset old_recovery 0 0\n" for n in range(4)
    ]
    if name == "old_crc":
        steps = [step + "set old_crc_data 0 0\n" for step in steps]
    assert bench.bad(*steps) == [("nvlink-errors", f"nvlink/{uuid(0)}/link{n}") for n in range(2)]


def test_a_link_goes_down(bench: Bench) -> None:
    assert bench.bad(H100 + "link 0 3\n", H100 + "link 0 3\nlink 5 4\n") == [
        ("nvlink-down", f"nvlink/{uuid(5)}/link4")
    ]


def test_a_lost_gpu_a_missing_one_and_one_that_needs_a_reset(bench: Bench) -> None:
    bench.look(H100)
    assert bench.bad(H100 + "error * 3 15\n") == [("gpu-lost", f"gpu/{uuid(3)}")]
    assert bench.bad(H100 + "error nvmlDeviceGetTotalEccErrors 3 15\n") == [("gpu-lost", f"gpu/{uuid(3)}")]
    assert bench.bad(H100 + "error * 3 16\n") == [("gpu-reset-required", f"gpu/{uuid(3)}")]
    look = bench.look("gpus 7\nlinks 18\n")
    (probe,) = (p for p in look.probes if p.healthy is False)
    assert (probe.code, probe.message.endswith(f"missing: {uuid(7)} at 0000:17:00.0")) == ("gpu-missing", True)


def test_a_swapped_and_a_moved_gpu(bench: Bench) -> None:
    bench.look(H100)
    look = bench.look(H100 + "set uuid 3 99\n")
    assert [(s.code, s.entity.uuid) for s in look.sightings] == [("gpu-swapped", uuid(99))]
    moved = bench.look(H100 + "set uuid 3 99\nset bus 3 0x77\n")
    assert moved.sightings == ()
    assert {p.entity.pci for p in moved.probes if p.entity.uuid == uuid(99)} == {"0000:77:00.0"}


def test_a_driver_that_is_being_unloaded_is_unknown(bench: Bench) -> None:
    bench.look(H100)
    look = bench.look("init 9\n")
    assert (look.probes, look.sightings) == ((), ())
    assert look.unknown == ("Driver Not Loaded (9)",)


def test_what_a_model_does_not_have_is_no_finding(bench: Bench) -> None:
    lines = ["SramEccErrorStatus", "RemappedRows", "GpuFabricInfoV", "FieldValues", "NvLinkState", "EccMode"]
    look = bench.look(H100 + "".join(f"error nvmlDeviceGet{name} -1 3\n" for name in lines))
    assert look.unknown == ()
    assert [p.code for p in look.probes if p.healthy is False] == []


def test_one_query_that_fails_is_unknown(bench: Bench) -> None:
    look = bench.look(H100 + "error nvmlDeviceGetRemappedRows 4 999\nset sram_threshold 4 1\n")
    assert look.unknown == ("remap of GPU 4: Unknown Error (999)",)
    assert [p.code for p in look.probes if p.healthy is False] == ["gpu-sram-threshold"]


def test_no_library_is_unknown_with_gpus_and_silent_without(tmp_path: Path) -> None:
    empty = Bench(tmp_path, tmp_path / "nothing")
    assert empty.look("").unknown == ("NVIDIA's library libnvidia-ml.so.1 cannot be found; set gpu.library",)

    async def without() -> Look:
        return await empty.monitor.look(NodeFacts(boot_id="b", booted_at=None, gpus=()), START)

    assert asyncio.run(without()) == Look()


def test_the_library_of_the_driver_container_is_found_below_the_root(tmp_path: Path, nvml_library: Path) -> None:
    folder = tmp_path / "root/run/nvidia/driver/usr/lib64"
    folder.mkdir(parents=True)
    (folder / "libnvidia-ml.so.1").symlink_to(nvml_library / "libnvidia-ml.so.1")
    scenario = tmp_path / "scenario"
    scenario.write_text("gpus 3\n")
    environment = {"NVML_SCENARIO": str(scenario)}
    for found in (
        NvmlSampler(SystemClock(), root=tmp_path / "root", environment=environment),
        NvmlSampler(SystemClock(), library=str(nvml_library / "libnvidia-ml.so.1"), environment=environment),
    ):
        assert len(asyncio.run(found.sample(30.0, deep=False)).gpus) == 3


def test_a_call_that_hangs_is_given_up_and_named(tmp_path: Path, nvml_library: Path) -> None:
    bench = Bench(tmp_path, nvml_library, deadline_s=1.0)
    started = time.monotonic()
    scenario = H100 + "sleep nvmlDeviceGetRemappedRows 5 60\n"
    first = bench.look(scenario)
    assert first.unknown == ("NVML did not answer within 1 s in nvmlDeviceGetRemappedRows",)
    assert first.probes == ()
    third = bench.look(scenario, scenario)
    assert [(p.code, p.healthy, p.severity) for p in third.probes] == [("nvml-hang", False, Severity.WARNING)]
    assert time.monotonic() - started < 30
    assert ("nvml-hang", True) in [(p.code, p.healthy) for p in bench.look("gpus 1\n").probes]


def test_processes_that_cannot_be_ended_are_counted_and_no_third_starts(tmp_path: Path, nvml_library: Path) -> None:
    """A process in an uninterruptible call survives SIGKILL; here one that is not killed plays it."""
    bench = Bench(tmp_path, nvml_library, deadline_s=0.5)
    started = []
    real = bench.sampler._start

    def start(announced: int, deep: bool) -> object:
        process = real(announced, deep)
        started.append(process)
        process.kill = lambda: None  # type: ignore[method-assign]
        return process

    bench.sampler._start = start  # type: ignore[method-assign, assignment]
    scenario = H100 + "hang nvmlDeviceGetCount_v2 -2\n"
    try:
        look = bench.look(*([scenario] * 9))
        assert len(started) == 2
        assert [(p.code, p.severity) for p in look.probes] == [("nvml-hang", Severity.FATAL)]
        assert "2 processes hang in the kernel" in look.probes[0].message
        assert "no further process is started" in look.unknown[0]
    finally:
        for process in started:
            type(process).kill(process)
            process.wait(10)
    assert bench.look("gpus 1\n").unknown == (), "when they are gone it goes on"


def test_an_answer_that_is_cut_or_is_none() -> None:
    assert read_output(b'{"index":0,"uuid":"GPU-1"}\n{"index":1,"uu', "cut") == Sample(
        gpus=read_output(b'{"index":0,"uuid":"GPU-1"}\n{"complete":true}\n', "").gpus, failure="cut"
    )
    for junk in (b"", b"\xff\xfe\n", b"[]\n", b'{"index":"x"}\n', b"Traceback (most recent call last):\n"):
        assert read_output(junk, "cut") == Sample(failure="cut")
