"""The file of `--providers`: the examples of the documentation are read, mistakes are told with the remedy."""

from __future__ import annotations

import re
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from muster import yamlio
from muster.errors import BadInputError
from muster.operate.providers import assembly
from muster.operate.providers.assembly import Surroundings, make_providers
from muster.operate.providers.config import ProvidersConfig, load_config, read_config
from muster.operate.providers.provider import NodeFactsForRepair, Progress
from muster.resources.base import ObjectMeta
from muster.resources.repair import Repair, RepairPhase, RepairSpec, Rung
from muster.sim.inprocess import InProcessApi
from muster.sim.store import Store
from muster.sim.virtual import VirtualClock, run_virtual

DOCS = Path(__file__).parents[2] / "docs"


def around(clock: VirtualClock) -> Surroundings:
    return Surroundings(api=InProcessApi(Store(clock)), clock=clock)


def one(**settings: Any) -> ProvidersConfig:
    return read_config({"providers": [settings]}, "providers.yaml")


def refusal(**settings: Any) -> str:
    with pytest.raises(BadInputError) as caught:
        one(**settings)
    return str(caught.value)


BMC = {"kind": "redfish", "usernameFile": "u", "passwordFile": "p"}


def test_the_example_is_read_and_has_every_kind() -> None:
    config = load_config(DOCS / "examples/providers/providers.yaml")
    kinds = [p.__struct_config__.tag for p in config.providers]
    assert kinds == ["job", "redfish", "aws", "gcp", "azure", "oci", "webhook", "ticket", "external"]


def test_what_the_example_comments_out_are_the_defaults() -> None:
    """Every commented key exists, and its value is what stands there anyway."""
    text = (DOCS / "examples/providers/providers.yaml").read_text()
    shown = re.sub(r"^( +)# (\w+: \S+|clientNamespaces: \[.*\]) *.*$", r"\1\2", text, flags=re.MULTILINE)
    shown = re.sub(r"^( +)(region|system): .*$", "", shown, flags=re.MULTILINE)
    assert shown.count("#") < text.count("#") - 8
    assert read_config(yamlio.loads(shown, "x"), "x") == load_config(DOCS / "examples/providers/providers.yaml")


def test_kinds_without_an_sdk_are_made() -> None:
    config = load_config(DOCS / "examples/providers/providers.yaml")
    plain = [p for p in config.providers if p.__struct_config__.tag not in ("aws", "gcp", "azure", "oci")]

    async def main(clock: VirtualClock) -> list[tuple[str, list[str]]]:
        made = make_providers(ProvidersConfig(providers=tuple(plain)), around(clock))
        return [(p.name, sorted(r.value for r in p.rungs)) for p in made]

    assert run_virtual(main) == [
        ("gpu-jobs", ["reboot", "reset-gpu", "restart-driver"]),
        ("bmc", ["power-cycle", "reboot"]),
        ("datacentre", ["power-cycle", "replace"]),
        ("vendor", ["ticket"]),
        ("hands", ["replace"]),
    ]


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"name": "a", "kind": "jobs"}, "did you mean `job`?"),
        ({"name": "a", "kind": "job", "drivrRoot": "/"}, "did you mean `driverRoot`?"),
        ({"name": "a", "kind": "job", "jobDeadlineS": "long"}, "jobDeadlineS"),
        ({"name": "A b", "kind": "job"}, "no name of a provider"),
        ({"name": "a", "kind": "job", "rungs": ["explode"]}, "explode"),
        ({"name": "a", **BMC}, "address"),
        ({"name": "a", **BMC, "address": "https://root:calvin@{name}"}, "without credentials"),
        ({"name": "a", **BMC, "address": "https://b", "caFile": "c", "insecureSkipVerify": True}, "choose one"),
        ({"name": "a", "kind": "webhook", "url": "ftp://x", "secretFile": "s"}, "no http(s) URL"),
        ({"name": "a", "kind": "ticket", "url": "https://x"}, "secretFile"),
        ({"name": "a", "kind": "gcp", "replace": "mark-unhealthy"}, "is for aws"),
        ({"kind": "job"}, "name"),
    ],
)
def test_mistakes_are_told_in_one_sentence(settings: dict[str, Any], said: str) -> None:
    told = refusal(**settings)
    assert told.startswith("providers.yaml")
    assert said in told
    assert "\n" not in told


def test_two_of_one_name_are_refused() -> None:
    job = {"name": "a", "kind": "job"}
    with pytest.raises(BadInputError, match="two providers named a"):
        read_config({"providers": [job, job]}, "x")


def test_rungs_beyond_the_kind_are_refused() -> None:
    async def main(clock: VirtualClock) -> None:
        make_providers(one(name="a", kind="job", rungs=["replace"]), around(clock))

    with pytest.raises(BadInputError, match="a cannot do replace; take it out of `rungs`"):
        run_virtual(main)


_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=6),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=6), inner, max_size=3),
)


@given(value=_values | st.fixed_dictionaries({"providers": st.lists(_values)}))
def test_anything_is_read_or_refused(value: Any) -> None:
    try:
        told = read_config(value, "x")
    except BadInputError as error:
        told = str(error)
    assert isinstance(told, ProvidersConfig) or told.startswith("x")


@pytest.mark.requirement("v2.4/CNP01", "v2.4/CNP02")
def test_the_provider_of_the_documentation_works_as_an_entry_point(monkeypatch: pytest.MonkeyPatch) -> None:
    blocks = re.findall(r"```(python|yaml)\n(.*?)```", (DOCS / "how-to/write-a-provider.md").read_text(), re.DOTALL)
    code = next(text for kind, text in blocks if kind == "python")
    config = next(text for kind, text in blocks if kind == "yaml")
    scope: dict[str, Any] = {}
    exec(compile(code, "write-a-provider.md", "exec"), scope)

    class Found(EntryPoint):
        def load(self) -> Any:
            return scope["make"]

    def entries(group: str) -> list[EntryPoint]:
        assert group == "muster.providers"
        return [Found("pdu", "my_package.pdu:make", group)]

    monkeypatch.setattr(assembly, "entry_points", entries)
    spec = RepairSpec(
        node_name="gpu-001",
        node_uid="u",
        episode="e",
        rung=Rung.POWER_CYCLE,
        provider="rack-pdu",
        boot_id_before="1",
    )
    repair = Repair(metadata=ObjectMeta(name="r"), spec=spec)

    async def main(clock: VirtualClock) -> list[Progress]:
        (pdu,) = make_providers(read_config(yamlio.loads(config, "x"), "x"), around(clock))
        assert pdu.rungs == {Rung.POWER_CYCLE}
        node = NodeFactsForRepair(name="gpu-001", boot_id="1")
        booted = NodeFactsForRepair(name="gpu-001", boot_id="2")
        return [await pdu.begin(repair, node), await pdu.look(repair, node), await pdu.look(repair, booted)]

    phases = [progress.phase for progress in run_virtual(main)]
    assert phases == [RepairPhase.RUNNING, RepairPhase.RUNNING, RepairPhase.DONE]


def test_a_plugin_that_is_not_installed_is_told() -> None:
    async def main(clock: VirtualClock) -> None:
        make_providers(one(name="a", kind="plugin", type="pdu"), around(clock))

    with pytest.raises(BadInputError, match="no package offers the type 'pdu'"):
        run_virtual(main)
