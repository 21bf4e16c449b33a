"""Batches: who is certified with whom, when, and under which name."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

from hypothesis import given
from hypothesis import strategies as st

from muster.operate.batch import Partner, Waiter, certification_name, plan_batches
from muster.operate.budget import Member
from muster.operate.model import TestRequest
from muster.resources.certification import Purpose
from muster.resources.fault_policy import CertificationPolicy
from tests.operate.worlds import START

POLICY = CertificationPolicy(max_batch=8, batch_wait_s=120)


def waiter(index: int, profile: str = "repair", waited_s: float = 0, policy: CertificationPolicy = POLICY) -> Waiter:
    name = f"n{index:03}"
    request = TestRequest(f"e{index}", START, "sha256:x", "boot")
    return Waiter(Member(name, f"d{index % 4}"), profile, START - timedelta(seconds=waited_s), request, policy)


def partners(count: int) -> list[Partner]:
    return [Partner(Member(f"p{i}", f"d{i % 4}")) for i in range(count)]


def test_nodes_wait_for_each_other_and_say_until_when() -> None:
    plan = plan_batches([waiter(0), waiter(1, waited_s=20)], [], START)
    assert plan.batches == ()
    assert plan.recheck_at == START + timedelta(seconds=100)
    assert "08:01:40" in plan.waits["n000"]


def test_a_full_batch_does_not_wait() -> None:
    plan = plan_batches([waiter(i) for i in range(9)], [], START)
    assert [len(b.spec.nodes) for b in plan.batches] == [8]
    assert len(plan.waits) == 1


def test_after_the_wait_whoever_is_there_is_tested() -> None:
    plan = plan_batches([waiter(0, waited_s=120), waiter(1), waiter(2)], partners(3), START, in_service=3)
    assert plan.batches[0].spec.nodes == ("n000", "n001", "n002")
    assert plan.batches[0].spec.partners == ()
    assert plan.batches[0].spec.purpose is Purpose.REPAIR


def test_a_lone_node_borrows_two_partners_proven_ones_of_its_domain_first() -> None:
    pool = [
        Partner(Member("a", "d9")),
        Partner(Member("b", "d0")),
        Partner(Member("c", "d8")),
        Partner(Member("d", "d0"), valid=False),
    ]
    plan = plan_batches([waiter(0, waited_s=120)], pool, START, in_service=4)
    assert plan.batches[0].spec.partners == ("a", "b")
    plan = plan_batches([waiter(0, waited_s=120)], pool[3:], START, in_service=4)
    assert plan.batches[0].spec.partners == ("d",)


def test_a_lone_node_without_a_partner_says_so() -> None:
    plan = plan_batches([waiter(0, waited_s=120)], [], START, in_service=5)
    assert plan.batches == ()
    assert "None of the 5 nodes in service is idle" in plan.waits["n000"]
    assert "none is in service" in plan_batches([waiter(0, waited_s=120)], [], START).waits["n000"]


def test_a_partner_is_lent_once() -> None:
    plan = plan_batches([waiter(0, waited_s=120), waiter(1, "stack", waited_s=120)], partners(3), START, in_service=3)
    lent = [name for b in plan.batches for name in b.spec.partners]
    assert len(lent) == len(set(lent)) == 3


@given(st.permutations(range(10)), st.sets(st.integers(0, 9)))
def test_order_does_not_matter_and_nobody_is_lost(order: list[int], stack: set[int]) -> None:
    nodes = [waiter(i, "stack" if i in stack else "repair", waited_s=120) for i in order]
    plan = plan_batches(nodes, partners(4), START, in_service=4)
    assert plan == plan_batches(sorted(nodes, key=lambda w: w.member.name), partners(4)[::-1], START, in_service=4)
    tested = [name for b in plan.batches for name in b.spec.nodes]
    assert sorted((*tested, *plan.waits)) == [f"n{i:03}" for i in range(10)]
    for batch in plan.batches:
        assert len(batch.spec.nodes) <= POLICY.max_batch
        assert {name for name, _ in batch.requests} == set(batch.spec.nodes)
        assert not set(batch.spec.nodes) & set(batch.spec.partners)


def test_the_name_follows_from_the_moment_of_the_nodes() -> None:
    first = [("a", TestRequest("e1", START, "f", "b")), ("c", TestRequest("e2", START, "f", "b"))]
    later = [(first[0][0], TestRequest("e1", START + timedelta(seconds=1), "f", "b")), first[1]]
    assert certification_name("repair", first) == certification_name("repair", first[::-1])
    assert certification_name("repair", first) != certification_name("repair", later)
    assert len(certification_name("bringup", first)) < 40


def test_nodes_that_need_other_tests_or_follow_another_recipe_are_tested_apart() -> None:
    asked = [
        waiter(0, waited_s=120),
        replace(waiter(1, waited_s=120), tests=("host", "pair", "all-reduce")),
        replace(waiter(2, waited_s=120), recipe="sha256:a"),
        replace(waiter(3, waited_s=120), recipe="sha256:a"),
    ]
    plan = plan_batches(asked, partners(8), START, in_service=8)
    specs = {b.spec.nodes: (b.spec.tests, b.spec.recipe_digest) for b in plan.batches}
    assert specs == {
        ("n000",): ((), ""),
        ("n001",): (("host", "pair", "all-reduce"), ""),
        ("n002", "n003"): ((), "sha256:a"),
    }
