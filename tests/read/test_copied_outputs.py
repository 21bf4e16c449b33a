"""Outputs as people copy them: prompts, farewells, stamps, several hosts; and what must be concluded all the same."""

from __future__ import annotations

from typing import Any

import pytest

from muster.errors import BadInputError
from muster.read import formats
from muster.read.source import Context
from tests.read.cases import as_input, holds

RULE = "+-----------------------------------------+------------------------+----------------------+"
TABLE = f"""{RULE}
| NVIDIA-SMI 570.86.10              Driver Version: 570.86.10      CUDA Version: 12.8     |
|-----------------------------------------+------------------------+----------------------+
| GPU  Name                 Persistence-M | Bus-Id          Disp.A | Volatile Uncorr. ECC |
| Fan  Temp   Perf          Pwr:Usage/Cap |           Memory-Usage | GPU-Util  Compute M. |
|                                         |                        |               MIG M. |
|=========================================+========================+======================|
|   0  NVIDIA H200                    On  |   00000000:0A:00.0 Off |                    0 |
| N/A   30C    P0             77W /  700W |       1MiB / 143771MiB |      0%      Default |
|                                         |                        |             Disabled |
{RULE}
|   1  NVIDIA H200                    On  |   00000000:1C:00.0 Off |                    5 |
| N/A   30C    P0             77W /  700W |       1MiB / 143771MiB |      0%      Default |
|                                         |                        |             Disabled |
{RULE}
"""
IBSTAT = """CA 'mlx5_3'
\tCA type: MT4129
\tNumber of ports: 1
\tPort 1:
\t\tState: Active
\t\tPhysical state: LinkUp
\t\tRate: 400
\t\tBase lid: 33
\t\tLMC: 0
\t\tSM lid: 2
\t\tPort GUID: 0x0200000000000003
\t\tLink layer: InfiniBand
"""
MLXLINK = """Operational Info
----------------
State                              : Active
Physical state                     : LinkUp
Speed                              : IB-NDR
Width                              : 4x
FEC                                : Standard_RS-FEC - (544,514)

Supported Info
--------------
Enabled Link Speed                 : 0x00000080 (NDR)
Supported Cable Speed              : 0x000000f1 (NDR,HDR,EDR,SDR)

Module Info
-----------
Cable Type                         : Optical Module (separated)
Temperature [C]                    : 55 [-10..80]
Rx Power Current [dBm]             : 1.3,0.8,1.0,1.2 [-9.2..7]
IB Cable Width                     : 1x,2x,4x
Rx LOS [per lane]                  : 0,0,0,0
"""
HEALTH_RULE = "+---------------------------+----------------------------------------------------------+"
HEALTH = f"""{HEALTH_RULE}
| Health Monitor Report                                                                |
+===========================+==========================================================+
| Overall Health            | Healthy                                                  |
{HEALTH_RULE}
"""
DESCRIBE = """Name:               node-5
Taints:             <none>
Unschedulable:      false
Conditions:
  Type    Status  LastHeartbeatTime                 LastTransitionTime                Reason        Message
  ----    ------  -----------------                 ------------------                ------        -------
  Ready   True    Mon, 03 Mar 2025 09:58:00 +0000   Mon, 03 Feb 2025 10:02:00 +0000   KubeletReady  kubelet is posting
Capacity:
  nvidia.com/gpu:     4
Allocatable:
  nvidia.com/gpu:     4
"""
WHOLE = {"table": TABLE, "ibstat": IBSTAT, "mlxlink": MLXLINK, "health": HEALTH, "describe": DESCRIBE}
ENDS = (
    "root@node-5:~# ",
    "root@node-5:~# exit\nlogout\nConnection to node-5 closed.\n",
    "[admin@node-5 ~]$ \n",
    "(base) me@node-5:/data/runs$ ",
    "\x1b[01;32mroot@node-5\x1b[00m:\x1b[01;34m~\x1b[00m# ",
    '\nScript done on 2025-03-03 10:00:00+00:00 [COMMAND_EXIT_CODE="0"]\n',
)
STAMPS = ("Mar 03 09:58:01 ", "Mar  3 09:58:01 ", "2025-03-03 09:58:01 ", "[2025-03-03 09:58:01] ")
STARTS = ("root@node-5:~# tool\n", "[root@node-5 ~]# tool -x 1\n", "$ tool\n")


def told(*texts: str, kind: str | None = None, context: Context | None = None) -> dict[str, Any]:
    inputs = [as_input(f"input{number}", text.encode()) for number, text in enumerate(texts)]
    return formats.read(inputs, context or {}, kind).plain()


def conclusions(report: dict[str, Any]) -> tuple[Any, ...]:
    faults = [(f["code"], f["severity"], f["hint"], f["count"]) for f in report["faults"]]
    return (
        report["kind"],
        report["truncated"],
        faults,
        [(v["of"], v["result"], v["reason"]) for v in report["verdicts"]],
    )


@pytest.mark.parametrize("name", WHOLE)
@pytest.mark.parametrize("end", ENDS)
def test_what_a_terminal_leaves_at_the_end_cuts_nothing(name: str, end: str) -> None:
    plain = told(WHOLE[name])
    assert not plain["truncated"]
    assert conclusions(told(WHOLE[name] + end)) == conclusions(plain)


@pytest.mark.parametrize("name", WHOLE)
@pytest.mark.parametrize("start", STARTS)
def test_a_prompt_in_front_changes_nothing(name: str, start: str) -> None:
    assert conclusions(told(start + WHOLE[name])) == conclusions(told(WHOLE[name]))


@pytest.mark.parametrize("stamp", STAMPS)
@pytest.mark.parametrize("name", ["table", "health"])
def test_a_stamp_in_front_of_each_line_changes_nothing(name: str, stamp: str) -> None:
    stamped = "".join(f"{stamp}{line}\n" for line in WHOLE[name].splitlines())
    assert conclusions(told(stamped)) == conclusions(told(WHOLE[name]))


@pytest.mark.parametrize("name", ["table", "health"])
def test_outputs_of_several_hosts_are_refused_by_name(name: str) -> None:
    both = "".join(f"{host}: {line}\n" for host in ("n-1", "n-2") for line in WHOLE[name].splitlines())
    with pytest.raises(BadInputError, match="several hosts \\(n-1, n-2\\)"):
        told(both)
    one = "".join(f"n-1: {line}\n" for line in WHOLE[name].splitlines())
    assert conclusions(told(one)) == conclusions(told(WHOLE[name]))


def test_a_table_that_ends_within_a_rule_is_cut() -> None:
    assert told(TABLE[:-20])["truncated"]
    assert not told(TABLE + "\nroot@n:~# dmesg\n[    1.5] usb 1-1: new device\n")["truncated"]


# ---------------------------------------------------------------- conclusions

GPU = "nvidia-smi"
FAULTS: dict[str, tuple[str, dict[str, Any]]] = {
    "handle-needs-reset": (
        "Unable to determine the device handle for GPU3: 0000:5A:00.0: GPU requires reset\n",
        {
            "code": "gpu-reset-required",
            "entity": {"kind": "gpu", "pci": "0000:5a:00.0", "index": 3},
            "severity": "fatal",
            "scope": "gpu",
            "hint": "reset-gpu",
        },
    ),
    "handle-unknown-error": (
        "Unable to determine the device handle for GPU3: 0000:5A:00.0: Unknown Error\n",
        {"code": "gpu-lost", "entity": {"pci": "0000:5a:00.0"}, "severity": "fatal", "hint": "reboot"},
    ),
    "handle-no-permission": (
        "Unable to determine the device handle for GPU 0000:5A:00.0: Insufficient Permissions\n",
        {"code": "nvml-access", "entity": {"kind": "node"}, "severity": "warning", "scope": "config"},
    ),
    "tool-missing": (
        "bash: nvidia-smi: command not found\n",
        {"code": "nvidia-smi-missing", "severity": "warning", "scope": "software", "hint": "inspect"},
    ),
    "tool-missing-in-container": (
        'exec failed: unable to start container process: exec: "nvidia-smi": executable file not found in $PATH\n',
        {"code": "nvidia-smi-missing", "severity": "warning"},
    ),
    "csv-all-cells-fail": (
        "index, pci.bus_id, temperature.gpu, remapped_rows.pending, remapped_rows.failure\n"
        "0, 00000000:0A:00.0, 33, No, No\n"
        "1, 00000000:1C:00.0, [Unknown Error], [Unknown Error], [Unknown Error]\n",
        {"code": "gpu-unreadable", "entity": {"pci": "0000:1c:00.0"}, "severity": "fatal", "confidence": "low"},
    ),
    "csv-one-cell-fails": (
        "index, pci.bus_id, temperature.gpu, remapped_rows.pending, remapped_rows.failure\n"
        "1, 00000000:1C:00.0, [Unknown Error], No, No\n",
        {"code": "gpu-unreadable", "entity": {"pci": "0000:1c:00.0"}, "severity": "warning"},
    ),
    "csv-without-permission": (
        "index, pci.bus_id, temperature.gpu, remapped_rows.pending, remapped_rows.failure\n"
        "1, 00000000:1C:00.0, [Insufficient Permissions], [Insufficient Permissions], [Insufficient Permissions]\n",
        {"code": "gpu-readings-blocked", "entity": {"pci": "0000:1c:00.0"}, "severity": "warning", "hint": "inspect"},
    ),
    "watch-on-a-switch": (
        HEALTH.replace("Healthy", "Failure").removesuffix(f"{HEALTH_RULE}\n")
        + "| NvSwitch                  |                                                          |\n"
        "| -> 2                      | Failure                                                  |\n"
        "|    -> Errors              |                                                          |\n"
        "|       -> NVSwitch fatal   | Failure                                                  |\n"
        f"|                           | Something that no table knows                            |\n{HEALTH_RULE}\n",
        {"entity": {"kind": "nvswitch", "index": 2}, "severity": "fatal", "hint": "inspect"},
    ),
    "recovery-action-of-the-watch": (
        HEALTH.replace("Healthy", "Failure").removesuffix(f"{HEALTH_RULE}\n")
        + "| GPU                       |                                                          |\n"
        "| -> 6                      | Failure                                                  |\n"
        "|    -> Errors              |                                                          |\n"
        "|       -> Driver           | Failure                                                  |\n"
        f"|                           | GPU 6 recovery action: reboot the node                   |\n{HEALTH_RULE}\n",
        {"code": "DCGM_FR_GPU_RECOVERY_REBOOT", "entity": {"kind": "gpu", "index": 6}},
    ),
    "half-of-the-lanes": (
        MLXLINK.replace("Width                              : 4x", "Width                              : 2x"),
        {"code": "port-width-low", "severity": "warning", "scope": "link", "hint": "inspect"},
    ),
    "module-of-ethtool-not-ready": (
        "[root@n ~]# ethtool -m ens9np0\n\tIdentifier                      : 0x19 (OSFP 8X Pluggable Transceiver)\n"
        "\tModule State                    : 0x01 (ModuleLowPwr)\n"
        "\tModule temperature              : 35.00 degrees C\n",
        {"code": "optic-module-state", "entity": {"interface": "ens9np0"}, "severity": "fatal"},
    ),
    "adapter-by-address": (
        "pci/0000:5e:00.0:\n  reporter fw\n    state healthy error 0 recover 0\n"
        "pci/0000:9f:00.0:\n  reporter fw_fatal\n    state error error 1 recover 0\n",
        {"code": "nic-fw-fatal", "entity": {"kind": "nic", "pci": "0000:9f:00.0"}, "severity": "fatal"},
    ),
    "driver-pod-crashes": (
        "NAMESPACE      NAME                           READY   STATUS       RESTARTS      AGE   IP    NODE\n"
        "gpu-operator   nvidia-driver-daemonset-77x    0/1     Init:Error   4 (2m ago)    9m    <none>   node-5\n",
        {"code": "gpu-stack-crash", "entity": {"kind": "pod", "node": "node-5"}, "scope": "software"},
    ),
    "job-pod-crashes": (
        "NAMESPACE   NAME      READY   STATUS             RESTARTS      AGE   IP         NODE\n"
        "jobs        eval-1    0/1     CrashLoopBackOff   4 (2m ago)    9m    10.1.2.3   node-5\n",
        {"code": "container-crash", "entity": {"kind": "pod", "node": "node-5"}, "scope": "application"},
    ),
    "away-and-back": (
        DESCRIBE + "Events:\n  Type     Reason        Age                From             Message\n"
        "  ----     ------        ----               ----             -------\n"
        "  Warning  NodeNotReady  9m (x2 over 50m)   node-controller  Node node-5 status is now: NodeNotReady\n",
        {"code": "node-not-ready", "severity": "warning", "count": 2, "recovered": True},
    ),
    "away-by-age": (
        "LAST SEEN   TYPE     REASON         OBJECT        MESSAGE\n"
        "9m          Normal   NodeReady      node/node-6   Node node-6 status is now: NodeReady\n"
        "1m          Normal   NodeNotReady   node/node-6   Node node-6 status is now: NodeNotReady\n",
        {"code": "node-not-ready", "entity": {"kind": "node", "name": "node-6"}, "severity": "fatal"},
    ),
    "back-by-age": (
        "LAST SEEN   TYPE     REASON         OBJECT        MESSAGE\n"
        "1m          Normal   NodeReady      node/node-6   Node node-6 status is now: NodeReady\n"
        "9m          Normal   NodeNotReady   node/node-6   Node node-6 status is now: NodeNotReady\n",
        {"code": "node-not-ready", "entity": {"kind": "node", "name": "node-6"}, "severity": "warning"},
    ),
    "number-of-dcgm-unknown": (
        DESCRIBE.replace(
            "Capacity:",
            "  AcceleratedHardwareReady  False  Mon, 03 Mar 2025 09:58:00 +0000   Mon, 03 Mar 2025 09:02:00 +0000"
            "   DCGMHealthCode140   DCGM detected issues with error code 140\nCapacity:",
        ),
        {"code": "dcgm-health-code-140", "severity": "unknown", "hint": "inspect"},
    ),
    "number-of-dcgm-known": (
        DESCRIBE.replace(
            "Capacity:",
            "  AcceleratedHardwareReady  False  Mon, 03 Mar 2025 09:58:00 +0000   Mon, 03 Mar 2025 09:02:00 +0000"
            "   DCGMHealthCode80   DCGM detected issues with error code 80\nCapacity:",
        ),
        {"code": "DCGM_FR_ROW_REMAP_FAILURE", "confidence": "low"},
    ),
    "gpu-hook-of-the-runtime": (
        "Name:             eval-3\nNamespace:        jobs\nNode:             node-5/10.1.0.5\n"
        "Status:           Pending\n"
        "Events:\n  Type     Reason  Age   From     Message\n  ----     ------  ----  ----     -------\n"
        "  Warning  Failed  2m    kubelet  Error: failed to create containerd task: OCI runtime create failed: runc"
        " create failed: error running prestart hook #0: exit status 1, stderr: nvidia-container-cli:"
        " initialization error: nvml error: driver/library version mismatch\n",
        {"code": "container-start", "entity": {"kind": "pod", "node": "node-5"}, "scope": "node", "hint": "inspect"},
    ),
    "plugin-without-library": (
        "2025/03/03 09:58:00 Error: failed to initialize NVML: ERROR_LIBRARY_NOT_FOUND\n"
        "2025/03/03 09:58:00 If this is a GPU node, did you set the docker default runtime to `nvidia`?\n",
        {"code": "nvml-failed", "kind": "kubernetes", "severity": "fatal", "scope": "node"},
    ),
}


@pytest.mark.parametrize("name", FAULTS)
def test_the_fault_is_concluded(name: str) -> None:
    text, wanted = FAULTS[name]
    found = told(text)["faults"]
    assert any(holds(wanted, fault) for fault in found), found


COPPER = (
    "$ ethtool -m ens9np0\n\tIdentifier                                : 0x11 (QSFP28)\n"
    "\tConnector                                 : 0x23 (No separable connector)\n{more}"
    "\tRcvr signal avg optical power(Channel 1)  : 0.0000 mW / -inf dBm\n"
    "\tModule temperature                        : 0.00 degrees C / 32.00 degrees F\n"
)
NOTHING_WRONG: dict[str, str] = {
    "copper-by-transceiver-type": COPPER.format(
        more="\tTransceiver type                          : 100G Ethernet: 100G Base-CR4\n"
    ),
    "copper-by-attenuation": COPPER.format(more="\tAttenuation at 5.0GHz                     : 6db\n"),
    "module-of-ethtool-ready": "$ ethtool -m ens9np0\n\tIdentifier      : 0x19 (OSFP 8X Pluggable Transceiver)\n"
    "\tModule State                    : 0x03 (ModuleReady)\n\tModule temperature              : 35.00 degrees C\n",
    "frames-that-nobody-listens-to": "7: ens9np0: <BROADCAST,MULTICAST,UP,LOWER_UP> mtu 9000 qdisc mq state UP mode"
    " DEFAULT group default qlen 1000\n    RX:  bytes packets errors dropped  missed   mcast\n"
    "    900000000 900000      0    11       0      12\n"
    "    TX:  bytes packets errors dropped carrier collsns\n    900000000 900000      0       0       0       0\n",
    "splitter-with-two-lanes": MLXLINK.replace(": 4x", ": 2x").replace("1x,2x,4x", "1x,2x"),
    "two-healthy-adapters": "pci/0000:5e:00.0:\n  reporter fw\n    state healthy error 0 recover 0\n"
    "pci/0000:9f:00.0:\n  reporter fw\n    state healthy error 0 recover 0\n",
    "all-pods-run": "NAMESPACE   NAME     READY   STATUS    RESTARTS   AGE\n"
    "jobs        eval-1   1/1     Running   0          9m\n",
}


@pytest.mark.parametrize("name", NOTHING_WRONG)
def test_no_fault_is_concluded(name: str) -> None:
    assert told(NOTHING_WRONG[name])["faults"] == []


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        ("ib", "ibpanic: [77] main: stat of IB device 'mlx5_0' failed: No such file or directory\n"),
        ("optics", "-E- Failed to open device: mlx5_77, no such device\n"),
        ("kubernetes", 'Error from server (NotFound): nodes "node-77" not found\n'),
    ],
)
def test_a_text_without_a_reading_passes_nothing(kind: str, text: str) -> None:
    report = told(text, kind=kind)
    assert [verdict["result"] for verdict in report["verdicts"]] == ["UNKNOWN"]
    assert report["verdicts"][0]["reason"] == "nothing-read"
    assert report["next"] != "Nothing has to be done."


def test_the_watch_is_blamed_for_its_heaviest_trouble() -> None:
    text, _ = FAULTS["watch-on-a-switch"]
    light = (
        "| GPU                       |                                                          |\n"
        "| -> 0                      | Warning                                                  |\n"
        "|    -> Errors              |                                                          |\n"
        "|       -> PCIe system      | Warning                                                  |\n"
        "|                           | Detected more than 8 PCIe replays per minute             |\n"
    )
    report = told(text.replace("| NvSwitch ", f"{light}| NvSwitch ", 1))
    (watch,) = [verdict for verdict in report["verdicts"] if verdict["of"] == "dcgm-health"]
    assert (watch["result"], watch["reason"]) == ("FAIL", "nvswitch-watch")


def test_a_kernel_log_beside_a_description_names_the_gpu() -> None:
    condition = (
        "  GpuXidError   True  Mon, 03 Mar 2025 09:58:00 +0000   Mon, 03 Mar 2025 09:02:00 +0000"
        "   XidError   Xid 79 was seen\nCapacity:"
    )
    log = "[  900.5] NVRM: Xid (PCI:0000:5a:00): 79, pid=7, name=x, GPU has fallen off the bus.\n"
    report = told(DESCRIBE.replace("Capacity:", condition), log)
    assert report["kind"] == "kubernetes"
    (fault,) = report["faults"]
    assert holds({"code": 79, "entity": {"kind": "gpu", "pci": "0000:5a:00.0"}, "severity": "fatal"}, fault)
    quiet = told(DESCRIBE, "[  900.5] NVRM: loading NVIDIA UNIX x86_64 Kernel Module  570.86.10\n")
    assert quiet["faults"] == []
    assert any(v["of"] == "node" and v["result"] != "PASS" for v in quiet["verdicts"])


def test_a_refused_drain_names_each_cause_by_itself() -> None:
    report = told(
        "node/node-5 cordoned\n"
        'error: unable to drain node "node-5" due to error: [cannot delete Pods with local storage'
        " (use --delete-emptydir-data to override): jobs/eval-1, jobs/eval-2, cannot delete DaemonSet-managed Pods"
        " (use --ignore-daemonsets to ignore): kube-system/net-1], continuing command...\n"
    )
    (verdict,) = report["verdicts"]
    assert "jobs/eval-1, jobs/eval-2. Use --delete-emptydir-data" in verdict["message"]


def test_two_counters_of_one_trouble_weigh_as_the_heavier() -> None:
    first = (
        "$ ethtool -S ens9np0\nNIC statistics:\n"
        "     tx_pause_storm_warning_events: 1\n     tx_pause_storm_error_events: 0\n"
    )
    later = first.replace("events: 1", "events: 9").replace("events: 0", "events: 2")
    (fault,) = told(first, later)["faults"]
    assert (fault["code"], fault["severity"], fault["count"]) == ("roce-pause-storm", "fatal", 10)
