"""The data files: complete, consistent, and floors that never guess."""

from __future__ import annotations

import pytest

from muster.certify import catalogue
from muster.certify.catalogue import Scope
from muster.errors import BadInputError


def test_profiles_name_only_tests_that_exist() -> None:
    for profile in catalogue.profiles().values():
        assert [t.name for t in catalogue.tests_of(profile)] == list(profile.tests)
        assert 0 < profile.weakest_rate <= 1
        assert profile.matchings >= 1


def test_each_kind_of_recertification_has_a_profile() -> None:
    assert {"bringup", "repair", "stack", "idle"} <= set(catalogue.profiles())


def test_an_unknown_profile_is_refused_with_those_that_exist() -> None:
    with pytest.raises(BadInputError, match="bringup"):
        catalogue.profile("burn-in")


def test_a_test_with_a_number_has_a_unit_and_a_deadline_beyond_its_duration() -> None:
    for test in catalogue.tests().values():
        assert bool(test.metric) == bool(test.unit)
        assert test.deadline_s > test.duration_s
    assert {t.scope for t in catalogue.tests().values()} == set(Scope)


def test_digests_differ_between_tests_and_follow_the_definition() -> None:
    tests = list(catalogue.tests().values())
    assert len({t.digest for t in tests}) == len(tests)
    changed = type(tests[0])(name="host", version=2, scope=Scope.NODE, duration_s=30, deadline_s=180)
    assert changed.digest != tests[0].digest


def test_every_floor_states_its_source_and_belongs_to_a_test_with_a_number() -> None:
    for floor in catalogue.floors():
        assert floor.source
        assert catalogue.tests()[floor.test].metric
        assert floor.value > 0


@pytest.mark.parametrize(
    ("product", "platform", "expected"),
    [
        ("NVIDIA-H100-80GB-HBM3", "aws", 300.0),
        ("NVIDIA-H100-80GB-HBM3", "azure", 150.0),
        ("NVIDIA-H100-80GB-HBM3", "", 300.0),
        ("NVIDIA-A100-SXM4-80GB", "aws", None),
        ("", "aws", None),
    ],
)
def test_pair_floor(product: str, platform: str, expected: float | None) -> None:
    found = catalogue.floor_for(
        "pair", product=product, platform=platform, nodes=2, gpus_per_node=8, one_domain=False
    )
    assert found == expected


def test_a_floor_of_one_accelerator_never_judges_another_with_a_similar_name() -> None:
    for product in ("NVIDIA-GH100X", "NVIDIA-GB2000"):
        found = catalogue.floor_for(
            "pair", product=product, platform="aws", nodes=2, gpus_per_node=8, one_domain=True
        )
        assert found is None


def test_transport_chooses_between_nvlink_and_network() -> None:
    def floor(one_domain: bool) -> float | None:
        return catalogue.floor_for(
            "pair", product="NVIDIA-GB200", platform="aws", nodes=2, gpus_per_node=4, one_domain=one_domain
        )

    assert (floor(True), floor(False)) == (500.0, 40.0)


def test_all_to_all_floor_falls_with_the_share_of_traffic_that_leaves_the_node() -> None:
    def floor(nodes: int) -> float:
        found = catalogue.floor_for(
            "all-to-all", product="NVIDIA-H100", platform="aws", nodes=nodes, gpus_per_node=8, one_domain=False
        )
        assert found is not None
        return found

    values = [floor(n) for n in (2, 3, 8, 64, 1024)]
    assert values == sorted(values, reverse=True)
    # For many nodes all traffic leaves the node: the two-node value times the 8 of 15 parts that left it there.
    assert values[-1] == pytest.approx(59 * 8 / 15, rel=0.01)


def test_a_size_that_was_never_measured_has_no_floor() -> None:
    found = catalogue.floor_for(
        "all-to-all", product="NVIDIA-GB200", platform="aws", nodes=5, gpus_per_node=4, one_domain=True
    )
    assert found is None
