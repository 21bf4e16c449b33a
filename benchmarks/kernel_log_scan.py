"""How fast a large, mostly boring kernel log is read, beside `grep -cE` over the same file.

    python benchmarks/kernel_log_scan.py [--quick]

Prints one line. Both run alternating, three times; medians of CPU time are compared, so that other work on the
machine hardly matters. Goal: 200 MB/s on one core.
"""

from __future__ import annotations

import argparse
import random
import re
import resource
import statistics
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from muster.read import formats
from muster.read.kernel.prefilter import NEEDLES
from muster.read.source import SAMPLE_BYTES, Input

BORING = (
    "[%12.6f] usb 1-%d: new high-speed USB device number %d using xhci_hcd\n",
    "[%12.6f] IPv6: ADDRCONF(NETDEV_CHANGE): veth%dabc: link becomes ready %d\n",
    '[%12.6f] audit: type=1400 audit(1700000000.1:%d): apparmor="STATUS" operation="profile_load" pid=%d comm="x"\n',
    "[%12.6f] docker0: port %d(veth1234) entered blocking state %d\n",
    "[%12.6f] cni0: port %d(veth77aa) entered forwarding state %d\n",
    "[%12.6f] systemd[1]: Started session-%d.scope - Session %d of User root.\n",
)
FAULT = "[%12.6f] NVRM: Xid (PCI:0000:%02x:00): 31, pid=%d, name=python3, Ch 00000008, intr 00000000. MMU Fault\n"
FAULT_EVERY = 20_000


def generate(path: Path, megabytes: int) -> None:
    rng = random.Random(7)
    seconds, size, number = 1.0, 0, 0
    with path.open("w") as file:
        while size < megabytes * 1_000_000:
            number += 1
            seconds += rng.random()
            pattern = FAULT if number % FAULT_EVERY == 0 else rng.choice(BORING)
            size += file.write(pattern % (seconds, rng.randrange(200), rng.randrange(100_000)))


def ours(path: Path) -> float:
    def chunks() -> Iterator[bytes]:
        with path.open("rb", buffering=0) as file:
            while chunk := file.read(64 * 1024):
                yield chunk

    with path.open("rb") as file:
        sample = file.read(SAMPLE_BYTES)
    start = time.process_time()
    formats.read([Input(str(path), sample, chunks)], {}, "kernel-log")
    return time.process_time() - start


def grep(path: Path) -> float:
    pattern = "|".join(re.escape(needle.decode()) for needle in NEEDLES)
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run(["grep", "-cE", pattern, str(path)], check=False, capture_output=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="a smaller log")
    megabytes = 40 if parser.parse_args().quick else 200
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "kernel.log"
        generate(path, megabytes)
        rounds = [(ours(path), grep(path)) for _ in range(3)]
        size = path.stat().st_size / 1e6
    mine, theirs = (statistics.median(times) for times in zip(*rounds, strict=True))
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(
        f"kernel log scan: {size / mine:.0f} MB/s over {size:.0f} MB, grep -cE {size / theirs:.0f} MB/s,"
        f" ratio {theirs / mine:.2f}, peak {peak:.0f} MiB, goal 200 MB/s"
    )


if __name__ == "__main__":
    main()
