"""The tests, profiles and floors that ship with Muster, read from `certify/data/`."""

from __future__ import annotations

import hashlib
from enum import StrEnum
from functools import cache
from importlib import resources

import msgspec

from muster import yamlio
from muster.errors import BadInputError
from muster.resources.base import Model
from muster.resources.certification import Reason


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

    @property
    def digest(self) -> str:
        """`sha256:<hex>` over the definition; a certificate names it, so a changed test is another test."""
        return "sha256:" + hashlib.sha256(msgspec.json.encode(self, order="deterministic")).hexdigest()

    @property
    def metric_key(self) -> str:
        """Key of the number in `NodeResult.metrics`, for example `pair.busbw_gb_per_s`; empty without a number."""
        return f"{self.name}.{self.metric}_{_UNIT_WORDS.get(self.unit, self.unit)}" if self.metric else ""


_UNIT_WORDS = {"GB/s": "gb_per_s", "TFLOP/s": "tflop_per_s"}


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


class _TestsFile(Model, frozen=True, kw_only=True, forbid_unknown_fields=True):
    tests: tuple[CatalogueTest, ...]


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
    return {test.name: test for test in msgspec.convert(_read("tests.yaml"), _TestsFile).tests}


@cache
def profiles() -> dict[str, Profile]:
    """Every profile by name, in the order of the file."""
    return {profile.name: profile for profile in msgspec.convert(_read("profiles.yaml"), _ProfilesFile).profiles}


@cache
def floors() -> tuple[Floor, ...]:
    """Every floor, in the order of the file: the first that fits counts."""
    return msgspec.convert(_read("floors.yaml"), _FloorsFile).floors


def profile(name: str) -> Profile:
    """The profile called `name`. Raises BadInputError that lists those that exist."""
    found = profiles().get(name)
    if found is None:
        raise BadInputError(f"There is no test profile '{name}'; use one of {', '.join(profiles())}.")
    return found


def tests_of(chosen: Profile) -> tuple[CatalogueTest, ...]:
    """The tests of a profile, in its order."""
    return tuple(tests()[name] for name in chosen.tests)


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
