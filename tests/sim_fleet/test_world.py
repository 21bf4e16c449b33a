"""The truth: drawn from a seed, changed by defects, repairs and boots."""

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from muster.resources.repair import Rung
from muster.sim.defects import RUNGS_BY_STRENGTH, Appears, CuredBy, Defect, DefectKind, cures
from muster.sim.kernel_messages import KNOWN_XIDS, kmsg_record, xid_messages
from muster.sim.world import MAX_LOG_RECORDS, World, domain_names

START = datetime(2026, 1, 5, 8, 0, tzinfo=UTC)
ALL_GPUS = range(8)


def world(seed: int = 1, nodes: int = 4) -> World:
    return World(seed=seed, nodes=nodes, domains=2, started=START, driver="580.65.06")


def xid(node: str = "gpu-001", code: int = 119, cured_by: CuredBy = CuredBy.REBOOT) -> Defect:
    return Defect(
        kind=DefectKind.XID, node=node, gpu=3, xid=code, cured_by=cured_by, appears=Appears.TIME, after_s=60.0
    )


def test_same_seed_same_machines_and_another_seed_others() -> None:
    first, again, other = world(1), world(1), world(2)
    assert [n.gpus for n in first.nodes.values()] == [n.gpus for n in again.nodes.values()]
    assert first.nodes["gpu-001"].gpus != other.nodes["gpu-001"].gpus


def test_identities_are_unique_in_the_fleet() -> None:
    gpus = [gpu for node in world(nodes=16).nodes.values() for gpu in node.gpus]
    assert len({gpu.uuid for gpu in gpus}) == len({gpu.serial for gpu in gpus}) == 16 * 8


@given(nodes=st.integers(1, 300), data=st.data())
def test_domains_are_contiguous_and_of_equal_size(nodes: int, data: st.DataObject) -> None:
    domains = data.draw(st.integers(1, nodes))
    names = domain_names(nodes, domains)
    sizes = [names.count(name) for name in dict.fromkeys(names)]
    assert len(sizes) == domains
    assert max(sizes) - min(sizes) <= 1
    assert sum(sizes) == nodes


def test_a_boot_changes_the_boot_id_and_empties_the_log() -> None:
    w = world()
    before = w.nodes["gpu-001"].boot_id
    w.log("gpu-001", START, ["something"])
    w.go_down("gpu-001")
    w.log("gpu-001", START, ["lost: the machine is down"])
    w.come_up("gpu-001", START + timedelta(minutes=6))
    node = w.nodes["gpu-001"]
    assert node.boot_id != before
    assert not any(b"something" in record or b"lost" in record for record in node.log)


def test_new_gpus_have_new_identities_at_the_old_addresses() -> None:
    w = world()
    before = w.nodes["gpu-001"].gpus
    w.swap_gpus("gpu-001")
    after = w.nodes["gpu-001"].gpus
    assert [g.pci for g in after] == [g.pci for g in before]
    assert not {g.uuid for g in after} & {g.uuid for g in before}


@given(cured_by=st.sampled_from(CuredBy), rung=st.sampled_from(Rung))
def test_a_stronger_rung_cures_whatever_a_weaker_one_does(cured_by: CuredBy, rung: Rung) -> None:
    defect = xid(cured_by=cured_by)
    if rung in RUNGS_BY_STRENGTH and cures(rung, defect):
        stronger = RUNGS_BY_STRENGTH[RUNGS_BY_STRENGTH.index(rung) :]
        assert all(cures(r, defect) for r in stronger)
    assert not cures(Rung.TICKET, defect)
    assert cured_by is not CuredBy.NONE or not cures(rung, defect)


def test_a_reset_of_another_gpu_does_not_cure() -> None:
    w = world()
    w.appear(xid(cured_by=CuredBy.RESET_GPU), START)
    assert w.cure("gpu-001", Rung.RESET_GPU, [0, 1]) == ()
    assert w.cure("gpu-001", Rung.RESET_GPU, [3]) == (xid(cured_by=CuredBy.RESET_GPU),)
    assert w.defects_of("gpu-001") == ()


def test_a_link_is_nobodys_own_and_survives_repairs() -> None:
    w = world()
    link = Defect(kind=DefectKind.BAD_LINK, node="gpu-003", peer="gpu-001", factor=0.4, cured_by=CuredBy.NONE)
    w.appear(link, START)
    assert w.defects_of("gpu-003") == ()
    assert w.link_defect("gpu-001", "gpu-003") == link
    assert w.link_defect("gpu-001", "gpu-002") is None
    w.cure("gpu-001", Rung.REPLACE, ALL_GPUS)
    assert w.link_defect("gpu-003", "gpu-001") == link
    assert w.truth().bad_links == (("gpu-001", "gpu-003"),)
    assert w.truth().faulty_nodes == ()


def test_truth_knows_who_cannot_be_brought_back() -> None:
    w = world()
    w.appear(xid("gpu-001", cured_by=CuredBy.REPLACE), START)
    w.appear(xid("gpu-002", cured_by=CuredBy.NONE), START)
    w.appear(xid("gpu-003", cured_by=CuredBy.REBOOT), START)
    assert w.truth().incurable_nodes == ("gpu-002",)
    assert w.truth([("gpu-001", Rung.REPLACE)]).incurable_nodes == ("gpu-001", "gpu-002")
    assert w.truth().faulty_nodes == ("gpu-001", "gpu-002", "gpu-003")


@pytest.mark.parametrize("code", KNOWN_XIDS)
def test_an_xid_is_logged_with_its_code_and_address(code: int) -> None:
    w = world()
    hit: list[str] = []
    w.on_gpu_fault.append(hit.append)
    w.on_gpu_hang.append(hit.append)
    w.appear(xid(code=code), START + timedelta(seconds=60))
    text = b"".join(w.nodes["gpu-001"].log).decode()
    assert f"NVRM: Xid (PCI:{w.nodes['gpu-001'].gpus[3].pci[:-2]}): {code}, " in text
    assert hit == ["gpu-001"]


def test_records_are_numbered_and_the_ring_is_bounded() -> None:
    w = world()
    node = w.nodes["gpu-001"]
    first = node.log_end()
    w.log("gpu-001", START, [f"line {i}" for i in range(MAX_LOG_RECORDS + 10)])
    assert len(node.log) == MAX_LOG_RECORDS
    assert node.log_end() == first + MAX_LOG_RECORDS + 10
    assert int(node.log[0].split(b",")[1]) == node.log_start


@given(text=st.text(max_size=200), sequence=st.integers(0, 10**9), us=st.integers(-5, 10**15))
def test_any_text_is_one_record(text: str, sequence: int, us: int) -> None:
    record = kmsg_record(text, 4, sequence, us)
    header, _, message = record.partition(b";")
    assert record.endswith(b"\n")
    assert record.count(b"\n") == 1
    assert header.split(b",") == [b"4", str(sequence).encode(), str(max(us, 0)).encode(), b"-"]
    assert all(32 <= byte < 127 for byte in message[:-1])


def test_unknown_xid_is_refused() -> None:
    with pytest.raises(KeyError):
        xid_messages(1, world().nodes["gpu-001"].gpus[0], 1)
