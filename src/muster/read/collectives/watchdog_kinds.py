"""What the watchdog of torch and its launcher can report: one row per code."""

from __future__ import annotations

from muster.read.collectives.faults import Kind
from muster.resources.fault import Hint, Scope, Severity

TIMEOUT = Kind(
    "collective-timeout",
    "A collective did not end in time",
    Severity.FATAL,
    Scope.JOB,
    Hint.RESTART_APP,
    "Restart the job from its last checkpoint; query the state of NCCL or dump the flight recorder while it hangs.",
    confidence="low",
)
HOST_HANG = Kind(
    "host-hang",
    "The watchdog thread itself made no progress: a lock or a driver call on the host",
    Severity.FATAL,
    Scope.SOFTWARE,
    Hint.RESTART_APP,
    "Take stack dumps of the named ranks, then restart the job; look at the node only if it comes back there.",
    confidence="low",
)
BARRIER = Kind(
    "barrier-timeout",
    "Ranks did not come to a barrier",
    Severity.FATAL,
    Scope.JOB,
    Hint.RESTART_APP,
    "Look at the logs of the named ranks first.",
    confidence="low",
)
DESYNC = Kind(
    "collective-desync",
    "Ranks stand behind in, or never joined, the collectives of their group",
    Severity.FATAL,
    Scope.JOB,
    Hint.RESTART_APP,
    "Look at the logs of the named ranks first.",
    confidence="low",
)
MISMATCH = Kind(
    "collective-mismatch",
    "Ranks of one group were in different collectives",
    Severity.FATAL,
    Scope.APPLICATION,
    Hint.RESTART_APP,
    "Correct the program: its ranks took different paths.",
)
NCCL_ERROR = Kind(
    "nccl-error",
    "NCCL reported an error to torch",
    Severity.WARNING,
    Scope.JOB,
    Hint.INSPECT,
    "Read the NCCL warnings of all ranks; the earliest one is nearest to the cause.",
)
CUDA_ERROR = Kind(
    "cuda-error",
    "The watchdog met a CUDA error",
    Severity.WARNING,
    Scope.APPLICATION,
    Hint.RESTART_APP,
    "Look at the kernel log of the node for an XID of the same minute.",
    confidence="low",
)
STORE_GONE = Kind(
    "store-gone",
    "The store of the job ended while ranks still needed it",
    Severity.INFO,
    Scope.JOB,
    Hint.NONE,
    "Look for what ended the process that kept the store (rank 0); these ranks are its victims.",
)
PROCESS_EXIT = Kind(
    "process-exit",
    "A process of the job ended before the others",
    Severity.WARNING,
    Scope.APPLICATION,
    Hint.RESTART_APP,
    "Read the log of this rank first.",
)
