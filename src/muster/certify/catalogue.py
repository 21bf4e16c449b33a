"""The tests, profiles and floors that ship with Muster (`certify/data/`), and tests of the user's own. Pure."""

from __future__ import annotations

import hashlib
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from enum import StrEnum
from functools import cache
from importlib import resources
from typing import Any

import msgspec

from muster import yamlio
from muster.errors import BadInputError
from muster.read import formats
from muster.resources.base import Model
from muster.resources.certification import CertificationSpec, CustomTest, Layer, ProfileTests, Reason


class Scope(StrEnum):
    """How many nodes one run of a test takes: one, two, or as many as there are."""

    NODE = "node"
    PAIR = "pair"
    GROUP = "group"


class CatalogueTest(Model, frozen=True, kw_only=True, rename=None, forbid_unknown_fields=True):
    """One test. `metric` and `unit` are empty when the test says only yes or no."""

    name: str
    version: int
    scope: Scope
    duration_s: int
    """Nominal run time; what cost is counted with."""
    deadline_s: int
    """A pod that runs longer is stopped and read as a timeout."""
    metric: str = ""
    unit: str = ""
    collective: str = ""
    below: Reason = Reason.BANDWIDTH
    """Reason of a run whose number is too low."""
    description: str = ""
    program: str = ""
    """Program of `muster.workloads` that measures it in the workers; empty for a test with an image of its own."""
    params: dict[str, Any] = {}
    """What the program is told beside nodes, ranks and device."""
    env: dict[str, str] = {}
    """Environment of the program, for example what keeps NCCL off NVLink. What the user sets for the pods wins."""
    command: tuple[str, ...] = ()
    image: str = ""
    """Image in which `command` runs, as a Job of its own."""
    parser: str = ""
    """Format of `muster.read` that reads the output of the command; empty: its last line is the report."""
    layer: Layer = Layer.UNKNOWN
    """What part of a node or path a failure of this test alone speaks of."""
    needs: tuple[str, ...] = ()
    """What must be there for the test to make sense: `storage` (spec.pods.storageClaim), `nics` (a NIC resource)."""
    variant_of: str = ""
    """Test of which this is the same measurement over fewer layers; run to find the layer, not for its own sake."""
    variant: str = ""
    """`net`: NVLink between nodes off. `rail`: one NIC at a time. Empty: as the library chooses."""

    @property
    def digest(self) -> str:
        """`sha256:<hex>` over the definition; a certificate names it, so a changed test is another test."""
        return "sha256:" + hashlib.sha256(msgspec.json.encode(self, order="deterministic")).hexdigest()

    @property
    def metric_key(self) -> str:
        """Key of the number in `NodeResult.metrics`, for example `pair.busbw_gb_per_s`; empty without a number."""
        return f"{self.name}.{self.metric}_{_UNIT_WORDS.get(self.unit, self.unit)}" if self.metric else ""


_UNIT_WORDS = {"GB/s": "gb_per_s", "TFLOP/s": "tflop_per_s", "steps/s": "per_s"}


class Profile(Model, frozen=True, kw_only=True, rename=None, forbid_unknown_fields=True):
    """What a node must pass, and how hard flaky nodes are looked for (see `data/profiles.yaml`)."""

    name: str
    description: str = ""
    tests: tuple[str, ...]
    matchings: int = 1
    weakest_rate: float = 0.8


class Floor(Model, frozen=True, kw_only=True, rename=None, forbid_unknown_fields=True):
    """The least value of one shape of run, and where the figure comes from."""

    test: str
    accelerator: str
    platform: str = ""
    transport: str = ""
    """`mnnvl` (one NVLink domain), `net`, or empty for any."""
    nodes: tuple[int, int]
    value: float
    scale: str = ""
    source: str


NEEDS = ("storage", "nics")
VARIANTS = ("", "net", "rail")
NAME = re.compile(r"[a-z0-9](?:[a-z0-9-]{0,38}[a-z0-9])?")
"""Names of tests become part of the names of pods."""


class _ProfilesFile(Model, frozen=True, kw_only=True, forbid_unknown_fields=True):
    profiles: tuple[Profile, ...]


class _FloorsFile(Model, frozen=True, kw_only=True, forbid_unknown_fields=True):
    floors: tuple[Floor, ...]


def _read(name: str) -> object:
    text = resources.files("muster.certify").joinpath("data", name).read_bytes()
    return yamlio.loads(text, f"certify/data/{name}")


@cache
def tests() -> dict[str, CatalogueTest]:
    """Every test by name, in the order of the file."""
    return read_tests(_read("tests.yaml"), "certify/data/tests.yaml")


@cache
def profiles() -> dict[str, Profile]:
    """Every profile by name, in the order of the file."""
    return read_profiles(_read("profiles.yaml"), tests(), "certify/data/profiles.yaml")


def proofs() -> dict[str, ProfileTests]:
    """What each profile asks for, and what a certificate can rest on after a pass: its tests but for variants."""
    return {name: ProfileTests(tests=p.tests, proves=_digests(tests_of(p))) for name, p in profiles().items()}


def runnable() -> dict[str, str]:
    """Every test that a certification can run with nothing given, variants left out -> digest of its definition."""
    return _digests(tests().values())


def _digests(chosen: Iterable[CatalogueTest]) -> dict[str, str]:
    return {test.name: test.digest for test in chosen if not test.variant_of and not test.needs}


@cache
def floors() -> tuple[Floor, ...]:
    """Every floor, in the order of the file: the first that fits counts."""
    return msgspec.convert(_read("floors.yaml"), _FloorsFile).floors


def read_tests(content: object, source: str) -> dict[str, CatalogueTest]:
    """The tests of a parsed file, by name. Raises BadInputError naming the test and what is wrong with it."""
    entries = content.get("tests") if isinstance(content, dict) else None
    if not isinstance(entries, list):
        raise BadInputError(f"{source} holds no list 'tests'; begin it with 'tests:' and one entry a test.")
    found: dict[str, CatalogueTest] = {}
    for number, entry in enumerate(entries, 1):
        name = entry.get("name") if isinstance(entry, dict) else None
        where = f"{source}: test {name[:60]!r}" if isinstance(name, str) else f"{source}: test number {number}"
        try:
            test = msgspec.convert(entry, CatalogueTest)
        except msgspec.ValidationError as error:
            raise BadInputError(f"{where} cannot be used: {_sentence(entry, error)}") from error
        if test.name in found:
            raise BadInputError(f"{where} is there twice; give one of them another name.")
        _check(test, where)
        found[test.name] = test
    for test in found.values():
        if test.variant_of and test.variant_of not in found:
            raise BadInputError(
                f"{source}: test '{test.name}' is a variant of '{test.variant_of}', which is no test."
            )
    return found


def read_profiles(content: object, known: Mapping[str, CatalogueTest], source: str) -> dict[str, Profile]:
    """The profiles of a parsed file, by name. Raises BadInputError."""
    try:
        read = msgspec.convert(content, _ProfilesFile).profiles
    except msgspec.ValidationError as error:
        raise BadInputError(f"{source} cannot be used: {error}.") from error
    found: dict[str, Profile] = {}
    for chosen in read:
        if chosen.name in found:
            raise BadInputError(f"{source}: profile '{chosen.name}' is there twice; give one of them another name.")
        named(chosen.tests, known, f"{source}: profile '{chosen.name}'")
        if chosen.matchings < 1 or not 0.0 < chosen.weakest_rate <= 1.0:
            raise BadInputError(
                f"{source}: profile '{chosen.name}' needs matchings of at least 1 and a weakest_rate in (0, 1]."
            )
        found[chosen.name] = chosen
    return found


def profile(name: str) -> Profile:
    """The profile called `name`. Raises BadInputError that lists those that exist."""
    found = profiles().get(name)
    if found is None:
        raise BadInputError(f"There is no test profile '{name[:60]}'; use one of {', '.join(profiles())}.")
    return found


def tests_of(chosen: Profile) -> tuple[CatalogueTest, ...]:
    """The tests of a profile, in its order."""
    return tuple(tests()[name] for name in chosen.tests)


def tests_for(spec: CertificationSpec) -> tuple[CatalogueTest, ...]:
    """The tests that a certification asks for: those of `spec.tests`, else of its profile and all its own.

    A test of the profile whose needs are not met is left out (`left_out` says which and why). Raises BadInputError
    for a test that is unknown, named twice, of the user's own and not well-formed, defined and not named, or named
    although its needs are not met.
    """
    chosen = profile(spec.profile)
    own = custom_tests(spec.custom_tests)
    if not spec.tests:
        picked = (*(test for test in tests_of(chosen) if not _unmet(test, spec)), *own.values())
        _check_together(spec, picked)
        return picked
    picked = named(spec.tests, {**tests(), **own}, "spec.tests")
    for test in picked:
        if missing := _unmet(test, spec):
            raise BadInputError(f"spec.tests names '{test.name}', which cannot run: {missing}.")
    idle = [name for name in own if name not in spec.tests]
    if idle:
        raise BadInputError(
            f"spec.customTests defines '{idle[0]}', but spec.tests does not name it; add or remove it."
        )
    _check_together(spec, picked)
    return picked


def _check_together(spec: CertificationSpec, picked: Sequence[CatalogueTest]) -> None:
    """What would be accepted and then not happen is refused. Raises BadInputError."""
    pairs = [test.name for test in picked if test.scope is Scope.PAIR and not test.variant_of]
    if len(pairs) > 1:
        raise BadInputError(
            f"A certification takes one test of scope pair, and {' and '.join(pairs)} are asked for; certify twice, "
            "or name in spec.tests the one that you want."
        )
    names = {test.name for test in picked}
    lost = next((test for test in picked if test.variant_of and test.variant_of not in names), None)
    if lost is not None:
        raise BadInputError(
            f"'{lost.name}' only follows a failure of '{lost.variant_of}', which is not among the tests; add that."
        )
    _check_floors(spec.floors, picked)


def _check_floors(floors: Mapping[str, float], picked: Sequence[CatalogueTest]) -> None:
    """A floor that judges nothing would let everything through. Raises BadInputError."""
    numeric = {test.name: test for test in picked if test.metric}
    for name, value in sorted(floors.items()):
        if name not in numeric:
            raise BadInputError(
                f"spec.floors has a floor for '{name[:60]}', which is no test of this certification that measures a "
                f"number; use {', '.join(numeric) or 'no floors'}."
            )
        if not math.isfinite(value) or value <= 0:
            raise BadInputError(f"spec.floors: the floor for '{name}' must be a number above 0, not {value}.")


def left_out(spec: CertificationSpec) -> tuple[tuple[str, str], ...]:
    """(test, why) for each test of the profile that is not run because something that it needs is not given."""
    if spec.tests:
        return ()
    return tuple((t.name, missing) for t in tests_of(profile(spec.profile)) if (missing := _unmet(t, spec)))


def _unmet(test: CatalogueTest, spec: CertificationSpec) -> str:
    """What a test needs and does not get, as the rest of a sentence; empty when it has everything."""
    pods = spec.pods
    if "storage" in test.needs and not pods.storage_claim:
        return "it needs a shared volume; set spec.pods.storageClaim"
    if "nics" in test.needs and not (pods.nic_resource or pods.nic_claim_template or pods.host_network):
        return "it needs the NICs in the pod; set spec.pods.nicResource, nicClaimTemplate or hostNetwork"
    return ""


def custom_tests(defined: Sequence[CustomTest]) -> dict[str, CatalogueTest]:
    """The user's own tests as tests of the catalogue, by name. Raises BadInputError."""
    found: dict[str, CatalogueTest] = {}
    for test in defined:
        where = f"spec.customTests: '{test.name[:60]}'"
        if test.name in tests():
            raise BadInputError(f"{where} has the name of a test that comes with Muster; choose another name.")
        if test.name in found:
            raise BadInputError(f"{where} is there twice; give one of them another name.")
        if test.scope not in {scope.value for scope in Scope}:
            raise BadInputError(f"{where} has scope '{test.scope[:40]}'; use {', '.join(Scope)}.")
        if not test.command or not all(test.command[:1]):
            raise BadInputError(f"{where} has no command; give the program and its arguments.")
        if test.parser and not test.image:
            raise BadInputError(f"{where} has a parser but no image; a program without one leaves a report.")
        if test.parser and test.parser not in formats.kinds():
            raise BadInputError(f"{where} has parser '{test.parser[:40]}'; use {', '.join(formats.kinds())}.")
        built = CatalogueTest(
            name=test.name,
            version=1,
            scope=Scope(test.scope),
            duration_s=test.duration_s,
            deadline_s=test.deadline_s,
            metric=test.metric,
            unit=test.unit,
            program="" if test.image else "command",
            params={} if test.image else {"command": list(test.command)},
            command=test.command if test.image else (),
            image=test.image,
            parser=test.parser,
            description="A test of the user's own.",
        )
        _check(built, where)
        found[test.name] = built
    return found


def named(names: Sequence[str], known: Mapping[str, CatalogueTest], where: str) -> tuple[CatalogueTest, ...]:
    """The tests called `names`, in that order. Raises BadInputError; `where` begins its sentence."""
    seen: list[CatalogueTest] = []
    for name in names:
        test = known.get(name)
        if test is None:
            raise BadInputError(
                f"{where} names the test '{name[:60]}', which does not exist; use {', '.join(known)}."
            )
        if test in seen:
            raise BadInputError(f"{where} names the test '{name}' twice; name it once.")
        seen.append(test)
    if not seen:
        raise BadInputError(f"{where} names no test; use {', '.join(known)}.")
    return tuple(seen)


def _check(test: CatalogueTest, where: str) -> None:
    """What the types do not say. Raises BadInputError."""
    if not NAME.fullmatch(test.name):
        raise BadInputError(f"{where} has a name that is not made of a-z, 0-9 and '-' (at most 40); change it.")
    if test.duration_s < 1 or test.deadline_s <= test.duration_s:
        raise BadInputError(
            f"{where} has a deadline of {test.deadline_s} s and a duration of {test.duration_s} s; the duration must "
            "be at least 1 and the deadline longer."
        )
    if bool(test.metric) != bool(test.unit):
        raise BadInputError(f"{where} has a metric or a unit, not both; give both or neither.")
    if bool(test.program) == bool(test.command):
        raise BadInputError(f"{where} needs a program or a command, and not both.")
    if test.command and not test.image:
        raise BadInputError(f"{where} has a command and no image to run it in; add image.")
    if test.variant not in VARIANTS or bool(test.variant) != bool(test.variant_of):
        raise BadInputError(f"{where} needs variant (net, rail) together with variant_of, or neither.")
    unknown = [need for need in test.needs if need not in NEEDS]
    if unknown:
        raise BadInputError(f"{where} needs '{unknown[0][:40]}', which is not known; use {', '.join(NEEDS)}.")


def _sentence(entry: object, error: msgspec.ValidationError) -> str:
    scope = entry.get("scope") if isinstance(entry, dict) else None
    if isinstance(scope, str) and scope not in {s.value for s in Scope}:
        return f"its scope is '{scope[:40]}'; use {', '.join(Scope)}."
    return f"{error}."


def floor_for(
    test: str, *, product: str, platform: str, nodes: int, gpus_per_node: int, one_domain: bool
) -> float | None:
    """The floor of a run in the unit of its test, or None when none is known (which is never a pass by itself).

    `product` is the label nvidia.com/gpu.product, `platform` one of aws, gcp, azure, oci or empty, `one_domain` true
    when all nodes of the run share an NVLink domain.
    """
    name = product.upper()
    transport = "mnnvl" if one_domain else "net"
    for floor in floors():
        least, most = floor.nodes
        if (
            floor.test == test
            and _is_accelerator(floor.accelerator, name)
            and floor.platform in ("", platform)
            and floor.transport in ("", transport)
            and least <= nodes <= most
        ):
            return floor.value * _scale(floor.scale, nodes, gpus_per_node)
    return None


def _is_accelerator(accelerator: str, product: str) -> bool:
    # Products read NVIDIA-H100-80GB-HBM3, NVIDIA-GB200, GH200: compare whole words, never parts of them.
    return accelerator in product.replace("_", "-").replace(" ", "-").split("-")


def _scale(scale: str, nodes: int, gpus: int) -> float:
    if scale != "all-to-all-cross" or nodes <= 2 or gpus < 1:
        return 1.0
    return (gpus / (2 * gpus - 1)) * (gpus * nodes - 1) / (gpus * nodes - gpus)
