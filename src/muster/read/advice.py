"""What to do about a fault, as one sentence for the person on call."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from muster.resources.fault import Hint, Severity


def subject(entity: Mapping[str, Any]) -> str:
    """`GPU 0000:9b:00.0`, `NVLink 14 of GPU 0000:d8:00.0`, `the node`, ..."""
    where = entity.get("pci") or entity.get("uuid") or entity.get("device") or entity.get("name")
    kind = str(entity.get("kind"))
    if where is None and kind in ("gpu", "nvlink") and entity.get("index") is not None:
        where = str(entity["index"])
    if kind == "node":
        text = f"node {entity['name']}" if entity.get("name") else "the node"
    elif kind == "nvlink":
        text = f"NVLink {entity.get('link')} of GPU {where or 'of unknown address'}"
    elif kind in ("gpu", "nic"):
        where = where or entity.get("interface")
        minor = entity.get("minor")
        where = where or (f"with minor number {minor}" if minor is not None else "of unknown address")
        text = f"{'GPU' if kind == 'gpu' else 'adapter'} {where}"
    elif kind in ("nvswitch", "nvswitch-port"):
        port = entity.get("port", entity.get("link"))
        text = f"NVSwitch {where or 'of unknown address'}" + (f" port {port}" if port is not None else "")
    elif kind == "link":
        ends = [str(end) for end in entity.get("between") or ()]
        text = f"the path between {ends[0]} and {ends[1]}" if len(ends) == 2 else "the path"
    elif kind == "job":
        text = f"job {entity['name']}" if entity.get("name") else "the job"
    elif kind == "process":
        text = f"process {entity['pid']}" if entity.get("pid") is not None else "the process"
    else:
        text = f"{kind.replace('-', ' ')} {where or 'of unknown name'}"
    return f"{text} on {entity['node']}" if entity.get("node") else text


def advice(hint: Hint, severity: Severity, entity: Mapping[str, Any], details: Mapping[str, Any]) -> str:
    """One sentence: what to do next about a fault of `entity`."""
    who = subject(entity)
    match hint:
        case Hint.NONE:
            if details.get("act_only_if"):
                return "Nothing has to be done unless Xid 154 follows on the same GPU."
            if severity is Severity.UNKNOWN:
                return f"What this means for {who} is not known; nothing is done by itself."
            return "Nothing has to be done."
        case Hint.RESTART_APP:
            if details.get("contained"):
                return f"Restart the application; if it comes back, look at the ECC and remap counters of {who}."
            return "Restart the application; look at its code if the fault comes back."
        case Hint.RESET_GPU:
            if details.get("urgency") == "when-idle":
                return f"Reset {who} when it is idle; running work is safe until then."
            far_end = " Look at the far end of the link as well." if details.get("suspect") == "peer" else ""
            device = "the GPUs behind it" if entity.get("kind") in ("nvswitch", "nvswitch-port") else "the GPU"
            where = subject({**entity, "kind": "gpu"}) if entity.get("kind") == "nvlink" else who
            return f"Drain the work off {where} and reset {device}; reboot the node if the reset fails.{far_end}"
        case Hint.REBOOT:
            node = who if entity.get("kind") == "node" else "the node"
            return (
                f"Take {node} out of service and reboot it; if {who} fails again, have a person check the hardware."
            )
        case Hint.REPLACE:
            return f"Take the node out of service and have {who} replaced."
        case Hint.INSPECT:
            if details.get("suspect") == "peer":
                return f"Look at the far end of {who} first: the line points there."
            if details.get("role") == "secondary":
                return f"Search for the cause at the far end of {who}; this GPU is the victim."
            if details.get("catalogue_class") == "stalls_traffic":
                return f"Look for Xid 45 or 74 and failed jobs in the same minute; {who} alone is no reason to drain."
            if severity is Severity.UNKNOWN:
                return f"Look at {who}: what this means is not known, and nothing is done by itself."
            return f"Have a person look at {who}, and run a diagnostic before anything is replaced."
