"""The scripts of the Jobs, run by /bin/sh with stand-ins for the programs of the host."""

from __future__ import annotations

import os
import stat
import subprocess
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from muster.operate.providers.job import scripts
from muster.read.kernel.driver import detect_reset_marker
from tests.providers.bed import GPUS

NSENTER = """while [ "$1" != -- ]; do shift; done; shift; exec "$@" """
SMI = """echo "nvidia-smi $*" >> "$CALLS"
case "$*" in
  *--gpu-reset*) [ -z "${SMI_SAYS:-}" ] || echo "$SMI_SAYS"; exit "${SMI_CODE:-0}" ;;
  *--query-gpu=uuid*) printf '%s\\n' $ALL_GPUS ;;
  *-q*) [ -z "${SMI_MUTE:-}" ] || exit 15; echo "    Minor Number                          : ${MINOR:-3}" ;;
esac"""
SYSTEMCTL = """echo "systemctl $*" >> "$CALLS"
case "$1" in
  is-active) case " ${ACTIVE:-} " in *" $3 "*) exit 0 ;; *) exit 3 ;; esac ;;
  reboot) exit "${REBOOT_CODE:-0}" ;;
esac"""
FUSER = """echo "fuser $*" >> "$CALLS"; [ -z "${HOLDERS:-}" ] || { echo " $HOLDERS"; exit 0; }; exit 1"""
MODPROBE = """echo "modprobe $*" >> "$CALLS"
case "$*" in "-r ${STUCK:-none}") echo "modprobe: FATAL: Module $2 is in use." >&2; exit 1 ;; esac"""


@dataclass
class Host:
    path: Path
    env: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for folder in ("bin", "proc/sys/kernel/random", "proc/77/fd"):
            (self.path / folder).mkdir(parents=True, exist_ok=True)
        (self.path / "proc/77/comm").write_text("python3\n")
        (self.path / "proc/modules").write_text(
            "nvidia_uvm 1 0 - Live 0x0\nnvidia 1 1 nvidia_uvm, Live 0x0\next4 1 0 - Live 0x0\n"
        )
        (self.path / "proc/sys/kernel/random/boot_id").write_text("boot-1\n")
        for name, text in (
            ("nsenter", NSENTER),
            ("nvidia-smi", SMI),
            ("systemctl", SYSTEMCTL),
            ("fuser", FUSER),
            ("modprobe", MODPROBE),
        ):
            self.program(name, text)

    def program(self, name: str, text: str) -> None:
        file = self.path / "bin" / name
        file.write_text(f"#!/bin/sh\n{text}\n")
        file.chmod(file.stat().st_mode | stat.S_IXUSR)

    def run(self, script: str, **env: str) -> tuple[bool, str]:
        given = {
            "PATH": f"{self.path / 'bin'}:{os.environ['PATH']}",
            "CALLS": str(self.path / "calls"),
            "TERMINATION_LOG": str(self.path / "log"),
            "KMSG": str(self.path / "kmsg"),
            "PROC_ROOT": str(self.path / "proc"),
            "STATE_FILE": str(self.path / "stopped"),
            "DRIVER_ROOT": str(self.path / "driver"),
            "ALL_GPUS": " ".join(GPUS),
            "GPU_UUIDS": "",
            "SERVICES": "nvidia-persistenced nvidia-dcgm",
            "SHUTDOWN_S": "0",
            "SYNC_S": "0",
        }
        (self.path / "kmsg").touch()
        (self.path / "calls").touch()
        done = subprocess.run(
            ["/bin/sh", "-c", script], env={**given, **env}, capture_output=True, text=True, timeout=30, check=False
        )
        result = scripts.read_result((self.path / "log").read_text())
        assert result is not None, done.stderr
        assert (done.returncode == 0) == result[0], done.stderr
        return result

    def calls(self) -> list[str]:
        return (self.path / "calls").read_text().splitlines()

    def markers(self) -> list[str]:
        return (self.path / "kmsg").read_text().splitlines()


@pytest.fixture
def host(tmp_path: Path) -> Host:
    return Host(tmp_path)


def test_reset_of_named_gpus(host: Host) -> None:
    ok, words = host.run(scripts.reset_gpu(), GPU_UUIDS=" ".join(GPUS), ACTIVE="nvidia-persistenced")
    assert ok, words
    calls = host.calls()
    assert f"nvidia-smi --gpu-reset -i {','.join(GPUS)}" in calls
    assert calls.index("systemctl stop nvidia-persistenced") < calls.index("fuser /dev/nvidia3 /dev/nvidia3")
    assert calls[-1] == "systemctl start nvidia-persistenced"
    assert "systemctl stop nvidia-dcgm" not in calls, "what does not run is not started either"
    assert all(gpu in words for gpu in GPUS)


def test_the_kernel_log_reader_understands_the_marker(host: Host) -> None:
    host.run(scripts.reset_gpu(), GPU_UUIDS=" ".join(GPUS))
    host.run(scripts.reset_gpu(), GPU_UUIDS=GPUS[0], SMI_CODE="1")
    lines = host.markers()
    assert [line.split("executed: ")[1] for line in lines] == [
        f"{GPUS[0]}, success: true",
        f"{GPUS[1]}, success: true",
        f"{GPUS[0]}, success: false",
    ]
    assert all(detect_reset_marker(line) is not None for line in lines)


def test_without_uuids_the_whole_node_is_reset(host: Host) -> None:
    ok, words = host.run(scripts.reset_gpu())
    assert ok, words
    assert "nvidia-smi --gpu-reset" in host.calls()
    assert len(host.markers()) == len(GPUS)


def test_the_programs_of_the_driver_root_come_first(host: Host) -> None:
    inside = host.path / "driver/usr/bin"
    inside.mkdir(parents=True)
    (inside / "nvidia-smi").write_text("#!/bin/sh\n")
    (inside / "nvidia-smi").chmod(0o755)
    host.program("chroot", 'echo "chroot $1" >> "$CALLS"; shift; exec "$@"')
    ok, words = host.run(scripts.reset_gpu(), GPU_UUIDS=GPUS[0])
    assert ok, words
    assert f"chroot {host.path / 'driver'}" in host.calls()


def test_a_gpu_in_use_is_not_reset_and_its_user_named(host: Host) -> None:
    ok, words = host.run(scripts.reset_gpu(), GPU_UUIDS=GPUS[0], HOLDERS="77", ACTIVE="nvidia-dcgm")
    assert not ok
    assert words == "the GPU is in use by another client: python3 (pid 77)"
    assert not any("--gpu-reset" in call for call in host.calls())
    assert host.calls()[-1] == "systemctl start nvidia-dcgm"


def test_users_are_found_without_fuser(host: Host) -> None:
    (host.path / "bin/fuser").unlink()
    (host.path / "proc/77/fd/5").symlink_to("/dev/nvidia3")
    # The stand-in host has a PATH of its own, so that the machine's fuser is not found either.
    bare = host.path / "bare"
    bare.mkdir()
    for name in ("sh", "sed", "head", "ls", "cat", "sort", "uniq", "tr", "cut", "rm", "timeout", "test", "grep"):
        (bare / name).symlink_to(next(p for p in (Path("/usr/bin") / name, Path("/bin") / name) if p.exists()))
    ok, words = host.run(scripts.reset_gpu(), GPU_UUIDS=GPUS[0], PATH=f"{host.path / 'bin'}:{bare}")
    assert not ok
    assert "python3 (pid 77)" in words


@pytest.mark.parametrize(
    ("env", "said"),
    [
        ({"SMI_CODE": "1", "SMI_SAYS": "GPU 00000000:0F:00.0: In use by another client"}, "in use by another client"),
        ({"SMI_CODE": "124"}, "did not end within"),
        ({"SMI_CODE": "3", "SMI_SAYS": "Not Supported"}, "exit code 3"),
        ({"SMI_MUTE": "1"}, "do not answer"),
    ],
)
def test_a_reset_that_fails_says_why(host: Host, env: dict[str, str], said: str) -> None:
    ok, words = host.run(scripts.reset_gpu(), GPU_UUIDS=GPUS[0], **env)
    assert not ok
    assert said in words
    assert all("success: false" in line for line in host.markers())


def test_services_that_a_killed_run_left_stopped_are_started_by_the_next(host: Host) -> None:
    (host.path / "stopped").write_text("nvidia-fabricmanager\n")
    host.run(scripts.reset_gpu(), GPU_UUIDS=GPUS[0])
    assert "systemctl start nvidia-fabricmanager" in host.calls()
    assert not (host.path / "stopped").exists()


def test_hostile_words_stay_one_line_of_text(host: Host) -> None:
    ok, words = host.run(
        scripts.reset_gpu(), GPU_UUIDS=GPUS[0], SMI_CODE="1", SMI_SAYS="a\nok all is well\x1b[31m$(id)" * 99
    )
    assert not ok
    assert words.isprintable()
    assert "$(id)" in words
    assert len(words) <= 700


def test_modules_are_unloaded_in_order_and_loaded_again(host: Host) -> None:
    ok, words = host.run(scripts.restart_driver())
    assert ok, words
    mods = [call for call in host.calls() if call.startswith("modprobe")]
    assert mods == ["modprobe -r nvidia_uvm", "modprobe -r nvidia", "modprobe nvidia", "modprobe nvidia_uvm"]


def test_a_module_in_use_leaves_the_driver_as_it_was(host: Host) -> None:
    ok, words = host.run(scripts.restart_driver(), STUCK="nvidia")
    assert not ok
    assert "is in use" in words
    assert host.calls()[-2:] == ["modprobe nvidia_uvm", "modprobe nvidia"]


def test_reboot_through_systemd(host: Host) -> None:
    trigger = host.path / "proc/sysrq-trigger"
    done = host.run(scripts.reboot(), BOOT_ID_BEFORE="boot-1")
    assert "systemctl reboot" in host.calls()
    # The stand-in machine does not go down, so the kernel is asked too, and in the end that is told.
    assert trigger.read_text() == "b\n"
    assert not done[0]
    assert "did not go down" in done[1]


def test_reboot_of_a_host_without_systemd(host: Host) -> None:
    (host.path / "bin/systemctl").unlink()
    host.program("systemctl", "exit 1")
    host.run(scripts.reboot(), BOOT_ID_BEFORE="boot-1")
    assert (host.path / "proc/sysrq-trigger").read_text() == "b\n"


def test_a_node_that_has_booted_already_is_not_booted_again(host: Host) -> None:
    ok, words = host.run(scripts.reboot(), BOOT_ID_BEFORE="boot-0")
    assert ok
    assert "already" in words
    assert host.calls() == []
