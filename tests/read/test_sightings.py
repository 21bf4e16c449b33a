"""From lines to open faults: the way that the agent goes."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from muster.faults import assembly
from muster.read.kernel import KernelLogParser, to_sightings
from muster.resources.fault import EntityKind, Fault, Severity

BOOT = datetime(2026, 1, 5, 8, 0, tzinfo=UTC)
NOW = BOOT + timedelta(hours=1)
UUID = "GPU-11111111-2222-3333-4444-555555555555"


def open_faults(*messages: str) -> tuple[Fault, ...]:
    parser = KernelLogParser()
    lines = [f"4,{i},{(i + 1) * 1_000_000},-;{message}".encode() for i, message in enumerate(messages)]
    findings = [*parser.feed(lines), *parser.flush()]
    state = assembly.start("boot-1", {"0000:3b:00.0": UUID})
    sightings = to_sightings(findings, now=NOW, booted_at=BOOT, boot_id="boot-1")
    state, _ = assembly.observe(state, sightings, NOW)
    return assembly.open_faults(state)


def test_times_and_identity() -> None:
    (fault,) = open_faults("NVRM: Xid (PCI:0000:3b:00): 119, pid=1, name=x, Timeout after 6s")
    assert (fault.entity.uuid, fault.entity.pci) == (UUID, "0000:3b:00.0")
    assert fault.first_seen == BOOT + timedelta(seconds=1)
    assert (fault.check, fault.code, fault.severity, fault.source) == ("xid", "119", Severity.FATAL, "kernel-log")


def test_one_event_in_two_words_is_one_fault() -> None:
    (fault,) = open_faults(
        "NVRM: GPU 0000:3b:00.0: GPU has fallen off the bus.",
        "NVRM: Xid (PCI:0000:3b:00): 79, pid=1, name=x, GPU has fallen off the bus.",
    )
    assert (fault.check, fault.code) == ("xid", "79")


def test_companions_do_not_count() -> None:
    (fault,) = open_faults(
        "NVRM: Xid (PCI:0000:3b:00): 119, pid=1, name=x, Timeout after 6s",
        "NVRM: Rate limiting GSP RPC error prints for GPU at PCI:0000:3b:00 (printing 1 of every 30).",
    )
    assert fault.count == 1


def test_what_is_no_fault_opens_none() -> None:
    assert (
        open_faults(
            f"NVRM: GPU at PCI:0000:3b:00: {UUID}",
            "NVRM: loading NVIDIA UNIX Open Kernel Module for x86_64  570.158.01  Release Build  (x)",
            f"GPU reset executed: {UUID}, success: true",
            "usb 1-1: new high-speed USB device",
        )
        == ()
    )


def test_info_stays_info() -> None:
    (fault,) = open_faults("NVRM: Xid (PCI:0000:3b:00): 45, pid=1, name=x, Ch 00000008")
    assert fault.severity is Severity.INFO


def test_a_failed_reset_is_a_fault_of_that_gpu() -> None:
    (fault,) = open_faults(f"GPU reset executed: {UUID}, success: false")
    assert (fault.code, fault.entity.uuid, fault.hint.value) == ("gpu-reset-failed", UUID, "reboot")


def test_processes_cannot_flood_the_list() -> None:
    crash = "pt_main_thread[{}]: segfault at 10 ip 00007f7c sp 00007f7c error 4 in libnccl.so.2[7f7c+d3]"
    (fault,) = open_faults(*(crash.format(pid) for pid in range(1, 400)))
    assert (fault.entity.kind, fault.count) == (EntityKind.PROCESS, 399)


def test_a_switch_error_is_one_fault_in_both_logs() -> None:
    faults = open_faults(
        "nvidia-nvswitch0: SXid (PCI:0000:86:00.0): 20034, Fatal, Link 33 LTSSM Fault Up",
        "detected NVSwitch fatal error 20034 on fid 0 on NVSwitch pci bus id 00000000:86:00.0 physical id 3 port 33",
    )
    assert [(f.code, f.entity.port, f.count) for f in faults] == [("20034", 33, 2)]


def test_power_smoothing_notice_takes_back() -> None:
    faults = open_faults("NVRM: Xid (PCI:0000:3b:00): 163, x", "NVRM: Xid (PCI:0000:3b:00): 162, x")
    assert [f.code for f in faults] == ["162"]
