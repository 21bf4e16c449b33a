"""What one agent costs: `muster agent run --listen` as a process, against the simulated API server over HTTPS.

Prints resident memory and CPU while the node is quiet and while its kernel log grows by 100,000 lines, beside the
goals (at most 40 MiB, at most 0.5 % of a core at rest) and beside `tail -F | grep -c` that follows the same file in
the same run. Eight GPUs of a stand-in of NVML are sampled by the real child process every 30 s, all other monitors
look at this machine. Linux only: the figures are those of /proc. Without a C compiler there are no GPUs, and the line
says so.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import random
import re
import shutil
import subprocess
import sys
import tempfile
import time
import urllib.request
from dataclasses import dataclass
from pathlib import Path

from muster.clock import SystemClock
from muster.kube.api import CRDS, NAMESPACES, NODES
from muster.resources import crd
from muster.resources.base import SYSTEM_NAMESPACE
from muster.sim.inprocess import InProcessApi
from muster.sim.server import ApiServer
from muster.sim.store import Store

GOAL_MIB = 40.0
GOAL_IDLE = 0.005
LINES = 100_000
CHUNKS = 50
GPUS = 8
FAULT_EVERY = 5_000
SAMPLE_S = 30.0
STANDIN = Path(__file__).parent.parent / "tests/inventory/nvml_standin.c"
SCENARIO = "gpus 8\nlinks 18\nfabric 0 0 3\nset crc -1 0\nset replay -1 0\nset recovery -1 0\nset gen -1 5\n"
TICKS = os.sysconf("SC_CLK_TCK")
BORING = (
    "usb 1-%d: new high-speed USB device number %d using xhci_hcd",
    "IPv6: ADDRCONF(NETDEV_CHANGE): veth%dabc: link becomes ready %d",
    'audit: type=1400 audit(1700000000.1:%d): apparmor="STATUS" operation="profile_load" pid=%d comm="x"',
    "cni0: port %d(veth77aa) entered forwarding state %d",
    "systemd[1]: Started session-%d.scope - Session %d of User root.",
)
FAULT = "NVRM: Xid (PCI:0000:%02x:00): 31, pid=%d, name=python3, Ch 00000008, intr 00000000. MMU Fault"


def host(root: Path) -> Path:
    """The files of a node with eight GPUs, as far as the agent reads them."""
    files = {
        "proc/sys/kernel/random/boot_id": "0f1e2d3c-0000-4000-8000-123456789abc\n",
        "proc/stat": f"btime {int(time.time()) - 3600}\n",
        "proc/driver/nvidia/version": "NVRM version: NVIDIA UNIX x86_64 Kernel Module  580.65.06  Tue Jan 1\n",
        "etc/os-release": 'ID=ubuntu\nVERSION_ID="24.04"\n',
        "var/lib/kubelet/device-plugins/kubelet_internal_checkpoint": '{"Data":{"PodDeviceEntries":[]},"Checksum":0}',
    }
    for index in range(GPUS):
        information = f"Model: \t\t NVIDIA H100 80GB HBM3\nGPU UUID: \t GPU-{index:08d}-0000-4000-8000-000000000000\n"
        files[f"proc/driver/nvidia/gpus/0000:{0x10 + index:02x}:00.0/information"] = information
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return root


def chunk(first: int, lines: int) -> str:
    """Lines in the format of /dev/kmsg, with the numbers that follow each other."""
    rng = random.Random(first)
    written = []
    for number in range(first, first + lines):
        if number % FAULT_EVERY == 0:
            text = FAULT % (0x10 + rng.randrange(GPUS), rng.randrange(100_000))
        else:
            text = rng.choice(BORING) % (rng.randrange(200), rng.randrange(100_000))
        written.append(f"6,{number},{number * 100},-;{text}\n")
    return "".join(written)


def standin(folder: Path) -> Path | None:
    """The stand-in of NVML as a library, with its scenario beside it; None without a compiler."""
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        return None
    library = folder / "libnvidia-ml.so.1"
    subprocess.run([compiler, "-shared", "-fPIC", "-O1", "-o", str(library), str(STANDIN)], check=True)
    (folder / "scenario").write_text(SCENARIO)
    return library


def sample_of(library: Path) -> tuple[float, float, float]:
    """Resident and proportional MiB of one process that samples the stand-in, and its CPU seconds.

    Memory is that at a call near the end, which the scenario makes last a second.
    """
    from muster.agent.gpu.sampler import PROGRAM

    scenario = library.with_name("slow")
    scenario.write_text(f"{SCENARIO}sleep nvmlDeviceValidateInforom 7 1\n")
    command = [sys.executable, "-I", "-S", str(PROGRAM), "deep", str(library)]
    environment = {"NVML_SCENARIO": str(scenario)}
    process = subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    assert process.stdout is not None
    for _ in range(GPUS - 1):
        process.stdout.readline()
    time.sleep(0.5)
    use = use_of(process.pid)
    process.stdout.read()
    _, _, usage = os.wait4(process.pid, 0)
    process.returncode = 0
    return use.peak_mib, use.pss_mib, usage.ru_utime + usage.ru_stime


@dataclass(frozen=True)
class Use:
    """What a process has used so far: CPU seconds, and its resident memory now and at most, in MiB."""

    cpu_s: float
    rss_mib: float
    peak_mib: float
    pss_mib: float
    """Its share of memory that processes have in common counts in part."""
    children_s: float
    """CPU seconds of children that ended."""


def use_of(*pids: int) -> Use:
    """The sum over `pids`."""
    cpu_s = rss = peak = pss = children_s = 0.0
    for pid in pids:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        cpu_s += (int(fields[11]) + int(fields[12])) / TICKS
        children_s += (int(fields[13]) + int(fields[14])) / TICKS
        shared = Path(f"/proc/{pid}/smaps_rollup").read_text()
        pss += int(re.findall(r"^Pss:\s+(\d+)", shared, re.MULTILINE)[0]) / 1024
        status = Path(f"/proc/{pid}/status").read_text()
        rss += int(re.findall(r"VmRSS:\s+(\d+)", status)[0]) / 1024
        peak += int(re.findall(r"VmHWM:\s+(\d+)", status)[0]) / 1024
    return Use(cpu_s, rss, peak, pss, children_s)


def read_so_far(address: str) -> int:
    """How many records the agent has read, by its own account."""
    with urllib.request.urlopen(f"http://{address}/metrics", timeout=10) as answer:
        found = re.search(r"^muster_agent_log_records_total ([0-9.e+]+)$", answer.read().decode(), re.MULTILINE)
    return int(float(found[1])) if found else 0


async def until_read(address: str) -> float:
    """Wait until the agent has read every line; how long that took, in seconds."""
    begin = time.monotonic()
    while await asyncio.to_thread(read_so_far, address) < LINES:  # noqa: ASYNC110 - another process counts
        await asyncio.sleep(0.2)
    return time.monotonic() - begin


async def address_of(process: asyncio.subprocess.Process) -> str:
    """Where the agent listens, from its log."""
    assert process.stderr is not None
    async for line in process.stderr:
        if found := re.search(rb"/metrics on (\S+)", line):
            return found[1].decode()
    raise SystemExit("the agent ended before it listened")


def deployed(folder: Path) -> dict[str, str]:
    """The environment of the agent: with compiled modules, which an image holds; to compile them costs memory."""
    left_out = ("MUSTER_CLOCK", "KUBECONFIG", "PYTHONDONTWRITEBYTECODE")
    kept = {name: value for name, value in os.environ.items() if name not in left_out}
    return kept | {"PYTHONPYCACHEPREFIX": str(folder / "compiled")}


async def drain(stream: asyncio.StreamReader) -> None:
    while await stream.read(65536):
        pass


async def measure(
    folder: Path, library: Path | None, idle_s: float, growth_s: float
) -> tuple[list[Use], float, list[Use]]:
    """Uses of the agent (start, after the quiet time, after the growth), seconds it lagged, uses of the reference."""
    store = Store(SystemClock())
    api = InProcessApi(store)
    for manifest in crd.manifests():
        await api.create(CRDS, manifest)
    await api.create(NAMESPACES, {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": SYSTEM_NAMESPACE}})
    await api.create(NODES, {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n1"}})
    log = folder / "kmsg"
    log.write_text(chunk(1, 100))
    async with ApiServer(store) as server:
        account = folder / "account"
        account.mkdir()
        (account / "token").write_text(server.token("admin"))
        (account / "ca.crt").write_text(server.ca_pem)
        arguments = ["-m", "muster.cli.main", "agent", "run", "--node", "n1", "--service-account", str(account)]
        arguments += ["--kernel-log", str(log), "--state-dir", str(folder / "state")]
        arguments += ["--host-root", str(host(folder / "root"))]
        arguments += ["--listen", "127.0.0.1:0"]
        gpu = f"library: {library}, intervalS: {SAMPLE_S}" if library is not None else "enabled: false"
        config = folder / "agent.yaml"
        config.write_text(f"gpu: {{{gpu}}}\n")
        arguments += ["--config", str(config)]
        environment = deployed(folder) | {"NVML_SCENARIO": str(folder / "scenario")}
        address, _, port = server.url.removeprefix("https://").rpartition(":")
        environment |= {"KUBERNETES_SERVICE_HOST": address, "KUBERNETES_SERVICE_PORT": port}
        # The first run compiles, as the build of an image does.
        once = await asyncio.create_subprocess_exec(
            sys.executable,
            *arguments,
            "--once",
            env=environment,
            stdout=asyncio.subprocess.DEVNULL,
            stderr=asyncio.subprocess.DEVNULL,
        )
        if await once.wait():
            raise SystemExit("the agent did not run")
        agent = await asyncio.create_subprocess_exec(
            sys.executable, *arguments, env=environment, stderr=asyncio.subprocess.PIPE
        )
        tail = await asyncio.create_subprocess_shell(
            f"exec tail -n +1 -F {log} 2>/dev/null | grep -c NVRM",
            start_new_session=True,
            stdout=asyncio.subprocess.DEVNULL,
        )
        try:
            address = await address_of(agent)
            assert agent.stderr is not None
            rest = asyncio.ensure_future(drain(agent.stderr))
            await asyncio.sleep(7.0)  # the start: first publication, the end of the log that is there
            reference = [int(p.name) for p in Path("/proc").glob("[0-9]*") if _session(p) == tail.pid]
            uses, references = [use_of(agent.pid)], [use_of(*reference)]
            await asyncio.sleep(idle_s)
            uses.append(use_of(agent.pid))
            references.append(use_of(*reference))
            await grow(log, growth_s)
            lag_s = await until_read(address)
            uses.append(use_of(agent.pid))
            references.append(use_of(*reference))
            rest.cancel()
        finally:
            agent.terminate()
            os.killpg(tail.pid, 15)
            await asyncio.gather(agent.wait(), tail.wait())
    return uses, lag_s, references


def _session(process: Path) -> int:
    try:
        return int((process / "stat").read_text().rpartition(")")[2].split()[3])
    except OSError:
        return 0


async def grow(log: Path, seconds: float) -> None:
    """Append LINES lines, evenly over `seconds`."""
    per_chunk = LINES // CHUNKS
    for number in range(CHUNKS):
        with log.open("a") as file:
            file.write(chunk(101 + number * per_chunk, per_chunk))
        await asyncio.sleep(seconds / CHUNKS)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="shorter quiet time")
    quick = parser.parse_args().quick
    idle_s, growth_s = (8.0, 4.0) if quick else (120.0, 10.0)
    with tempfile.TemporaryDirectory() as folder:
        library = standin(Path(folder))
        sampled = sample_of(library) if library is not None else (0.0, 0.0, 0.0)
        uses, lag_s, references = asyncio.run(measure(Path(folder), library, idle_s, growth_s))
    start, quiet, grown = uses
    children = (quiet.children_s - start.children_s) / idle_s
    idle = (quiet.cpu_s - start.cpu_s) / idle_s + children
    reference_idle = (references[1].cpu_s - references[0].cpu_s) / idle_s
    met = quiet.rss_mib <= GOAL_MIB and idle <= GOAL_IDLE
    with_gpus = (
        f"{GPUS} GPUs of a stand-in, every {SAMPLE_S:.0f} s a process of {sampled[0]:.1f} MiB "
        f"(proportional {sampled[1]:.1f}) for {sampled[2] * 1000:.0f} CPU ms, "
        f"all children {children * 100:.2f} % of a core"
        if library is not None
        else "no C compiler, so no GPUs"
    )
    print(
        f"agent at rest: {quiet.rss_mib:.1f} MiB (proportional {quiet.pss_mib:.1f}), {idle * 100:.2f} % of a core "
        f"(tail -F | grep -c: "
        f"{references[1].rss_mib:.1f} MiB, {reference_idle * 100:.2f} %), goal {GOAL_MIB:.0f} MiB and "
        f"{GOAL_IDLE * 100:.1f} %, {'met' if met else 'missed'}; "
        f"{LINES} lines in {growth_s:.0f} s: {grown.cpu_s - quiet.cpu_s:.2f} CPU s "
        f"({references[2].cpu_s - references[1].cpu_s:.2f}), peak {grown.peak_mib:.1f} MiB, "
        f"read {lag_s:.1f} s after the last line; {with_gpus}"
    )


if __name__ == "__main__":
    main()
