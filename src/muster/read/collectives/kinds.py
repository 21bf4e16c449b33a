"""What NCCL can report: one row per code. Completion codes mean what `enum ibv_wc_status` (libibverbs) says."""

from __future__ import annotations

from muster.read.collectives.faults import Kind
from muster.resources.fault import Hint, Scope, Severity

_PATH = (
    "Look at the port, cable and switch port of both ends, and run a pair test between them before anyone is blamed."
)
_PORT = "Take the node out of service; look at the port, its cable and the switch port."
_CONFIG = "Correct the set-up of the node or the job, and start it again."
_APP = "Restart the job; look for what ended first on the other side."

PORT_ERROR = Kind(
    "ib-port-error", "A network port went down", Severity.FATAL, Scope.LINK, Hint.INSPECT, _PORT
)  # fmt: skip
DEVICE_FATAL = Kind(
    "ib-device-fatal",
    "A network adapter reports a fatal error of its own",
    Severity.FATAL,
    Scope.NODE,
    Hint.REBOOT,
    "Take the node out of service and reboot it; replace the adapter if it comes back.",
)
QUEUE_ERROR = Kind(
    "ib-queue-error",
    "A queue of a network adapter failed",
    Severity.WARNING,
    Scope.SOFTWARE,
    Hint.INSPECT,
    "Look at the kernel log of the node for messages of the adapter.",
)
GID_CHANGE = Kind(
    "ib-gid-change",
    "The addresses of a network port changed while the job ran",
    Severity.WARNING,
    Scope.CONFIG,
    Hint.INSPECT,
    "Find out what reconfigured the interface (DHCP, a network agent) while the job ran.",
)
FABRIC_EVENT = Kind(
    "ib-fabric-event",
    "The subnet manager changed something",
    Severity.INFO,
    Scope.FABRIC,
    Hint.NONE,
    "Nothing has to be done unless transport errors follow.",
)
RETRY_EXCEEDED = Kind(
    "ib-retry-exceeded",
    "Nothing was acknowledged on the path between two nodes",
    Severity.FATAL,
    Scope.FABRIC,
    Hint.INSPECT,
    _PATH,
    confidence="low",
)
RNR_EXCEEDED = Kind(
    "ib-rnr-retry-exceeded",
    "The receiver was not ready for a long time",
    Severity.FATAL,
    Scope.SOFTWARE,
    Hint.INSPECT,
    "Look whether the process at the other end hangs or ended.",
    confidence="low",
)
RESPONSE_TIMEOUT = Kind(
    "ib-response-timeout",
    "No response came on the path between two nodes",
    Severity.FATAL,
    Scope.FABRIC,
    Hint.INSPECT,
    _PATH,
    confidence="low",
)
FLUSHED = Kind(
    "ib-flush",
    "Work was flushed because its connection had failed before",
    Severity.WARNING,
    Scope.LINK,
    Hint.NONE,
    "Look for the first error of this connection; this line is its consequence.",
)
LOCAL_PROTECTION = Kind(
    "ib-local-protection",
    "The adapter refused access to local memory",
    Severity.FATAL,
    Scope.CONFIG,
    Hint.INSPECT,
    "Look at peer memory modules, IOMMU and ACS settings of the node that reports it.",
    confidence="low",
)
REMOTE_ACCESS = Kind(
    "ib-remote-access",
    "The other end refused access to its memory",
    Severity.FATAL,
    Scope.SOFTWARE,
    Hint.INSPECT,
    "Look at the first error of the process at the other end; it may have ended before.",
    confidence="low",
)
COMPLETION_ERROR = Kind(
    "ib-completion-error",
    "A network operation failed",
    Severity.FATAL,
    Scope.SOFTWARE,
    Hint.INSPECT,
    "Look at the status word and at the kernel logs of both ends.",
    confidence="low",
)
VERBS_CALL = Kind(
    "ib-call-failed",
    "A call to the network adapter failed",
    Severity.FATAL,
    Scope.CONFIG,
    Hint.INSPECT,
    "Look at the named call and device: state of the port, address index, locked-memory limit.",
    confidence="low",
)
PEER_CLOSED = Kind(
    "socket-peer-closed",
    "The process at the other end closed its connection",
    Severity.WARNING,
    Scope.JOB,
    Hint.NONE,
    _APP,
)
SOCKET_RESET = Kind(
    "socket-reset", "A connection was reset by the other end", Severity.WARNING, Scope.JOB, Hint.NONE, _APP
)  # fmt: skip
SOCKET_REFUSED = Kind(
    "socket-refused",
    "Nobody listens at the other end",
    Severity.FATAL,
    Scope.JOB,
    Hint.INSPECT,
    "Look whether the process at the other end ran at that time, and at firewalls and the interface that was chosen.",
    confidence="low",
)
SOCKET_TIMEOUT = Kind(
    "socket-timeout",
    "The other end did not answer",
    Severity.FATAL,
    Scope.FABRIC,
    Hint.INSPECT,
    _PATH,
    confidence="low",
)
SOCKET_UNREACHABLE = Kind(
    "socket-unreachable",
    "There is no way to the other end",
    Severity.FATAL,
    Scope.CONFIG,
    Hint.INSPECT,
    "Look at routes and at the interface that NCCL chose (NCCL_SOCKET_IFNAME).",
    confidence="low",
)
FABRIC_LIBRARY = Kind(
    "ofi-request-failed",
    "A request of the libfabric plugin failed",
    Severity.FATAL,
    Scope.FABRIC,
    Hint.INSPECT,
    _PATH,
    confidence="low",
)
NVLS_BIND = Kind(
    "nvls-multicast-bind",
    "Switch multicast memory could not be bound over the GPUs of a node",
    Severity.FATAL,
    Scope.NODE,
    Hint.REBOOT,
    "Restart the Fabric Manager or reboot the node, and test it again with all of its GPUs.",
    confidence="low",
)
NVLS_SETUP = Kind(
    "nvls-setup",
    "Switch multicast could not be set up",
    Severity.FATAL,
    Scope.NODE,
    Hint.REBOOT,
    "Restart the Fabric Manager or reboot the node, and test it again with all of its GPUs.",
    confidence="low",
)
NVLS_MEMORY = Kind(
    "nvls-out-of-memory",
    "There was no GPU memory left for switch multicast",
    Severity.WARNING,
    Scope.APPLICATION,
    Hint.RESTART_APP,
    "Give the job more free GPU memory; the NVLink fabric is not concerned.",
)
CUDA_FAILURE = Kind(
    "cuda-failure",
    "A CUDA call inside NCCL failed",
    Severity.WARNING,
    Scope.APPLICATION,
    Hint.RESTART_APP,
    "Look at the kernel log of the node for an XID of the same minute, then restart the job.",
    confidence="low",
)
CUDA_HARDWARE = Kind(
    "cuda-hardware-error",
    "A CUDA call failed with an error of the GPU itself",
    Severity.FATAL,
    Scope.GPU,
    Hint.INSPECT,
    "Look at the kernel log of the node for the XID behind it.",
    confidence="low",
)
CUDA_NOT_READY = Kind(
    "cuda-system-not-ready",
    "CUDA does not start on the node because its NVLink fabric is not set up",
    Severity.FATAL,
    Scope.NODE,
    Hint.INSPECT,
    "Look at the Fabric Manager and at the fabric state that nvidia-smi shows, then test the node again.",
    confidence="low",
)
SHM_FULL = Kind(
    "shared-memory",
    "Shared memory could not be created",
    Severity.FATAL,
    Scope.CONFIG,
    Hint.INSPECT,
    "Give the container a larger /dev/shm and start the job again.",
)
NO_INTERFACE = Kind(
    "no-socket-interface",
    "NCCL found no network interface to use",
    Severity.FATAL,
    Scope.CONFIG,
    Hint.INSPECT,
    "Correct NCCL_SOCKET_IFNAME or the network of the pod.",
)
RANK_COUNT = Kind(
    "rank-count-mismatch",
    "The ranks do not agree on how many they are",
    Severity.FATAL,
    Scope.CONFIG,
    Hint.RESTART_APP,
    "Correct the launch (world size, ranks, addresses left over from another job) and start the job again.",
)
DUPLICATE_GPU = Kind(
    "duplicate-gpu",
    "Two ranks were put on one GPU",
    Severity.FATAL,
    Scope.CONFIG,
    Hint.RESTART_APP,
    "Give each rank its own GPU and start the job again.",
)
PLUGIN_LOAD = Kind(
    "net-plugin-load",
    "A network plugin was found but could not be loaded",
    Severity.WARNING,
    Scope.CONFIG,
    Hint.INSPECT,
    "Correct the libraries of the image; without the plugin NCCL falls back to a slower transport.",
)
GDR_DISABLED = Kind(
    "gdr-disabled",
    "The adapter cannot reach GPU memory directly",
    Severity.WARNING,
    Scope.CONFIG,
    Hint.INSPECT,
    "Load nvidia-peermem or use a driver with DMA-BUF, then test again.",
)
TRANSPORT_FALLBACK = Kind(
    "transport-fallback",
    "Another transport was used between nodes than expected",
    Severity.FATAL,
    Scope.CONFIG,
    Hint.INSPECT,
    "Find out why the expected transport was not taken (plugin, devices, environment); its numbers do not count.",
)
WARNING = Kind(
    "nccl-warning",
    "NCCL warned of something that this reader does not know",
    Severity.UNKNOWN,
    None,
    Hint.NONE,
    "Read the line; what it means for the nodes is not known.",
)
SEGFAULT = Kind(
    "segfault",
    "A process died inside a library",
    Severity.WARNING,
    Scope.SOFTWARE,
    Hint.RESTART_APP,
    "Restart the job; report the version of the library and the frames to its maintainers.",
)

STATUS: dict[int, tuple[str, Kind]] = {
    1: ("IBV_WC_LOC_LEN_ERR", COMPLETION_ERROR),
    2: ("IBV_WC_LOC_QP_OP_ERR", COMPLETION_ERROR),
    3: ("IBV_WC_LOC_EEC_OP_ERR", COMPLETION_ERROR),
    4: ("IBV_WC_LOC_PROT_ERR", LOCAL_PROTECTION),
    5: ("IBV_WC_WR_FLUSH_ERR", FLUSHED),
    6: ("IBV_WC_MW_BIND_ERR", COMPLETION_ERROR),
    7: ("IBV_WC_BAD_RESP_ERR", COMPLETION_ERROR),
    8: ("IBV_WC_LOC_ACCESS_ERR", LOCAL_PROTECTION),
    9: ("IBV_WC_REM_INV_REQ_ERR", REMOTE_ACCESS),
    10: ("IBV_WC_REM_ACCESS_ERR", REMOTE_ACCESS),
    11: ("IBV_WC_REM_OP_ERR", REMOTE_ACCESS),
    12: ("IBV_WC_RETRY_EXC_ERR", RETRY_EXCEEDED),
    13: ("IBV_WC_RNR_RETRY_EXC_ERR", RNR_EXCEEDED),
    14: ("IBV_WC_LOC_RDD_VIOL_ERR", COMPLETION_ERROR),
    15: ("IBV_WC_REM_INV_RD_REQ_ERR", REMOTE_ACCESS),
    16: ("IBV_WC_REM_ABORT_ERR", REMOTE_ACCESS),
    17: ("IBV_WC_INV_EECN_ERR", COMPLETION_ERROR),
    18: ("IBV_WC_INV_EEC_STATE_ERR", COMPLETION_ERROR),
    19: ("IBV_WC_FATAL_ERR", COMPLETION_ERROR),
    20: ("IBV_WC_RESP_TIMEOUT_ERR", RESPONSE_TIMEOUT),
    21: ("IBV_WC_GENERAL_ERR", COMPLETION_ERROR),
}
"""Number of a failed completion -> (its name in libibverbs, what it means here)."""

RESULTS = {
    1: "unhandled-cuda-error",
    2: "system-error",
    3: "internal-error",
    4: "invalid-argument",
    5: "invalid-usage",
    6: "remote-error",
    7: "in-progress",
    8: "timeout",
}
"""`ncclResult_t`, as the lines that pass an error upwards print it (`proxy.cc:698 -> 6`)."""
