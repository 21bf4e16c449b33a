"""How sure this package is of a sample, and in which form a text is."""

from __future__ import annotations

import re

from muster.read.fabric_ports.lines import lines_of
from muster.read.kubernetes import get_tables, log_lines
from muster.read.kubernetes.log_lines import Said
from muster.read.source import text_lines

KIND = "kubernetes"
_KINDS = "Node|NodeList|Pod|PodList|Event|EventList|ResourceSlice|ResourceSliceList|List"
_MANIFEST = re.compile(
    rf"^(?:apiVersion: ?\S{{1,60}}|kind: ?(?:{_KINDS}))\s*$|\"kind\": ?\"(?:{_KINDS})\"|\"apiVersion"
    rf"\": ?\"(?:v1|resource\.k8s\.io/\w+|events\.k8s\.io/v1)\"",
    re.MULTILINE,
)
_STATUS = re.compile(
    r"^[ -]{0,12}\"?last(?:Transition|Heartbeat)Time\"?: ?\"?\d{4}-|\"lastTransitionTime\": ?\""
    r"|^ {0,8}(?:allocatable|capacity):\s*\n(?: {1,12}\S{1,100}: .{1,40}\n){0,40}? {1,12}[a-z.]{3,60}/\S{1,60}: \"\d",
    re.MULTILINE,
)
_DESCRIBE = re.compile(
    r"^Name:\s{1,40}\S{1,253}\s{0,8}\nNamespace:\s{1,40}\S|^\s{1,8}Restart Count:\s{1,20}\d|"
    r"^\s{0,8}Type\s{1,60}Status\s{1,60}LastHeartbeatTime|^(?:Taints|Unschedulable|Allocatable"
    r"|Non-terminated Pods|QoS Class):"
    r"|^\s{0,8}\S{2,60}\s{1,60}(?:True|False|Unknown)\s{1,60}[A-Z][a-z]{2}, \d{2} [A-Z][a-z]{2} \d{4} "
    r"|^\s{1,8}Type\s{1,20}Reason\s{1,40}Age\s{1,40}From",
    re.MULTILINE,
)
_DRAIN = re.compile(
    r"[Ee]victing pod|/pods/[a-z0-9.-]{1,253}/eviction\S{0,60} (?:.{0,20} )?429\b|error when "
    r"(?:evicting|deleting) pods?[ /]|unable to drain node|error when waiting for pod"
    r"|^node/\S{1,200} (?:drained|cordoned|already cordoned|evicted)|^pod/\S{1,300} evicted",
    re.MULTILINE,
)
_WRITER = re.compile(
    r"(?:kubelet|node-problem-detector|kube-[a-z]{3,30}|nvidia-device-plugin[a-z0-9-]{0,40})(?:\["
    r"\d{1,9}\])?:"
    r"|If this is a GPU node, did you|Starting OS watcher|Retr(?:ei|ie)ving plugins"
    r"|^[IWEF]\d{4} \d{2}:\d{2}:\d{2}\.\d{3,6}\s{1,8}\d{1,9} \S{1,60}\.go:\d",
    re.MULTILINE,
)

_WORDS = (
    "cannot be fulfilled",
    "XidCriticalError",
    "kipping ",
    "gnoring ",
    "nhealthy",
    "marked healthy",
    "NVML",
    "nvml",
    "evices found",
    "GPUs",
    "evices unavailable",
    "llocate failed",
    "ndpoint",
    "evice plugin",
    "PLEG",
    "untime",
    "not ready",
    "NodeNotReady",
    "stopped posting",
    "viction manager",
    "Status:True",
    "is now: True",
)
"""One of them is in every line that `log_lines` knows; looking for them costs far less than its patterns."""


def score(sample: bytes) -> float:
    """1 for what kubectl prints; for log lines the more, the fewer lines of others stand between them."""
    lines = text_lines(sample, 2000)
    text = "\n".join(line[:4000] for line in lines)
    if is_manifest(text) or _DESCRIBE.search(text) or any(get_tables.header_of(line) for line in lines):
        return 1.0
    if _DRAIN.search(text):
        return 1.0
    if not any(word in text for word in _WORDS):
        return 0.0
    found = log_lines.parse(lines_of(text))
    if not found or ({entry.said for entry in found} == {Said.NVML_FAILED} and not _WRITER.search(text)):
        return 0.0
    if "kernel:" in text or "NVRM:" in text:
        return 0.4
    return 1.0 if _WRITER.search(text) or 5 * len(found) >= len([line for line in lines if line.strip()]) else 0.5


def is_manifest(text: str) -> bool:
    """YAML or JSON of Kubernetes objects, or of a part of a node's status."""
    head = text[:65536]
    return _MANIFEST.search(head) is not None or _STATUS.search(head) is not None
