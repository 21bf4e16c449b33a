"""The worker of one node: listens for the runs of a coordinator and carries them out, one at a time.

`python -m muster.workloads worker --listen 0.0.0.0:7470 --token-file F --node NAME`. It lives through whatever its
programs do, keeps the last results, and ends within five seconds when it is asked to (SIGTERM), with its run.

Requests (JSON, signed both ways, see `signing`): `GET /state`, `POST /runs`, `GET /runs/ID?wait_s=N` and
`DELETE /runs/ID`.
"""

from __future__ import annotations

import argparse
import os
import secrets
import shutil
import signal
import sys
import tempfile
import threading
import time
import traceback
from collections.abc import Sequence
from pathlib import Path

from muster.workloads.run_spec import SpecError, host_and_port
from muster.workloads.signing import Gate
from muster.workloads.worker_http import Server, Worker
from muster.workloads.worker_processes import become_subreaper, die_with_parent, hide_memory
from muster.workloads.worker_runs import Runs

STOP_WITHIN_S = 4.0
TOKEN_LIMIT_BYTES = 4096


def _options(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="muster.workloads worker", description=__doc__)
    parser.add_argument("--listen", default="0.0.0.0:7470", help="host:port; port 0 takes a free one")
    parser.add_argument("--token-file", type=Path, required=True, help="file with the token of the certification")
    parser.add_argument("--node", required=True, help="name of this node")
    parser.add_argument("--device", choices=("auto", "cpu", "cuda"), default="auto")
    parser.add_argument("--ranks", type=int, default=0, help="ranks on this node; 0: one per GPU, one on a CPU")
    parser.add_argument("--allow-injection", action="store_true", help="act out faults that runs ask for")
    parser.add_argument("--port-file", type=Path, help="where the port is written once the worker listens")
    parser.add_argument("--parent", type=int, default=0, help="end when this process, which started the worker, ends")
    return parser.parse_args(arguments)


def main(arguments: Sequence[str]) -> int:
    """The verb `worker`. Ends with 0 after SIGTERM, with 2 for options that cannot be used."""
    options = _options(arguments)
    try:
        token = options.token_file.read_bytes()[:TOKEN_LIMIT_BYTES].decode().strip()
        host, colon, port = options.listen.rpartition(":")
        address = (host, 0) if colon and port == "0" else host_and_port(options.listen)
        incarnation = secrets.token_hex(8)
        gate = Gate(token, options.node, incarnation, time.time)
    except (OSError, ValueError, SpecError) as error:
        print(f"The worker cannot start: {error}", file=sys.stderr)
        return 2
    if options.parent:
        die_with_parent(options.parent)
    # Programs run as the same user, and the token is not for them.
    hide_memory()
    become_subreaper()
    try:
        scratch = Path(tempfile.mkdtemp(prefix="muster-worker-"))
    except OSError as error:
        print(f"The worker cannot start: it needs a folder for temporary files: {error}", file=sys.stderr)
        return 2
    runs = Runs(scratch)
    wishes = (options.device, options.ranks, options.allow_injection)
    worker = Worker(runs, gate, token, options.node, incarnation, *wishes)
    try:
        server = Server(address, worker)
    except OSError as error:
        shutil.rmtree(scratch, ignore_errors=True)
        print(f"The worker cannot listen on {options.listen}: {error}", file=sys.stderr)
        return 2
    threading.Thread(target=_tend, args=(runs, options.device != "cpu"), daemon=True).start()
    if options.port_file is not None:
        part = options.port_file.with_name(options.port_file.name + ".part")
        part.write_text(str(server.server_address[1]))
        part.replace(options.port_file)
    stopping = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stopping.set())
    threading.Thread(target=server.serve_forever, daemon=True).start()
    stopping.wait()
    runs.close(STOP_WITHIN_S)
    shutil.rmtree(scratch, ignore_errors=True)
    return 0


def _tend(runs: Runs, count_gpus: bool) -> None:
    try:
        runs.tend(count_gpus=count_gpus)
    except BaseException:
        # A worker that cannot start runs any more must not look alive; whoever started it starts it again.
        traceback.print_exc()
        os._exit(1)
