"""NVML through NVIDIA's own binding over a stand-in library: every call is a real call into a shared object."""

from __future__ import annotations

import os
import time
from datetime import UTC, datetime
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from muster.inventory import nvml
from muster.inventory.machine import Findings, Machine
from muster.inventory.node import take
from muster.inventory.readings import NVML, VOCABULARY, class_of, known
from muster.inventory.record import NodeSnapshot
from muster.resources.fingerprint import ReadingClass
from tests.inventory.conftest import Ask
from tests.inventory.machines import put_hgx, put_system

NOW = datetime(2026, 1, 5, 8, 0, tzinfo=UTC)
H100 = "gpus 8\nlinks 18\nfabric 0 0 3\n"
GB200 = "gpus 4\nproduct NVIDIA GB200\nlinks 18\nfabric 171 3 3\ncuda 13000\n"
MIXED_MIG = H100 + "mig 1 3g.40gb 1 0 3 40448\nmig 1 1g.10gb 9 0 1 9984\nmig 4 7g.80gb 0 0 7 80768\n"


@pytest.fixture
def root(tmp_path: Path) -> Path:
    folder = tmp_path / "machine"
    put_system(folder)
    put_hgx(folder)
    return folder


def values(snapshot: NodeSnapshot) -> dict[str, str]:
    return {r.name: r.value for r in snapshot.readings}


def unknown(snapshot: NodeSnapshot) -> dict[str, str]:
    return {u.name: u.reason for u in snapshot.unknown}


def snapshot_of(root: Path, answer: nvml.Answer) -> NodeSnapshot:
    return take(Machine(root), "node-1", NOW, ask_nvml=lambda: answer)


@pytest.mark.requirement("v2.4/BFX03")
def test_eight_h100(root: Path, ask: Ask) -> None:
    found = snapshot_of(root, ask(H100))
    told = values(found)
    assert told["gpu.count"] == "8"
    assert [told[f"gpu.{n}.serial"] for n in range(8)] == [f"165262300{n:04d}" for n in range(8)]
    assert {told[f"gpu.{n}.nvml"] for n in range(8)} == {"ok"}
    assert told["cuda.driver_version"] == "13.0"
    assert told["gpu.7.nvlink.count"] == told["gpu.7.nvlink.active"] == "18"
    assert told["gpu.7.nvlink.3.remote"] == "switch 0000:83:00.0"
    assert (told["gpu.0.ecc_mode"], told["gpu.0.mig_mode"], told["gpu.0.compute_mode"]) == (
        "enabled",
        "disabled",
        "default",
    )
    assert (told["gpu.0.power_limit_w"], told["gpu.0.memory_mib"]) == ("700", "81559")
    assert not [name for name in unknown(found) if name.startswith(("gpu", "nvml"))]


@pytest.mark.requirement("v2.4/NET02")
def test_four_gb200_of_one_nvlink_domain(tmp_path: Path, ask: Ask) -> None:
    put_system(tmp_path)
    put_hgx(tmp_path, gpus=4)
    told = values(snapshot_of(tmp_path, ask(GB200)))
    assert told["gpu.count"] == "4"
    assert {told[f"gpu.{n}.fabric.cluster_uuid"] for n in range(4)} == {"abababab-abab-abab-abab-abababababab"}
    assert {told[f"gpu.{n}.fabric.clique"] for n in range(4)} == {"3"}
    assert {told[f"gpu.{n}.fabric.state"] for n in range(4)} == {"completed"}


def test_a_gpu_that_the_fabric_manager_has_not_registered_yet(root: Path, ask: Ask) -> None:
    found = snapshot_of(root, ask("gpus 8\nfabric 171 3 2\n"))
    assert values(found)["gpu.0.fabric.state"] == "in-progress"
    assert "gpu.0.fabric.clique" not in values(found)
    assert "in-progress" in unknown(found)["gpu.0.fabric.clique"]


def test_mixed_mig(root: Path, ask: Ask) -> None:
    told = values(snapshot_of(root, ask(MIXED_MIG)))
    assert [told[f"gpu.{n}.mig_mode"] for n in (0, 1, 4)] == ["disabled", "enabled", "enabled"]
    assert (told["gpu.1.mig.count"], told["gpu.4.mig.count"]) == ("2", "1")
    assert told["gpu.1.mig.1.0.profile"] == "3g.40gb"
    assert told["gpu.1.mig.9.0.profile"] == "1g.10gb"
    assert (told["gpu.4.mig.0.0.slices"], told["gpu.4.mig.0.0.memory_mib"]) == ("7/7", "80768")
    assert "gpu.0.mig.count" not in told


def test_the_mig_layout_is_config_and_not_identity(root: Path, ask: Ask) -> None:
    before, after = snapshot_of(root, ask(H100)), snapshot_of(root, ask(MIXED_MIG))
    assert [c for c in before.digests if before.digests[c] != after.digests[c]] == ["config"]


@pytest.mark.parametrize(
    "scenario",
    [
        H100 + "error * 3 15\n",
        H100 + "error nvmlDeviceGetSerial 3 15\n",
        H100 + "error nvmlDeviceGetPciInfo_v3 3 15\n",
    ],
    ids=["no handle", "after the handle", "no address"],
)
def test_one_lost_gpu_is_listed_as_lost_and_keeps_its_number(root: Path, ask: Ask, scenario: str) -> None:
    found = snapshot_of(root, ask(scenario))
    told, gaps = values(found), unknown(found)
    assert told["gpu.count"] == "8"
    assert [told[f"gpu.{n}.nvml"] for n in range(8)] == ["ok"] * 3 + ["lost"] + ["ok"] * 4
    assert "GPU is lost (NVML_ERROR_GPU_IS_LOST)" in " ".join(gaps.values())
    assert told["gpu.4.serial"] == "1652623000004"


def test_two_lost_gpus_without_addresses_are_both_named(root: Path, ask: Ask) -> None:
    told = values(snapshot_of(root, ask(H100 + "error * 2 15\nerror * 6 15\n")))
    assert [n for n in range(8) if told[f"gpu.{n}.nvml"] == "lost"] == [2, 6]


def test_a_gpu_that_nvml_does_not_list(root: Path, ask: Ask) -> None:
    told = values(snapshot_of(root, ask("gpus 7\n")))
    assert (told["gpu.count"], told["gpu.7.nvml"]) == ("8", "not listed")
    assert "gpu.7.serial" not in told


def test_gpus_that_only_nvml_sees_are_counted(tmp_path: Path, ask: Ask) -> None:
    put_system(tmp_path)
    told = values(snapshot_of(tmp_path, ask("gpus 2\n")))
    assert told["gpu.count"] == "2"
    assert "gpu" not in told
    assert told["gpu.1.pci"] == "0000:11:00.0"


def test_numbers_follow_pci_addresses_and_not_the_order_of_nvml(tmp_path: Path, ask: Ask) -> None:
    """One more GPU in front, which NVML does not know: the others move up, with all their readings."""
    put_system(tmp_path)
    put_hgx(tmp_path, gpus=3, first_bus=0x0F)
    told = values(snapshot_of(tmp_path, ask("gpus 3\n")))
    assert told["gpu.count"] == "4"
    assert [told[f"gpu.{n}.pci"] for n in range(4)] == [f"0000:{bus:02x}:00.0" for bus in range(0x0F, 0x13)]
    assert [told.get(f"gpu.{n}.nvml") for n in range(4)] == ["not listed", "ok", "ok", "ok"]
    assert told["gpu.1.serial"] == "1652623000000"


def test_a_driver_that_is_not_loaded(root: Path, ask: Ask) -> None:
    found = snapshot_of(root, ask("init 9\n"))
    assert unknown(found)["nvml"] == "Driver Not Loaded (NVML_ERROR_DRIVER_NOT_LOADED)"
    assert values(found)["gpu.count"] == "8"


def test_a_driver_that_does_not_fit_its_library(root: Path, ask: Ask) -> None:
    assert "NVML_ERROR_LIB_RM_VERSION_MISMATCH" in unknown(snapshot_of(root, ask("init 18\n")))["nvml"]


def test_no_library_on_a_machine_with_gpus_is_unknown(root: Path, tmp_path: Path) -> None:
    answer = nvml.ask(environment={**os.environ, "LD_LIBRARY_PATH": str(tmp_path / "empty")})
    assert answer.absent
    assert "NVML_ERROR_LIBRARY_NOT_FOUND" in unknown(snapshot_of(root, answer))["nvml"]


def test_without_the_binding_the_sentence_names_the_extra(root: Path, tmp_path: Path) -> None:
    (tmp_path / "pynvml.py").write_text("raise ImportError('no such module')")
    answer = nvml.ask(environment={**os.environ, "PYTHONPATH": str(tmp_path)})
    assert "pip install 'muster-gpu[nvml]'" in unknown(snapshot_of(root, answer))["nvml"]


def test_a_file_in_the_current_folder_is_not_taken_for_the_binding(
    ask: Ask, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "pynvml.py").write_text("raise SystemExit(1)")
    monkeypatch.chdir(tmp_path)
    assert len(ask(H100).devices) == 8


def test_the_library_knows_the_driver_where_its_files_are_hidden(tmp_path: Path, ask: Ask) -> None:
    put_system(tmp_path)
    assert values(take(Machine(tmp_path), "n", NOW))["driver.version"] == "not loaded"
    assert values(snapshot_of(tmp_path, ask("gpus 1\n")))["driver.version"] == "580.95.05"


def test_a_machine_without_gpus_says_so_whatever_nvml_lacks(tmp_path: Path, ask: Ask) -> None:
    put_system(tmp_path)
    for scenario in ("init 9\n", "init 12\n", "gpus 0\n"):
        found = snapshot_of(tmp_path, ask(scenario))
        assert values(found)["gpu"] == "none found"
        assert found.gpu_count() == 0
        assert "nvml" not in unknown(found)


@pytest.mark.parametrize(
    ("scenario", "told_before"),
    [
        ("hang nvmlInitWithFlags -2\n", None),
        (H100 + "hang nvmlDeviceGetSerial 2\n", "gpu.1.serial"),
        (H100 + "hang nvmlDeviceGetHandleByIndex_v2 5\n", "gpu.4.serial"),
    ],
    ids=["at once", "in a reading", "at a GPU"],
)
def test_a_library_that_hangs_is_ended_and_what_it_told_is_kept(
    root: Path, ask: Ask, scenario: str, told_before: str | None
) -> None:
    started = time.monotonic()
    found = snapshot_of(root, ask(scenario, deadline_s=4.0))
    assert time.monotonic() - started < 30
    assert unknown(found)["nvml"].startswith("NVML did not answer within 4 s in nvml")
    assert values(found)["gpu.count"] == "8"
    if told_before is not None:
        assert told_before in values(found)
        assert "of GPU" in unknown(found)["nvml"]


def test_what_a_model_does_not_support_is_absent_and_what_is_forbidden_is_unknown(root: Path, ask: Ask) -> None:
    scenario = H100 + "error nvmlDeviceGetEccMode -1 3\nerror nvmlDeviceGetSerial -1 4\n"
    found = snapshot_of(root, ask(scenario))
    assert not [name for name in {**values(found), **unknown(found)} if "ecc_mode" in name]
    assert unknown(found)["gpu.0.serial"] == "NVML: Insufficient Permissions (NVML_ERROR_NO_PERMISSION)"


def test_a_link_that_is_down(root: Path, ask: Ask) -> None:
    told = values(snapshot_of(root, ask(H100 + "link 5 4\n")))
    assert (told["gpu.5.nvlink.active"], told["gpu.5.nvlink.4.state"]) == ("17", "down")
    assert "gpu.5.nvlink.4.remote" not in told


def test_two_looks_at_an_untouched_machine_differ_in_volatile_readings_alone(root: Path, ask: Ask) -> None:
    first, second = snapshot_of(root, ask(MIXED_MIG)), snapshot_of(root, ask(MIXED_MIG))
    assert first.fingerprint == second.fingerprint
    differing = {name for name in values(first) if values(first)[name] != values(second)[name]}
    assert {class_of(name) for name in differing} <= {ReadingClass.VOLATILE}
    assert differing, "the stand-in's temperatures and powers vary from process to process"


def test_every_reading_of_nvml_is_told_by_a_scenario(root: Path, ask: Ask) -> None:
    found = {*values(snapshot_of(root, ask(MIXED_MIG)))} | {*values(snapshot_of(root, ask(GB200)))}
    covered = {entry.name for name in found if (entry := known(name)) is not None}
    # Retired pages exist only on models without row remapping.
    assert {e.name for e in VOCABULARY if e.source == NVML} - covered == {"gpu.<n>.retired_pages"}


def test_an_answer_that_ends_in_the_middle_of_a_line() -> None:
    answer = nvml.read_answer(b'{"call": "nvmlInit"}\n{"name": "driver.version", "value": "580.1"}\n{"gpu": 0, "na')
    assert answer.values == {"driver.version": "580.1"}
    assert answer.failure == "NVML ended its process in nvmlInit"


@given(st.binary(max_size=400))
def test_any_bytes_are_read_without_an_error(output: bytes) -> None:
    assert isinstance(nvml.merge(Findings(), nvml.read_answer(output)).readings, list)


@given(
    st.lists(st.sampled_from([0x10, 0x11, 0x12, 0x13, 0x14]), unique=True),
    st.sets(st.sampled_from([0x11, 0x13, 0x20])),
)
def test_every_gpu_of_either_side_is_there_once(bus: list[int], listed: set[int]) -> None:
    found = Findings()
    found.add("gpu.count", str(len(bus)))
    for index, number in enumerate(sorted(bus)):
        found.add(f"gpu.{index}.pci", f"0000:{number:02x}:00.0")
    devices = [nvml.Device(pci=f"0000:{n:02x}:00.0", values={"serial": str(n)}) for n in sorted(listed)]
    merged = nvml.merge(found, nvml.Answer(devices=devices)).values()
    everything = sorted({*bus, *listed})
    assert merged.get("gpu.count") == str(len(everything))
    for index, number in enumerate(everything):
        assert merged[f"gpu.{index}.pci"] == f"0000:{number:02x}:00.0"
        assert merged.get(f"gpu.{index}.serial") == (str(number) if number in listed else None)
