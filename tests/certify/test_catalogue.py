"""Bad data is refused in one sentence that names the test; what a certification asks for is what it gets."""

from __future__ import annotations

import importlib
from typing import Any

import pytest

from muster.certify import catalogue
from muster.certify.catalogue import (
    CatalogueTest,
    Scope,
    custom_tests,
    left_out,
    read_profiles,
    read_tests,
)
from muster.errors import BadInputError
from muster.resources.certification import CertificationSpec, CustomTest, Layer, Pods

GOOD: dict[str, Any] = {
    "name": "mine",
    "version": 1,
    "scope": "node",
    "duration_s": 10,
    "deadline_s": 60,
    "program": "host",
}


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"scope": "rack"}, "'mine' cannot be used: its scope is 'rack'; use node, pair, group"),
        ({"deadline_s": 10}, "deadline of 10 s and a duration of 10 s"),
        ({"duration_s": 0}, "at least 1"),
        ({"metric": "busbw"}, "a metric or a unit, not both"),
        ({"program": ""}, "needs a program or a command"),
        ({"command": ["x"], "image": "i"}, "needs a program or a command"),
        ({"program": "", "command": ["x"]}, "no image to run it in"),
        ({"variant": "net"}, "variant"),
        ({"variant": "net", "variant_of": "other"}, "variant of 'other', which is no test"),
        ({"needs": ["luck"]}, "needs 'luck'"),
        ({"name": "Mine!"}, "made of a-z"),
        ({"name": "a" * 41}, "at most 40"),
        ({"colour": "red"}, "colour"),
        ({"below": "bad-luck"}, "bad-luck"),
        ({"version": "new"}, "'mine' cannot be used"),
    ],
)
def test_a_test_that_cannot_be_used_is_refused_by_name(change: dict[str, Any], sentence: str) -> None:
    with pytest.raises(BadInputError) as caught:
        read_tests({"tests": [{**GOOD, **change}]}, "mine.yaml")
    assert sentence in str(caught.value)
    assert str(caught.value).startswith("mine.yaml: test ")
    assert str(caught.value).endswith(".")


@pytest.mark.parametrize("content", [None, [], {}, {"tests": {}}, "tests"])
def test_a_file_without_tests_is_refused(content: object) -> None:
    with pytest.raises(BadInputError, match="holds no list 'tests'"):
        read_tests(content, "mine.yaml")


def test_two_of_a_name_are_refused() -> None:
    with pytest.raises(BadInputError, match="'mine' is there twice"):
        read_tests({"tests": [GOOD, GOOD]}, "mine.yaml")


def test_entries_that_are_no_mapping_are_refused() -> None:
    with pytest.raises(BadInputError, match="test number 2"):
        read_tests({"tests": [GOOD, "host"]}, "mine.yaml")


@pytest.mark.parametrize(
    ("profile", "sentence"),
    [
        ({"tests": ["mine", "nothing"]}, "names the test 'nothing', which does not exist; use mine"),
        ({"tests": ["mine", "mine"]}, "twice"),
        ({"tests": []}, "names no test"),
        ({"tests": ["mine"], "matchings": 0}, "matchings"),
        ({"tests": ["mine"], "weakest_rate": 0.0}, "weakest_rate"),
        ({"tests": ["mine"], "speed": 1}, "speed"),
    ],
)
def test_a_profile_that_cannot_be_used_is_refused(profile: dict[str, Any], sentence: str) -> None:
    known = read_tests({"tests": [GOOD]}, "mine.yaml")
    with pytest.raises(BadInputError) as caught:
        read_profiles({"profiles": [{"name": "p", **profile}]}, known, "profiles.yaml")
    assert sentence in str(caught.value)


def test_profiles_of_one_name_are_refused() -> None:
    known = read_tests({"tests": [GOOD]}, "mine.yaml")
    twice = [{"name": "p", "tests": ["mine"]}] * 2
    with pytest.raises(BadInputError, match="profile 'p' is there twice"):
        read_profiles({"profiles": twice}, known, "profiles.yaml")


def test_the_profiles_of_the_lifecycle_run_what_they_always_did() -> None:
    """A certificate names its tests; another order or another test would be another certificate."""
    assert {name: found.tests for name, found in catalogue.profiles().items() if name not in ("quick", "full")} == {
        "bringup": (
            "host",
            "gpu-burn",
            "nvlink-loopback",
            "pair",
            "pair-net",
            "pair-rail",
            "all-to-all",
            "all-reduce",
        ),
        "repair": ("host", "gpu-burn", "nvlink-loopback", "pair"),
        "stack": ("host", "gpu-burn", "nvlink-loopback", "pair", "all-reduce"),
        "idle": ("host", "gpu-burn", "pair"),
    }


def test_the_digest_covers_what_decides() -> None:
    test = catalogue.tests()["pair"]
    changes: tuple[dict[str, Any], ...] = (
        {"params": {}},
        {"env": {"A": "b"}},
        {"program": "pair"},
        {"layer": Layer.GPU},
    )
    for change in changes:
        fields = {name: getattr(test, name) for name in test.__struct_fields__} | change
        assert CatalogueTest(**fields).digest != test.digest


def test_programs_and_parameters_are_those_that_exist() -> None:
    from muster.workloads.programs import PROGRAMS

    for test in catalogue.tests().values():
        if test.program:
            assert test.program in PROGRAMS
            known = getattr(importlib.import_module(f"muster.workloads.{test.program}"), "PARAMS", None)
            assert known is None or set(test.params) <= set(known)


def test_a_variant_measures_the_same_over_fewer_layers() -> None:
    for test in catalogue.tests().values():
        if test.variant_of:
            whole = catalogue.tests()[test.variant_of]
            assert (test.scope, test.metric, test.unit, test.collective) == (
                whole.scope,
                whole.metric,
                whole.unit,
                whole.collective,
            )
            assert test.layer is Layer.NETWORK
            assert whole.layer is Layer.UNKNOWN


# What a certification asks for


def spec(**fields: Any) -> CertificationSpec:
    return CertificationSpec(nodes=("n1",), profile="bringup", **fields)


def custom(**fields: Any) -> CustomTest:
    return CustomTest(**{"name": "mine", "command": ("./probe",), **fields})


def test_named_tests_replace_those_of_the_profile_in_their_order() -> None:
    assert [t.name for t in catalogue.tests_for(spec(tests=("pair", "host")))] == ["pair", "host"]


def test_own_tests_come_after_the_profile() -> None:
    found = catalogue.tests_for(spec(custom_tests=(custom(scope="group", metric="rate", unit="GB/s"),)))
    assert [t.name for t in found][-1] == "mine"
    assert found[-1].scope is Scope.GROUP
    assert found[-1].program == "command"
    assert found[-1].params == {"command": ["./probe"]}
    assert found[-1].metric_key == "mine.rate_gb_per_s"


def test_an_own_image_may_leave_output_that_a_reader_knows() -> None:
    found = catalogue.custom_tests([custom(image="i:1", parser="nccl-tests", metric="busbw", unit="GB/s")])
    assert found["mine"].parser == "nccl-tests"
    with pytest.raises(BadInputError, match="use dcgm-diag"):
        catalogue.custom_tests([custom(image="i:1", parser="nccl-test")])
    with pytest.raises(BadInputError, match="no image"):
        catalogue.custom_tests([custom(parser="nccl-tests")])


def test_an_own_test_with_an_image_runs_as_a_job_of_its_own() -> None:
    (found,) = custom_tests([custom(image="probe:1")]).values()
    assert (found.program, found.command, found.image) == ("", ("./probe",), "probe:1")


@pytest.mark.parametrize(
    ("fields", "sentence"),
    [
        ({"tests": ("pair", "nothing")}, "'nothing', which does not exist"),
        ({"tests": ("pair", "pair")}, "twice"),
        ({"custom_tests": (custom(name="pair"),)}, "has the name of a test that comes with Muster"),
        ({"custom_tests": (custom(), custom())}, "twice"),
        ({"custom_tests": (custom(scope="rack"),)}, "has scope 'rack'; use node, pair, group"),
        ({"custom_tests": (custom(command=()),)}, "has no command"),
        ({"custom_tests": (custom(command=("",)),)}, "has no command"),
        ({"custom_tests": (custom(duration_s=500),)}, "deadline of 300 s and a duration of 500 s"),
        ({"custom_tests": (custom(name="My Test"),)}, "made of a-z"),
        ({"custom_tests": (custom(unit="GB/s"),)}, "metric or a unit"),
        ({"tests": ("pair",), "custom_tests": (custom(),)}, "does not name it"),
        ({"tests": ("pair", "point-to-point")}, "takes one test of scope pair, and pair and point-to-point"),
        ({"custom_tests": (custom(scope="pair"),)}, "pair and mine are asked for"),
        ({"tests": ("host", "pair-net")}, "'pair-net' only follows a failure of 'pair'"),
        ({"tests": ("storage",)}, "set spec.pods.storageClaim"),
        ({"floors": {"pear": 300.0}}, "'pear', which is no test"),
        ({"floors": {"host": 1.0}}, "measures a number"),
        ({"floors": {"pair": 0.0}}, "above 0"),
        ({"floors": {"pair": float("nan")}}, "above 0"),
        ({"tests": ("host",), "floors": {"pair": 300.0}}, "use no floors"),
    ],
)
def test_what_cannot_be_run_as_asked_is_refused(fields: dict[str, Any], sentence: str) -> None:
    with pytest.raises(BadInputError) as caught:
        catalogue.tests_for(spec(**fields))
    assert sentence in str(caught.value)


def test_an_unknown_profile_is_refused() -> None:
    with pytest.raises(BadInputError, match="no test profile 'burn-in'; use one of bringup"):
        catalogue.tests_for(CertificationSpec(profile="burn-in"))


def test_a_test_of_the_profile_that_lacks_something_is_left_out_by_name() -> None:
    full = CertificationSpec(nodes=("n1",), profile="full")
    out = dict(left_out(full))
    assert set(out) == {"storage", "nic-loopback"}
    assert "storageClaim" in out["storage"]
    assert not set(out) & {t.name for t in catalogue.tests_for(full)}
    given = CertificationSpec(profile="full", pods=Pods(storage_claim="data", nic_resource="rdma/ib", nics=8))
    assert left_out(given) == ()
    assert {"storage", "nic-loopback"} <= {t.name for t in catalogue.tests_for(given)}
