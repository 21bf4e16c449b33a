"""Laws of layers: order of files, disjoint layers, constraints, digests."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from muster.configure.constraints import demand
from muster.configure.criteria import Dimension
from muster.configure.layers.source import LayerSource
from muster.configure.layers.stack import layered
from muster.configure.resolve import resolve
from muster.configure.versions import Range, Scheme
from muster.errors import BadInputError
from tests.configure.layer_cases import content_of, layer, small_catalogue

BASE = small_catalogue()
SCALARS = st.one_of(st.none(), st.booleans(), st.integers(-5, 5), st.sampled_from(["", "x", "yes", "1.30"]))
VALUES = st.recursive(
    SCALARS | st.lists(SCALARS, max_size=2),
    lambda inner: st.dictionaries(st.sampled_from(["a", "b", "image", "args"]), inner, max_size=3),
    max_leaves=6,
)
MAPS = st.dictionaries(st.sampled_from(["a", "b", "image", "args", "version"]), VALUES, max_size=4)
RANGES = st.builds(
    lambda operator, minor: f"{operator} 1.{minor}",
    st.sampled_from([">=", ">", "<", "<=", "=="]),
    st.integers(26, 40),
)


@st.composite
def files(draw: st.DrawFn) -> dict[str, Any]:
    """Patches of every file of the small catalogue; all of them fit unless constraints exclude each other."""
    made: dict[str, Any] = {}
    if draw(st.booleans()):
        made["components/agent.yaml"] = {"values": draw(MAPS)}
    if draw(st.booleans()):
        made["overlays/eks.yaml"] = {"components": {"agent": {"values": draw(MAPS)}}}
    if draw(st.booleans()):
        made.setdefault("overlays/eks.yaml", {})["constraints"] = {"kubernetes.version": draw(RANGES)}
    if draw(st.booleans()):
        made["overlays/base.yaml"] = {"constraints": {"kubernetes.version": draw(RANGES)}}
    if draw(st.booleans()):
        made["mixins/logs.yaml"] = {"components": {"agent": {"values": draw(MAPS)}}}
    return made


def applied(*layers: LayerSource) -> Any:
    """The catalogue, or the sentence of the refusal."""
    try:
        return layered(BASE, layers)
    except BadInputError as error:
        return str(error)


@given(files(), st.randoms(use_true_random=False))
def test_the_order_of_files_does_not_matter(content: dict[str, Any], random: Any) -> None:
    names = list(content)
    random.shuffle(names)
    one, other = layer(files=content), layer(files={name: content[name] for name in names})
    assert one.digest == other.digest
    assert applied(one) == applied(other)


@given(MAPS, MAPS, RANGES, RANGES)
def test_layers_on_disjoint_paths_commute(left: dict[str, Any], right: dict[str, Any], one: str, two: str) -> None:
    first = layer("one", {"components/agent.yaml": {"values": {"left": left}}, "overlays/base.yaml": _demands(one)})
    second = layer(
        "two", {"components/agent.yaml": {"values": {"right": right}}, "overlays/base.yaml": _demands(two)}
    )
    there, back = applied(first, second), applied(second, first)
    if isinstance(there, str):
        assert isinstance(back, str)
    else:
        assert content_of(there) == content_of(back)
        assert there.digest != back.digest


def _demands(text: str) -> dict[str, Any]:
    return {"constraints": {"kubernetes.version": text}}


@given(files(), files())
def test_layers_agree_or_conflict_whatever_their_order(one: dict[str, Any], two: dict[str, Any]) -> None:
    """Without overrides a later layer never silently wins: if both orders are accepted, they say the same."""
    there, back = applied(layer("one", one), layer("two", two)), applied(layer("two", two), layer("one", one))
    assert isinstance(there, str) == isinstance(back, str)
    if not isinstance(there, str):
        assert content_of(there) == content_of(back)


@given(files(), files())
def test_constraints_never_weaken(one: dict[str, Any], two: dict[str, Any]) -> None:
    made = applied(layer("one", one), layer("two", two))
    if isinstance(made, str):
        return
    for name, overlay in BASE.overlays.items():
        for constraint, text in overlay.constraints.items():
            merged = _range(made.overlays[name].constraints[constraint])
            for other in (text, *_stated(f"overlays/{name}.yaml", constraint, one, two)):
                assert merged.intersection(_range(other)) == merged
    try:
        before, after = (resolve({Dimension.SERVICE: "eks"}, c).recipe.constraints for c in (BASE, made))
    except BadInputError:
        return  # base and eks exclude each other by now
    for constraint, text in before.items():
        assert _range(after[constraint]).intersection(_range(text)) == _range(after[constraint])


def _stated(file: str, constraint: str, *contents: dict[str, Any]) -> list[str]:
    found = [content.get(file, {}).get("constraints", {}).get(constraint) for content in contents]
    return [text for text in found if text is not None]


def _range(text: str) -> Range:
    return Range.parse(demand("kubernetes.version", text, "test").value, Scheme.KUBERNETES)


@given(files())
def test_a_layer_twice_under_two_names_is_once(content: dict[str, Any]) -> None:
    once, twice = applied(layer("one", content)), applied(layer("one", content), layer("two", content))
    if isinstance(once, str):
        assert isinstance(twice, str)
    else:
        assert content_of(once) == content_of(twice)


@given(files())
def test_every_setting_of_a_layer_has_its_origin(content: dict[str, Any]) -> None:
    made = applied(layer("acme", content))
    if isinstance(made, str):
        return
    for file in content:
        if file == "components/agent.yaml" and content[file]["values"] not in ({}, {"image": {}}):
            changed = made.components["agent"].values != BASE.components["agent"].values
            assert changed <= (file in made.origins)
        for path, origins in made.origins.get(file, {}).items():
            assert origins[-1].source == f"layer acme: {file}", path


@given(files())
def test_the_base_is_not_touched(content: dict[str, Any]) -> None:
    applied(layer("acme", content))
    assert content_of(BASE) == content_of(small_catalogue())
