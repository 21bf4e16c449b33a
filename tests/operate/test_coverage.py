"""Coverage: test by test, digest by digest; what is carried over, what is a hole, and what is run to close it."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace as with_fields

from muster.certify import catalogue
from muster.operate.certificates import Rules, issue, without_failed
from muster.operate.coverage import PROFILES, Coverage, NodeStandard, Standard, coverage
from muster.operate.model import CertificationView, WavePlan
from muster.resources.certification import NodeVerdict, Phase, ProfileTests, Purpose
from muster.resources.fault_policy import CertificationPolicy, DriftAction, DriftPolicy
from muster.resources.node_health import Certificate, CertifiedTest, Observed, Standing, State, Verb
from muster.resources.repair import RepairPhase
from tests.operate.worlds import AUTOMATED, START, World, fault, readings

NAMES = st.sampled_from(["host", "pair", "all-reduce", "storage"])
DIGESTS = st.sampled_from(["sha256:a", "sha256:b", ""])
REQUIRED = {"host": "sha256:h", "pair": "sha256:p", "all-reduce": "sha256:r"}
STANDARD = Standard(
    profiles={
        "bringup": ProfileTests(tests=("host", "pair", "pair-net", "all-reduce"), proves=REQUIRED),
        "repair": ProfileTests(tests=("host", "pair"), proves={k: REQUIRED[k] for k in ("host", "pair")}),
        "stack": ProfileTests(tests=("host", "pair"), proves={k: REQUIRED[k] for k in ("host", "pair")}),
    },
    known={**REQUIRED, "dcgm-diag": "sha256:d"},
)


def proved(*names: str, **digests: str) -> tuple[CertifiedTest, ...]:
    found = {name: REQUIRED[name] for name in names} | {k.replace("_", "-"): v for k, v in digests.items()}
    return tuple(CertifiedTest(name=name, digest=digest) for name, digest in sorted(found.items()))


ALL = proved("host", "pair", "all-reduce")


def brought_up(standard: Standard = STANDARD, **drift: DriftAction) -> World:
    policy = replace(AUTOMATED, drift=DriftPolicy(**drift))  # type: ignore[arg-type]
    world = World(policy=policy, standard=standard)
    world.certify(tests=ALL, asked=REQUIRED)
    assert world.life.state is State.IN_SERVICE
    return world


def names(world: World) -> dict[str, str]:
    assert world.life.certificate is not None
    return {test.name: test.carried_from for test in world.life.certificate.tests}


@given(required=st.dictionaries(NAMES, DIGESTS), held=st.dictionaries(NAMES, DIGESTS))
def test_a_test_is_covered_by_a_pass_of_its_own_definition_and_by_nothing_else(
    required: dict[str, str], held: dict[str, str]
) -> None:
    found = coverage(required, [CertifiedTest(name=n, digest=d) for n, d in held.items()])
    for name, digest in required.items():
        covered = name in held and (not digest or held[name] == digest)
        assert covered is (name not in found.holes)
        assert (name in found.missing) is (name not in held)
    assert set(found.holes) <= set(required)
    assert found.complete is (not found.sentence())


def test_the_sentence_names_what_is_open() -> None:
    assert Coverage(("all-reduce",), ("pair",)).sentence() == (
        "The certificate does not cover all-reduce and covers pair in an earlier definition only"
    )


def test_a_repair_proves_a_part_and_the_rest_is_carried_over_by_name() -> None:
    world = brought_up()
    first = world.life.certificate.certification
    world.observe(fault(seen=world.now))
    world.settle()
    world.repair(RepairPhase.DONE)
    world.observe(boot="boot-2")
    world.settle()
    assert world.life.profile == "repair"
    world.certify(tests=proved("host", "pair"))
    assert names(world) == {"all-reduce": first, "host": "", "pair": ""}
    assert world.life.certificate.profile == "repair"


def stack_failed(asked: dict[str, str]) -> World:
    """A node that failed the tests for a new driver, although it passed some runs; a person sends it to its tests."""
    world = brought_up()
    world.observe(fp=readings(driver="580.95"))
    world.wave = WavePlan(turn=("n1",))
    world.settle()
    world.certify(NodeVerdict.FAILED, tests=ALL, asked=asked)
    assert world.life.held
    world.say(Verb.RETIRE)
    world.settle()
    world.say(Verb.RETRY, "d2")
    world.observe(fp=readings())
    world.settle()
    return world


@pytest.mark.parametrize("asked", [{"all-reduce": REQUIRED["all-reduce"]}, {}])
def test_what_was_failed_since_is_not_carried_over(asked: dict[str, str]) -> None:
    world = stack_failed(asked)
    assert world.life.profile == "repair", "the driver is the earlier one again"
    kept = {test.name for test in world.life.certificate.tests}
    assert kept == ({"host", "pair"} if asked else set())
    assert (
        STANDARD.of({}, CertificationPolicy()).tests_for("repair", world.life.certificate.tests)[-1] == "all-reduce"
    )
    world.certify(tests=proved("host", "pair"))
    assert "all-reduce" not in names(world)
    assert "does not cover all-reduce" in world.life.next


@pytest.mark.parametrize(("stack", "profile"), [(DriftAction.ROLL, "stack"), (DriftAction.REPORT, "repair")])
def test_a_driver_that_came_during_a_repair_is_tested_as_a_driver_where_drivers_count(
    stack: DriftAction, profile: str
) -> None:
    world = brought_up(stack=stack)
    world.observe(fault(seen=world.now))
    world.settle()
    world.repair(RepairPhase.DONE)
    world.observe(boot="boot-2", fp=readings(driver="580.95"))
    world.settle()
    assert (world.life.state, world.life.profile) == (State.UNCERTIFIED, profile)


@given(
    held=st.dictionaries(NAMES, DIGESTS),
    passed=st.dictionaries(NAMES, DIGESTS),
    required=st.dictionaries(NAMES, DIGESTS),
)
def test_a_pass_takes_no_coverage_of_other_tests_away(
    held: dict[str, str], passed: dict[str, str], required: dict[str, str]
) -> None:
    earlier = _certificate(held)
    view = CertificationView(
        name="c2", profile="repair", purpose=Purpose.REPAIR, phase=Phase.SUCCEEDED, tests=earned(passed)
    )
    seen = Observed(observed_at=START, node_uid="uid-1", boot_id="b", fingerprint=readings())
    made = issue("n1", "uid-1", seen, view, Rules(DriftPolicy()), earlier, START)
    before = set(coverage(required, earlier.tests).holes)
    after = set(coverage(required, made.tests).holes)
    assert after - before <= set(passed)
    assert not any(name in after for name in passed if required.get(name) == passed[name])


@given(held=st.dictionaries(NAMES, DIGESTS), asked=st.dictionaries(NAMES, DIGESTS))
def test_a_fail_takes_the_coverage_of_every_test_it_set_out_to_run(
    held: dict[str, str], asked: dict[str, str]
) -> None:
    view = CertificationView(
        name="c2", profile="stack", purpose=Purpose.STACK, phase=Phase.FAILED, tests=earned(asked), asked=asked
    )
    left = without_failed(_certificate(held), view)
    assert left is not None
    assert {t.name for t in left.tests} == (set(held) - set(asked) if asked else set())
    assert without_failed(None, view) is None


def earned(found: dict[str, str]) -> tuple[CertifiedTest, ...]:
    return tuple(CertifiedTest(name=name, digest=digest) for name, digest in sorted(found.items()))


def _certificate(tests: dict[str, str]) -> Certificate:
    return Certificate(
        node_uid="uid-1",
        fingerprint=readings(),
        profile="bringup",
        tests=earned(tests),
        certification="c1",
        issued_at=START,
    )


def test_what_was_carried_over_twice_still_names_who_proved_it() -> None:
    world = brought_up()
    first = world.life.certificate.certification
    for _ in range(2):
        world.hold()
        world.settle()
        world.node = replace(world.node, lifecycle=with_fields(world.life, certificate=_void(world)))
        world.hold(False)
        world.settle()
        world.certify(tests=proved("host", "pair"))
    assert names(world)["all-reduce"] == first


def _void(world: World) -> object:
    return with_fields(world.life.certificate, standing=Standing.VOID)


def test_nothing_is_carried_over_to_other_hardware() -> None:
    world = brought_up()
    world.observe(fp=readings(gpu="GPU-2"))
    world.settle()
    assert world.life.profile == "bringup"
    world.certify(tests=proved("host"))
    assert names(world) == {"host": ""}


def test_nothing_is_carried_over_to_another_node_of_the_name() -> None:
    world = brought_up()
    world.node = replace(world.node, uid="uid-2", certifications=())
    world.observe()
    world.settle()
    assert world.life.profile == "bringup"
    world.certify(tests=proved("pair"))
    assert names(world) == {"pair": ""}


def test_a_node_that_was_never_certified_is_brought_up_whatever_was_done_to_it() -> None:
    world = World()
    world.certify(NodeVerdict.FAILED)
    world.repair(RepairPhase.DONE)
    world.observe(boot="boot-2")
    world.settle()
    assert (world.life.state, world.life.profile) == (State.UNCERTIFIED, "bringup")
    retired = World()
    retired.settle()
    retired.say(Verb.RETIRE)
    retired.settle()
    retired.say(Verb.RELEASE, "d2")
    retired.settle()
    assert retired.life.profile == "bringup"


CHANGED = replace(
    STANDARD,
    profiles={
        **STANDARD.profiles,
        "bringup": ProfileTests(
            tests=("host", "pair", "all-reduce"), proves={**REQUIRED, "all-reduce": "sha256:new"}
        ),
    },
    known={**STANDARD.known, "all-reduce": "sha256:new"},
)


def test_a_changed_definition_is_shown_and_moves_nobody_by_default() -> None:
    world = brought_up()
    world.standard = CHANGED
    world.settle()
    assert world.life.certificate.standing is Standing.VALID
    assert "covers all-reduce in an earlier definition only" in world.life.next


def test_a_changed_definition_rolls_by_policy_and_the_pass_closes_the_hole() -> None:
    world = brought_up(coverage=DriftAction.ROLL)
    world.standard = CHANGED
    world.settle()
    assert world.life.certificate.standing is Standing.GRACE
    world.wave = WavePlan(turn=("n1",))
    world.settle()
    assert world.life.episode.cause.name == "coverage=all-reduce"
    world.certify(tests=(*proved("host", "pair"), *proved(all_reduce="sha256:new")), asked=CHANGED.known)
    assert world.life.certificate.standing is Standing.VALID
    assert world.life.certificate.lacks == ()


def test_a_hole_that_a_pass_could_not_close_is_shown_and_not_rolled_for_ever() -> None:
    world = brought_up(coverage=DriftAction.ROLL)
    world.standard = CHANGED
    world.wave = WavePlan(turn=("n1",))
    world.settle()
    world.certify(tests=proved("host", "pair"), asked=CHANGED.known)
    assert world.life.certificate.lacks == ("all-reduce@new",)
    world.settle()
    assert world.life.state is State.IN_SERVICE
    assert world.life.certificate.standing is Standing.VALID
    assert "in an earlier definition only" in world.life.next


def test_a_definition_that_changed_while_it_was_tested_counts_as_not_tried() -> None:
    world = World(policy=replace(AUTOMATED, drift=DriftPolicy(coverage=DriftAction.ROLL)), standard=CHANGED)
    world.certify(tests=ALL, asked=REQUIRED)
    assert world.life.certificate.lacks == ()
    assert world.life.certificate.standing is Standing.GRACE


def test_a_policy_may_require_more_and_what_nobody_can_run_is_only_shown() -> None:
    asks = CertificationPolicy(require=("dcgm-diag", "storage"))
    node = STANDARD.of({}, asks)
    assert node.required == {**REQUIRED, "dcgm-diag": "sha256:d", "storage": ""}
    world = brought_up(coverage=DriftAction.ROLL)
    world.policy = replace(world.policy, certification=asks)
    world.settle()
    assert world.life.certificate.voided_because == "The certificate does not cover dcgm-diag."
    assert "does not cover dcgm-diag, storage" in world.life.next


@pytest.mark.parametrize(
    ("profile", "held", "asked"),
    [
        ("repair", ALL, ()),
        ("repair", proved("host", "pair"), ("host", "pair", "all-reduce")),
        ("repair", (), ("host", "pair", "all-reduce")),
        ("bringup", (), ()),
        ("unknown", (), ()),
    ],
)
def test_only_what_would_stay_open_is_run_in_addition(
    profile: str, held: tuple[CertifiedTest, ...], asked: tuple[str, ...]
) -> None:
    assert STANDARD.of({}, CertificationPolicy()).tests_for(profile, held) == asked


def test_without_a_table_nothing_is_required() -> None:
    assert Standard().of({"a": "b"}, CertificationPolicy()) == NodeStandard()


def test_every_profile_that_operation_asks_for_exists_and_is_a_purpose() -> None:
    assert set(PROFILES) <= set(catalogue.profiles())
    assert set(PROFILES) <= {purpose.value for purpose in Purpose}
    known = catalogue.proofs()
    brought = known["bringup"].proves
    for profile in PROFILES:
        assert set(known[profile].proves) <= set(brought), "what a shorter profile proves is a part of the bring-up"


def test_what_certificates_rest_on_leaves_out_variants_and_what_needs_something() -> None:
    for test in catalogue.tests().values():
        rests = not test.variant_of and not test.needs
        assert catalogue.runnable().get(test.name, "") == (test.digest if rests else "")
