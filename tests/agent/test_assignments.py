"""Which pods hold which GPUs: the kubelet's checkpoints, its API over real HTTP/2, names of devices of every kind."""

from __future__ import annotations

import asyncio
import contextlib
import json
import sys
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from muster.agent import assignments
from muster.agent.assignments import checkpoints, pod_resources
from muster.agent.assignments.assemble import Held, Unassignable
from muster.agent.assignments.assemble import assignments as assemble
from muster.agent.assignments.config import AssignmentsConfig, Source
from muster.agent.assignments.devices import KnownGpus, gpu_of, gpu_of_claim, is_gpu, minor_of
from muster.agent.assignments.monitor import AssignmentsMonitor
from muster.agent.assignments.pods import from_log_folders, uid_of
from muster.agent.monitor import Look, NodeFacts
from muster.clock import SystemClock
from muster.errors import BadInputError
from muster.resources.node_health import GpuAssignment
from tests.agent.pod_resources_server import PodResourcesServer, pod, response

T0 = datetime(2026, 3, 1, 12, 0, tzinfo=UTC)
FACTS = NodeFacts(boot_id="b", booted_at=None, gpus=())
G0, G1 = "GPU-00000000-0000-0000-0000-000000000000", "GPU-11111111-1111-1111-1111-111111111111"
MIG = "MIG-22222222-2222-2222-2222-222222222222"
A, B, C = (f"{letter * 8}-0000-4000-8000-000000000000" for letter in "abc")
KNOWN = KnownGpus({0: G0, 1: G1}, {MIG: G1})


# Devices


@pytest.mark.parametrize(
    ("device", "gpu"),
    [
        (G0, G0),
        (f"{G0}::7", G0),
        (MIG, G1),
        (f"{MIG}::0", G1),
        (f"MIG-{G1}/7/0", G1),
        ("nvidia0", G0),
        ("nvidia1/gi3", G1),
        ("nvidia0/vgpu2", G0),
        ("nvidia9", None),
        ("MIG-99999999-2222-2222-2222-222222222222", None),
        ("0", None),
        ("GPU-junk", None),
        ("", None),
    ],
)
def test_devices_of_plugins(device: str, gpu: str | None) -> None:
    assert gpu_of(device, KNOWN) == gpu


@pytest.mark.parametrize(
    ("device", "gpu"),
    [("gpu-0", G0), ("gpu-1-mig-19-4-1", G1), ("gpu-7", None), ("gpu-vfio-0", None), (G1, G1)],
)
def test_devices_of_claims(device: str, gpu: str | None) -> None:
    assert gpu_of_claim(device, KNOWN) == gpu


@given(st.text(max_size=60))
def test_any_device_is_a_known_gpu_or_none(device: str) -> None:
    assert gpu_of(device, KNOWN) in (None, G0, G1) or device.startswith(("GPU-", "MIG-GPU-"))


def test_which_resources_are_gpus() -> None:
    resources = AssignmentsConfig().resources
    assert is_gpu("nvidia.com/gpu", "nvidia0", resources)
    assert is_gpu("nvidia.com/mig-1g.10gb", MIG, resources)
    assert is_gpu("example.com/whole-h100", G0, resources)
    assert not is_gpu("rdma/hca", "mlx5_0", resources)


def test_the_drivers_file_tells_number_and_uuid() -> None:
    text = f"Model: \t\t NVIDIA H100\nGPU UUID: \t {G0}\nBus Location: \t 0000:19:00.0\nDevice Minor: \t 3\n"
    assert minor_of(text) == (3, G0)
    assert minor_of(text.replace(G0, "GPU-????????-????-????-????-????????????")) is None
    assert minor_of("\x00") is None


# Checkpoints


def checkpoint(*entries: dict[str, Any]) -> bytes:
    data = {"PodDeviceEntries": list(entries) or None, "RegisteredDevices": {"nvidia.com/gpu": [G0, G1]}}
    return json.dumps({"Data": data, "Checksum": 1234}).encode()


def entry(uid: str, resource: str, devices: Any) -> dict[str, Any]:
    return {
        "PodUID": uid,
        "ContainerName": "main",
        "ResourceName": resource,
        "DeviceIDs": devices,
        "AllocResp": "CkIKFk5WSURJQV9WSVNJQkxFX0RFVklDRVM=",
    }


def claims(*listed: dict[str, Any]) -> bytes:
    inner = {"kind": "DRACheckpoint", "apiVersion": "checkpoint.dra.kubelet.k8s.io/v1", "Entries": list(listed)}
    return json.dumps({"Data": json.dumps(inner), "Checksum": 99}).encode()


def claim(pods: list[str], driver: str, *devices: str) -> dict[str, Any]:
    return {
        "ClaimUID": "c1",
        "ClaimName": "gpus",
        "Namespace": "team",
        "PodUIDs": {uid: {} for uid in pods},
        "DriverState": {driver: {"Devices": [{"PoolName": "n1", "DeviceName": name} for name in devices]}},
    }


def test_devices_by_numa_node_and_in_one_list() -> None:
    found = checkpoints.plugin_devices(
        checkpoint(
            entry(A, "nvidia.com/gpu", {"1": [G1], "0": [G0], "-1": None}),
            entry(B, "rdma/hca", ["mlx5_0"]),
            entry(C, "nvidia.com/gpu", None),
        )
    )
    assert [(item.pod_uid, item.devices) for item in found] == [(A, (G0, G1)), (B, ("mlx5_0",)), (C, ())]
    assert checkpoints.plugin_devices(checkpoint()) == ()


def test_claims_of_our_drivers_only() -> None:
    document = claims(claim([B, A], "gpu.nvidia.com", "gpu-0", "gpu-1"), claim([C], "compute-domain.nvidia.com", "x"))
    found = checkpoints.claim_devices(document, ("gpu.nvidia.com",))
    assert [(item.pod_uid, item.device) for item in found] == [
        (A, "gpu-0"), (A, "gpu-1"), (B, "gpu-0"), (B, "gpu-1"),
    ]  # fmt: skip


def test_the_first_form_of_claims_tells_no_devices() -> None:
    old = {"version": "v1", "entries": [{"DriverName": "gpu.nvidia.com", "PodUIDs": {A: {}}}], "checksum": 1}
    with pytest.raises(BadInputError, match="does not tell which devices"):
        checkpoints.claim_devices(json.dumps(old).encode(), ("gpu.nvidia.com",))
    old["entries"] = [{"DriverName": "other.example.com", "PodUIDs": {A: {}}}]
    assert checkpoints.claim_devices(json.dumps(old).encode(), ("gpu.nvidia.com",)) == ()


@pytest.mark.parametrize(
    "document",
    [b"", b"{", b"[]", b"{}", b'{"Data":{}}', b'{"Data":"{}"}', b'{"Data":{"PodDeviceEntries":[{}]}}', b"\xff"],
)
def test_another_form_is_refused_and_never_no_pods(document: bytes) -> None:
    with pytest.raises(BadInputError, match="kubelet_internal_checkpoint"):
        checkpoints.plugin_devices(document)
    with pytest.raises(BadInputError, match="dra_manager_state"):
        checkpoints.claim_devices(document, ("gpu.nvidia.com",))


READERS: tuple[Callable[[bytes], object], ...] = (
    checkpoints.plugin_devices,
    lambda document: checkpoints.claim_devices(document, ("gpu.nvidia.com",)),
    pod_resources.decode,
)


@given(st.binary(max_size=300), st.sampled_from(READERS))
def test_any_bytes_are_read_or_refused(document: bytes, read: Callable[[bytes], object]) -> None:
    with contextlib.suppress(BadInputError):
        assert isinstance(read(document), tuple)


# The API's message


def test_the_message_of_the_api_is_read_past_what_is_not_known() -> None:
    message = response(
        pod("train-0", "team", {"nvidia.com/gpu": [G0, G1], "rdma/hca": ["mlx5_0"]}),
        pod("infer", "team", {}, (("gpu.nvidia.com", "gpu-1"),)),
        pod("idle", "kube-system", {}),
    )
    train, infer, idle = pod_resources.decode(message)
    assert train.name == "team/train-0"
    assert train.devices == (("nvidia.com/gpu", G0), ("nvidia.com/gpu", G1), ("rdma/hca", "mlx5_0"))
    assert infer.claimed == (("gpu.nvidia.com", "gpu-1"),)
    assert idle == pod_resources.PodResources("kube-system/idle", (), ())


def test_a_message_that_is_cut_off_is_refused() -> None:
    message = response(pod("train-0", "team", {"nvidia.com/gpu": [G0]}))
    with pytest.raises(BadInputError, match="cut off"):
        pod_resources.decode(message[:-3])
    with pytest.raises(BadInputError, match="no protobuf"):
        pod_resources.decode(b"\x0f")


# Pods


def test_names_and_uids_come_from_the_log_folders() -> None:
    pods = from_log_folders([f"team_train-0_{A}", f"team_train-0_{B}", f"team_infer_{C}", "junk", "a__b"])
    assert pods.names[A] == "team/train-0"
    assert uid_of("team/infer", pods, None) == C
    assert uid_of("team/train-0", pods, None) is None
    assert uid_of("team/train-0", pods, frozenset({B})) == B
    assert uid_of("team/nobody", pods, None) is None


@given(
    st.lists(st.tuples(st.sampled_from([A, B, C]), st.sampled_from([G0, G1, f"{G0}::1", MIG, "gpu-x"])), max_size=12)
)
def test_each_pod_has_all_its_gpus_once_or_nothing_is_told(held: list[tuple[str, str]]) -> None:
    items = [Held(uid, device, False) for uid, device in held]
    names = from_log_folders([])
    if any(device == "gpu-x" for _, device in held):
        with pytest.raises(Unassignable, match="gpu-x"):
            assemble(items, KNOWN, names)
        return
    found = assemble(items, KNOWN, names)
    assert [item.pod_uid for item in found] == sorted({uid for uid, _ in held})
    for item in found:
        wanted = {gpu_of(device, KNOWN) for uid, device in held if uid == item.pod_uid}
        assert set(item.gpus) == wanted
        assert list(item.gpus) == sorted(item.gpus)


# The monitor


class KubeletTree:
    """A root folder with what a kubelet and the driver leave there."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.kubelet = root / "var/lib/kubelet"
        (self.kubelet / "device-plugins").mkdir(parents=True)
        (self.kubelet / "pods").mkdir()
        (root / "var/log/pods").mkdir(parents=True)
        for number, uuid in enumerate((G0, G1)):
            folder = root / f"proc/driver/nvidia/gpus/0000:{number:02x}:00.0"
            folder.mkdir(parents=True)
            (folder / "information").write_text(f"GPU UUID: \t {uuid}\nDevice Minor: \t {number}\n")

    def pod(self, name: str, uid: str) -> None:
        (self.kubelet / "pods" / uid).mkdir()
        (self.root / "var/log/pods" / f"team_{name}_{uid}").mkdir()

    def checkpoint(self, *entries: dict[str, Any]) -> None:
        (self.kubelet / "device-plugins/kubelet_internal_checkpoint").write_bytes(checkpoint(*entries))

    @property
    def socket(self) -> Path:
        return self.kubelet / "pod-resources/kubelet.sock"


@pytest.fixture
def tree() -> Iterator[KubeletTree]:
    # The path of a Unix socket has at most 107 characters; a temporary folder of pytest can use them all up.
    with tempfile.TemporaryDirectory(prefix="mk-", dir="/tmp") as folder:
        yield KubeletTree(Path(folder))


def monitor_of(tree: KubeletTree, source: Source = Source.AUTO, **changes: Any) -> AssignmentsMonitor:
    return AssignmentsMonitor(AssignmentsConfig(source=source), tree.root, SystemClock(), **changes)


def look_of(monitor: AssignmentsMonitor, now: datetime = T0) -> Look:
    return asyncio.run(monitor.look(FACTS, now))


def test_the_checkpoint_tells_who_holds_what(tree: KubeletTree) -> None:
    tree.pod("train-0", B)
    tree.pod("infer", A)
    tree.checkpoint(
        entry(B, "nvidia.com/gpu", {"0": [G0, G1]}),
        entry(A, "nvidia.com/gpu.shared", {"0": [f"{G1}::3"]}),
        entry(A, "rdma/hca", {"0": ["mlx5_0"]}),
        entry(C, "nvidia.com/gpu", {"0": [G0]}),
    )
    # C ended: the kubelet has no folder of it any more, and its entry goes with the next allocation.
    assert look_of(monitor_of(tree)) == Look(
        assignments=(
            GpuAssignment(pod_uid=A, pod="team/infer", gpus=(G1,)),
            GpuAssignment(pod_uid=B, pod="team/train-0", gpus=(G0, G1)),
        )
    )


def test_no_pods_is_an_answer_and_no_file_is_none(tree: KubeletTree) -> None:
    tree.checkpoint()
    assert look_of(monitor_of(tree)) == Look(assignments=())
    (tree.kubelet / "device-plugins/kubelet_internal_checkpoint").unlink()
    look = look_of(monitor_of(tree, Source.CHECKPOINT))
    assert look.assignments is None
    assert "No such file" in look.unknown[0]


def test_claims_are_added_and_can_stand_alone(tree: KubeletTree) -> None:
    tree.pod("train-0", A)
    (tree.kubelet / "dra_manager_state").write_bytes(claims(claim([A], "gpu.nvidia.com", "gpu-1-mig-9-0-4")))
    alone = look_of(monitor_of(tree)).assignments
    assert alone == (GpuAssignment(pod_uid=A, pod="team/train-0", gpus=(G1,)),)
    tree.checkpoint(entry(A, "nvidia.com/gpu", {"0": [G0]}))
    both = look_of(monitor_of(tree)).assignments
    assert both == (GpuAssignment(pod_uid=A, pod="team/train-0", gpus=(G0, G1)),)


def test_what_cannot_be_understood_is_unknown(tree: KubeletTree) -> None:
    tree.pod("train-0", A)
    tree.checkpoint(entry(A, "nvidia.com/gpu", {"0": ["weird-device"]}))
    look = look_of(monitor_of(tree))
    assert (look.assignments, look.unknown) == (
        None,
        ("which pods hold which GPUs: the GPU of device weird-device is not known",),
    )
    (tree.kubelet / "device-plugins/kubelet_internal_checkpoint").write_bytes(b"\x00\xffjunk")
    junk = look_of(monitor_of(tree, Source.CHECKPOINT))
    assert junk.assignments is None
    assert "a form that is not known" in junk.unknown[0]


def test_the_api_is_asked_where_the_checkpoint_cannot_be_read(tree: KubeletTree) -> None:
    tree.pod("train-0", A)
    tree.pod("infer", B)
    message = response(
        pod("train-0", "team", {"nvidia.com/gpu": [G0]}),
        pod("infer", "team", {}, (("gpu.nvidia.com", "gpu-1"), ("net.example.com", "eth-0"))),
        pod("other", "kube-system", {"rdma/hca": ["mlx5_0"]}),
    )
    server = PodResourcesServer(tree.socket, message)
    look = look_of(monitor_of(tree))
    server.close()
    assert look == Look(
        assignments=(
            GpuAssignment(pod_uid=A, pod="team/train-0", gpus=(G0,)),
            GpuAssignment(pod_uid=B, pod="team/infer", gpus=(G1,)),
        )
    )
    (request,) = server.requests
    assert (request[":path"], request["content-type"]) == ("/v1.PodResourcesLister/List", "application/grpc")


def test_a_large_answer_passes_the_windows_of_http2(tree: KubeletTree) -> None:
    tree.pod("train-0", A)
    many = [
        pod(f"idle-{number}", "x" * 60, {"example.com/thing": [f"device-{n}" for n in range(100)]})
        for number in range(300)
    ]
    message = response(pod("train-0", "team", {"nvidia.com/gpu": [G0]}), *many)
    assert len(message) > 300_000
    server = PodResourcesServer(tree.socket, message)
    look = look_of(monitor_of(tree, Source.POD_RESOURCES))
    server.close()
    assert [item.pod_uid for item in look.assignments or ()] == [A]


def test_the_api_is_not_asked_at_every_look(tree: KubeletTree) -> None:
    tree.pod("train-0", A)
    server = PodResourcesServer(tree.socket, response(pod("train-0", "team", {"nvidia.com/gpu": [G0]})))
    monitor = monitor_of(tree)

    async def story() -> list[int]:
        asked = []
        for seconds in (0, 15, 45, 61):
            await monitor.look(FACTS, T0 + timedelta(seconds=seconds))
            asked.append(len(server.requests))
        return asked

    assert asyncio.run(story()) == [1, 1, 1, 2]
    server.close()


def test_refusals_and_missing_servers_are_unknown(tree: KubeletTree) -> None:
    absent = look_of(monitor_of(tree))
    assert absent.assignments is None
    assert "there is no socket /var/lib/kubelet/pod-resources/kubelet.sock" in absent.unknown[0]
    server = PodResourcesServer(tree.socket, status=7)
    refused = look_of(monitor_of(tree))
    server.close()
    assert refused.assignments is None
    assert "answered with status 7: not allowed" in refused.unknown[0]


def test_a_pod_of_the_api_whose_uid_is_not_certain_makes_all_unknown(tree: KubeletTree) -> None:
    server = PodResourcesServer(tree.socket, response(pod("ghost", "team", {"nvidia.com/gpu": [G0]})))
    look = look_of(monitor_of(tree))
    server.close()
    assert look.assignments is None
    assert "the UID of pod team/ghost is not known" in look.unknown[0]


FAKE_NVML = f"""
class NVMLError(Exception): pass
def nvmlInit(): pass
def nvmlDeviceGetCount(): return 3
def nvmlDeviceGetHandleByIndex(i):
    if i == 2: raise NVMLError("GPU is lost")
    return i
def nvmlDeviceGetMaxMigDeviceCount(h):
    if h == 0: raise NVMLError("Not Supported")
    return 2
def nvmlDeviceGetMigDeviceHandleByIndex(h, m):
    if m == 1: raise NVMLError("Not Found")
    return "mig"
def nvmlDeviceGetUUID(h):
    return {MIG!r} if h == "mig" else [{G0!r}, {G1!r}][h]
"""


def python_with(folder: Path, source: str) -> tuple[str, ...]:
    """An interpreter in which `pynvml` is `source`."""
    (folder / "nvml").mkdir()
    (folder / "nvml/pynvml.py").write_text(source)
    return (sys.executable, "-c", f"import sys, runpy; sys.path.insert(0, {str(folder / 'nvml')!r}); "
            "sys.argv = sys.argv[1:]; runpy.run_path(sys.argv[0], run_name='__main__')")  # fmt: skip


def test_nvml_tells_the_gpu_of_a_mig_device(tree: KubeletTree, tmp_path: Path) -> None:
    tree.pod("train-0", A)
    tree.checkpoint(entry(A, "nvidia.com/mig-1g.10gb", {"0": [MIG]}))
    look = look_of(monitor_of(tree, python=python_with(tmp_path, FAKE_NVML)))
    assert look == Look(assignments=(GpuAssignment(pod_uid=A, pod="team/train-0", gpus=(G1,)),))


def test_without_nvml_the_gpu_of_a_mig_device_is_unknown(tree: KubeletTree, tmp_path: Path) -> None:
    tree.pod("train-0", A)
    tree.checkpoint(entry(A, "nvidia.com/mig-1g.10gb", {"0": [MIG]}))
    look = look_of(monitor_of(tree, python=python_with(tmp_path, "raise ImportError('no driver')")))
    assert look.assignments is None
    assert "mig_child: ImportError: no driver" in look.unknown[0]


def test_configuration(tmp_path: Path) -> None:
    assert assignments.monitors(AssignmentsConfig(enabled=False), tmp_path, SystemClock()) == ()
    (monitor,) = assignments.monitors(AssignmentsConfig(source=Source.POD_RESOURCES), tmp_path, SystemClock())
    assert (monitor.name, monitor.interval_s) == ("assignments", 60.0)
    with pytest.raises(msgspec.ValidationError, match="kubeletDir"):
        msgspec.convert({"kubeletDir": "var/lib"}, AssignmentsConfig)
    config = replace(KNOWN, minors={})
    assert gpu_of("nvidia0", config) is None
