"""The page of dcgm-exporter: what is on it, what a lost GPU leaves, and what junk does."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from muster.agent.gpu.config import GpuConfig
from muster.agent.gpu.dcgm import read_page
from muster.agent.gpu.monitor import GpuMonitor
from muster.agent.gpu.scrape import DcgmExporter
from muster.agent.monitor import Look, NodeFacts
from muster.errors import BadInputError

START = datetime(2026, 1, 5, 8, 0, tzinfo=UTC)
FACTS = NodeFacts(boot_id="boot-1", booted_at=None, gpus=())


def line(name: str, gpu: int, value: object, more: str = "") -> str:
    labels = f'gpu="{gpu}",UUID="GPU-{gpu}",pci_bus_id="00000000:{16 + gpu:02X}:00.0",device="nvidia{gpu}"'
    return f'DCGM_FI_DEV_{name}{{{labels},modelName="NVIDIA H100 80GB HBM3",Hostname="n1"{more}}} {value}\n'


def page(*rows: tuple[str, int, object], gpus: int = 2) -> str:
    text = "# HELP DCGM_FI_DEV_GPU_TEMP GPU temperature (in C).\n# TYPE DCGM_FI_DEV_GPU_TEMP gauge\n"
    text += "".join(line("GPU_TEMP", n, 40) for n in range(gpus))
    return text + "".join(line(*row) for row in rows)


def test_the_readings_of_a_gpu() -> None:
    rows = [
        ("ECC_DBE_VOL_TOTAL", 1, 3),
        ("ROW_REMAP_FAILURE", 1, 1),
        ("CLOCKS_EVENT_REASONS", 1, 128),
        ("PCIE_REPLAY_COUNTER", 1, "1.2e+02"),
        ("NVLINK_CRC_FLIT_ERROR_COUNT_TOTAL", 1, 5),
        ("NVLINK_CRC_DATA_ERROR_COUNT_TOTAL", 1, 6),
        ("NVLINK_RECOVERY_ERROR_COUNT_L3", 1, 2),
        ("NVLINK_REPLAY_ERROR_L3_TOTAL", 1, 4),
        ("XID_ERRORS", 1, 79),
        ("RETIRED_PENDING", 1, 2147483633),
        ("ECC_SBE_VOL_TOTAL", 1, "9.223372036854775e+18"),
        ("GPU_UTIL", 1, "NaN"),
    ]
    sample = read_page(page(*rows))
    assert sample.complete
    gpu = sample.gpus[1]
    assert (gpu.uuid, gpu.pci, gpu.product) == ("GPU-1", "0000:11:00.0", "NVIDIA H100 80GB HBM3")
    assert (gpu.ecc_uncorrected, gpu.remap_failed, gpu.throttle, gpu.pcie_replays) == (3, True, 128, 120)
    told = [(link.link, link.crc, link.replay, link.recovery) for link in gpu.links]
    assert told == [(-1, 11, None, None), (3, None, 4, 2)]
    assert (gpu.xid, gpu.pages_pending, gpu.ecc_corrected, gpu.busy_percent) == (79, None, None, None)


def test_metrics_of_mig_devices_are_not_those_of_the_gpu() -> None:
    text = page() + line("ECC_DBE_VOL_TOTAL", 0, 7, ',GPU_I_PROFILE="1g.10gb",GPU_I_ID="3"')
    assert read_page(text).gpus[0].ecc_uncorrected is None


class Exporter:
    """Serves one answer after the other on loopback, and then the last one again."""

    def __init__(self, *answers: bytes) -> None:
        self.answers = list(answers)

    async def __aenter__(self) -> str:
        self.server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        return f"http://127.0.0.1:{self.server.sockets[0].getsockname()[1]}/metrics"

    async def __aexit__(self, *_: object) -> None:
        self.server.close()
        await self.server.wait_closed()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(self.answers.pop(0) if len(self.answers) > 1 else self.answers[0])
        writer.close()


def ok(text: str) -> bytes:
    return b"HTTP/1.0 200 OK\r\nContent-Type: text/plain\r\n\r\n" + text.encode()


def looks(*answers: bytes) -> list[Look]:
    async def main() -> list[Look]:
        async with Exporter(*answers) as url:
            monitor = GpuMonitor(GpuConfig(), DcgmExporter(url))
            return [await monitor.look(FACTS, START + timedelta(seconds=30 * n)) for n in range(len(answers))]

    return asyncio.run(main())


def test_a_lost_gpu_is_one_whose_metrics_are_gone() -> None:
    first, second = looks(ok(page(gpus=8)), ok(page(gpus=7)))
    assert [p.code for p in first.probes if p.healthy is False] == []
    (probe,) = (p for p in second.probes if p.healthy is False)
    assert (probe.code, "GPU-7" in probe.message) == ("gpu-missing", True)


def test_an_xid_that_changes_opens_a_fault_without_counting_it_again() -> None:
    before, same, after = looks(*(ok(page(("XID_ERRORS", 0, code))) for code in (31, 31, 79)))
    assert before.sightings == same.sightings == ()
    assert [(s.check, s.code, s.count, s.entity.uuid) for s in after.sightings] == [("xid", "79", 0, "GPU-0")]


def test_an_exporter_that_sees_no_gpu_says_nothing() -> None:
    (look,) = looks(ok("# nothing\n"))
    assert look.probes == ()


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (b"HTTP/1.0 503 Service Unavailable\r\n\r\nno", "503 Service Unavailable"),
        (b"", "instead of a page of metrics"),
        (b"\x00\xff" * 100, "instead of a page of metrics"),
        (ok("x" * (8 * 1024 * 1024 + 1)), "more than 8 MiB"),
    ],
)
def test_an_answer_that_is_no_page(answer: bytes, words: str) -> None:
    with pytest.raises(OSError, match=words):
        looks(answer)


@pytest.mark.parametrize(
    "url", ["https://x/metrics", "localhost:9400", "http://", "http://x:99999999/", "http://a b/"]
)
def test_a_url_that_is_none(url: str) -> None:
    with pytest.raises(BadInputError, match="give http://HOST:PORT/metrics"):
        DcgmExporter(url)


@given(st.text(max_size=300) | st.binary(max_size=300).map(lambda b: b.decode("latin-1")))
def test_any_text_is_read_without_an_error(text: str) -> None:
    sample = read_page(text + "\n" + page() + 'DCGM_FI_DEV_XID_ERRORS{UUID="GPU-0",gpu="x" 1\n')
    assert [gpu.uuid for gpu in sample.gpus][:2] == ["GPU-0", "GPU-1"]
