"""Every prefix that a kernel log can have, and the time it tells."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from muster.read import pci
from muster.read.kernel import KernelLogParser
from muster.read.kernel.framing import frame
from muster.read.moment import Basis
from tests.read.cases import read_text

MESSAGE = "NVRM: Xid (PCI:0000:3b:00): 79, pid=12, name=python3, GPU has fallen off the bus."
SPELLINGS = (
    "{:04x}:{:02x}:{:02x}.{}",
    "{:08x}:{:02X}:{:02X}.{}",
    "PCI:{:04X}:{:02x}:{:02x}.{}",
    "[{:04x}:{:02x}:{:02x}.{}]",
)
PREFIXES = {
    "none": ("", None, None),
    "indented": ("        ", None, None),
    "dmesg": ("[ 1843.308145] ", Basis.BOOT, ""),
    "dmesg with spaced caller": ("[ 1843.308145] [  T123] ", Basis.BOOT, ""),
    "dmesg -d": ("[ 1843.308145 <    0.000012>] ", Basis.BOOT, ""),
    "dmesg reltime": ("[Feb23 16:24] ", None, None),
    "dmesg reltime later": ("[  +0.000012] ", None, None),
    "dmesg colours": ("\x1b[32m[ 1843.308145] \x1b[0m\x1b[31m", Basis.BOOT, ""),
    "container": ("2025-02-23T16:30:00.123456789Z stdout F [ 1843.308145] ", Basis.BOOT, ""),
    "container kmsg": ("2025-02-23T16:30:00.123456789+00:00 stderr F 4,1234,1843308145,-;", Basis.BOOT, ""),
    "container bare": ("2025-02-23T16:24:18.123456789Z stdout F ", Basis.UTC, "2025-02-23T16:24:18.123456789Z"),
    "kubectl timestamps": ("2025-02-23T16:30:00.123456789Z [ 1843.308145] ", Basis.BOOT, ""),
    "journal full, zone by name": ("Sun 2025-02-23 16:24:18 CET node-1 kernel: ", Basis.LOCAL, "2025-02-23T16:24:18"),
    "dmesg with caller": ("[ 1843.308145][  T123] ", Basis.BOOT, ""),
    "dmesg -r": ("<4>[ 1843.308145] ", Basis.BOOT, ""),
    "dmesg -x": ("kern  :warn  : [ 1843.308145] ", Basis.BOOT, ""),
    "lost bracket": ("1843.308145] ", Basis.BOOT, ""),
    "dmesg -T": ("[Sun Feb 23 16:24:18 2025] ", Basis.LOCAL, "2025-02-23T16:24:18"),
    "dmesg iso": ("2025-02-23T16:24:18,500000+01:00 ", Basis.UTC, "2025-02-23T16:24:18.5+01:00"),
    "kmsg": ("4,1234,1843308145,-;", Basis.BOOT, ""),
    "kmsg with caller": ("4,1234,1843308145,-,caller=T55;", Basis.BOOT, ""),
    "journal short": ("Feb 23 16:24:18 node-1 kernel: ", Basis.YEARLESS, "--02-23T16:24:18"),
    "journal precise": ("Feb 23 16:24:18.250000 node-1 kernel: ", Basis.YEARLESS, "--02-23T16:24:18.25"),
    "journal iso": ("2025-02-23T16:24:18+0000 node-1 kernel: ", Basis.UTC, "2025-02-23T16:24:18Z"),
    "journal full": ("Sun 2025-02-23 16:24:18 UTC node-1 kernel: ", Basis.UTC, "2025-02-23T16:24:18Z"),
    "journal unix": ("1740327858.250000 node-1 kernel: ", Basis.UTC, "2025-02-23T16:24:18.250000Z"),
    "journal monotonic": ("[ 1843.308145] node-1 kernel: ", Basis.BOOT, ""),
    "syslog with uptime": ("Feb 23 16:24:18 node-1 kernel: [ 1843.308145] ", Basis.YEARLESS, "--02-23T16:24:18"),
    "rsyslog iso": ("2025-02-23T16:24:18.123456+00:00 node-1 kernel: ", Basis.UTC, "2025-02-23T16:24:18.123456Z"),
    "syslog 5424": ("<4>1 2025-02-23T16:24:18Z node-1 kernel - - - ", Basis.UTC, "2025-02-23T16:24:18Z"),
    "pod log": ("node-7 | ", None, None),
    "cut date": ("16:24:18 2025] ", None, None),
    "numbered": ("  17\t", None, None),
}


@pytest.mark.parametrize("name", PREFIXES)
def test_the_prefix_changes_nothing_but_the_time(name: str) -> None:
    prefix, basis, text = PREFIXES[name]
    (finding,) = KernelLogParser().feed([(prefix + MESSAGE).encode()])
    assert (finding.detection.code, finding.detection.entity.pci) == (79, "0000:3b:00.0")
    assert (finding.first.basis if finding.first else None) == basis
    if basis is Basis.BOOT:
        assert finding.first is not None
        assert finding.first.seconds == pytest.approx(1843.308145)
    elif finding.first is not None:
        assert finding.first.text == text


@pytest.mark.parametrize("name", PREFIXES)
def test_the_report_is_the_same_under_every_prefix(name: str) -> None:
    report = read_text(PREFIXES[name][0] + MESSAGE + "\n")
    (fault,) = report["faults"]
    assert (fault["code"], fault["count"], fault["hint"], fault["pid"]) == (79, 1, "reboot", 12)
    assert report["verdicts"][-1]["result"] == "FAIL"


@pytest.mark.parametrize("message", [MESSAGE, list(MESSAGE.encode()), ["nothing", MESSAGE]])
def test_journal_json_in_all_its_shapes(message: object) -> None:
    record = {
        "MESSAGE": message,
        "__REALTIME_TIMESTAMP": "1740327858250000",
        "_BOOT_ID": "b" * 32,
        "_HOSTNAME": "node-1",
        "_TRANSPORT": "kernel",
    }
    (finding,) = KernelLogParser().feed([json.dumps(record, separators=(",", ":")).encode()])
    assert (finding.detection.code, finding.host, finding.boot_id) == (79, "node-1", "b" * 32)
    assert finding.first is not None
    assert finding.first.text == "2025-02-23T16:24:18.250000Z"


@pytest.mark.parametrize(
    "line",
    [
        f"Feb 23 16:24:18 node-1 sshd[12]: {MESSAGE}",
        json.dumps({"MESSAGE": MESSAGE, "SYSLOG_IDENTIFIER": "bash", "_TRANSPORT": "stdout"}),
        f"[ 12.345678] audit: type=1400 comm={MESSAGE}",
        f"[ 12.345678] my program says {MESSAGE}",
    ],
)
def test_other_programs_cannot_speak_for_the_kernel(line: str) -> None:
    assert KernelLogParser().feed([line.encode()]) == []


@pytest.mark.parametrize("cut", range(1, 7))
def test_a_first_line_that_lost_its_beginning(cut: int) -> None:
    (fault,) = read_text(MESSAGE[cut:] + "\n", kind=None)["faults"]
    assert (fault["code"], fault["entity"]["pci"]) == (79, "0000:3b:00.0")


def test_fragments_of_kmsg_are_joined_and_count_once() -> None:
    parser = KernelLogParser()
    found = parser.feed([b"4,10,5000000,-;NVRM: Xid (PCI:0000:3b:00): 119, pid=7, name=x, Timeout after 6s of wai"])
    found += parser.feed(
        [b"4,11,5000001,c;ting for RPC response from GPU4 GSP! Expected function 76 (GSP_RM_CONTROL)"]
    )
    assert [f.detection.companion for f in found] == [False, True]
    assert found[1].detection.details["function"] == 76


def test_a_kmsg_record_with_escapes_and_dictionary() -> None:
    record = (
        b"3,99,1843308145,-;NVRM: The NVIDIA GPU 0000:b3:00.0"
        b"\\x0aNVRM: (PCI ID: 10de:26b5) installed in this system has"
        b"\\x0aNVRM: fallen off the bus and is not responding to commands.\n SUBSYSTEM=pci\n DEVICE=+pci:0000:b3:00.0"
    )
    (finding,) = KernelLogParser().feed([record])
    assert finding.detection.code == "gpu-off-bus"
    assert finding.detection.about == {"pci_id": "10de:26b5"}


@given(st.text(max_size=300))
def test_no_line_breaks_the_parser(text: str) -> None:
    origin = frame(text)
    assert isinstance(origin.message, str)
    assert isinstance(KernelLogParser().feed([text.encode("utf-8", "surrogatepass")]), list)


@given(st.binary(max_size=300), st.integers(0, 80))
def test_no_bytes_break_the_parser(data: bytes, at: int) -> None:
    line = MESSAGE.encode()
    found = KernelLogParser().line(1, line[:at] + data + line[at:])
    assert len(found) <= 1


@given(
    st.integers(0, 0xFFFF),
    st.integers(0, 255),
    st.integers(0, 31),
    st.integers(0, 7),
    st.sampled_from(SPELLINGS),
)  # fmt: skip
def test_every_spelling_of_an_address_is_one(domain: int, bus: int, device: int, fn: int, spelling: str) -> None:
    wanted = f"{domain:04x}:{bus:02x}:{device:02x}.{fn}"
    assert pci.normalise(spelling.format(domain, bus, device, fn)) == wanted
    assert pci.normalise(wanted) == wanted


@pytest.mark.parametrize(
    "text", ["", "GPU", "0000:9b", "0000:9b:40.0", "zz:00.0", "0000:9b:00.9", "0000:9b:00:00:00"]
)
def test_what_is_no_address_is_none(text: str) -> None:
    assert pci.normalise(text) is None


@pytest.mark.parametrize("inner", ["[1234.5] ", "[1234.567890] ", "[ 7.1] ", "[T1234] ", "[some collector] ", ""])
def test_the_driver_is_heard_behind_any_bracket_of_a_kernel_tag(inner: str) -> None:
    line = f"Jan 12 03:11:02 node7 kernel: {inner}NVRM: Xid (PCI:0000:18:00): 79, GPU has fallen off the bus."
    assert frame(line).message.startswith("NVRM: Xid (PCI:0000:18:00): 79")
