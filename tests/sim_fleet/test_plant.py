"""Plant files: read strictly, refused in one sentence; the default plant is the acceptance story."""

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from muster.errors import BadInputError
from muster.sim.defects import CuredBy, DefectKind
from muster.sim.plant import default_plant, healthy_plant, load_plant, parse_plant


@given(seed=st.integers(0, 2**32), nodes=st.integers(8, 200))
def test_default_plant_has_every_story_defect_on_a_node_of_its_own(seed: int, nodes: int) -> None:
    plant = default_plant(seed, nodes)
    touched = [name for defect in plant.defects for name in defect.nodes()]
    assert len(set(touched)) == len(touched) == 7
    kinds = {defect.kind for defect in plant.defects}
    assert kinds == set(DefectKind) - {DefectKind.FLAKY_NODE}
    assert plant == default_plant(seed, nodes)


def test_default_plants_differ_by_seed() -> None:
    assert len({default_plant(seed).defects for seed in range(20)}) == 20


def test_every_rung_but_one_ends_a_story() -> None:
    cured = {defect.cured_by for defect in default_plant(3).defects}
    assert cured == {CuredBy.RESET_GPU, CuredBy.REBOOT, CuredBy.REPLACE, CuredBy.NONE}


def test_the_story_needs_eight_nodes() -> None:
    with pytest.raises(BadInputError, match="at least 8 nodes; 7 were asked for"):
        default_plant(1, 7)
    assert healthy_plant(1, 2).defects == ()


GOOD = """
seed: 5
nodes: 16
domains: 2
driver: 580.65.06
update: {atS: 3600, driver: 580.95.05}
jobs: {count: 2, nodes: 4, durationS: 1200}
defects:
  - {kind: bad-node, node: gpu-003, gpu: 7, curedBy: power-cycle}
  - {kind: bad-link, node: gpu-001, peer: gpu-002, factor: 0.4, curedBy: none}
  - {kind: flaky-node, node: gpu-004, probability: 0.5, curedBy: replace}
  - {kind: xid, node: gpu-005, xid: 79, curedBy: reboot, appears: time, afterS: 1800}
refusals:
  - {node: gpu-003, rung: replace, message: no spare}
"""


def test_a_plant_file_is_read(tmp_path: Path) -> None:
    file = tmp_path / "plant.yaml"
    file.write_text(GOOD)
    plant = load_plant(file)
    assert plant.nodes == 16
    assert plant.update is not None
    assert plant.update.spread_s == 120.0
    assert [d.kind.value for d in plant.defects] == ["bad-node", "bad-link", "flaky-node", "xid"]
    assert plant.last_event_s() == 3720.0


BAD = [
    ("- a list", "must be a mapping"),
    ("nodes: 0", "nodes must be between 1 and 10000, not 0"),
    ("nodes: 4\ndomains: 5", "domains must be between 1 and the number of nodes"),
    ("nodes: four", "Expected `int`"),
    ("nodez: 4", "unknown field `nodez`"),
    ("jobs: {count: 1, nodes: 100}", "1 to 64 nodes each"),
    ("jobs: {durationS: 0}", "positive durationS"),
    ("jobs: {durationS: .nan}", "must be finite"),
    ("update: {atS: -1, driver: x}", "update needs"),
    ("update: {driver: x}", "missing required field `atS`"),
    ("defects: [{kind: haunted, node: gpu-001, curedBy: none}]", "Invalid enum value 'haunted'"),
    ("defects: [{kind: bad-node, node: gpu-999, curedBy: none}]", "'gpu-999', which the fleet does not have"),
    ("defects: [{kind: bad-node, node: gpu-001}]", "missing required field `curedBy`"),
    ("defects: [{kind: bad-node, node: gpu-001, gpu: 8, curedBy: none}]", "gpu between 0 and 7, not 8"),
    ("defects: [{kind: bad-link, node: gpu-001, peer: gpu-001, factor: 0.4, curedBy: none}]", "needs a peer"),
    ("defects: [{kind: bad-link, node: gpu-001, peer: gpu-002, factor: 0.4, curedBy: reboot}]", "curedBy: none"),
    ("defects: [{kind: bad-node, node: gpu-001, peer: gpu-002, curedBy: none}]", "only a bad-link has"),
    ("defects: [{kind: slow-node, node: gpu-001, curedBy: none}]", "factor between 0 and 1"),
    ("defects: [{kind: slow-node, node: gpu-001, factor: .nan, curedBy: none}]", "finite"),
    ("defects: [{kind: flaky-node, node: gpu-001, curedBy: none}]", "needs a probability"),
    ("defects: [{kind: xid, node: gpu-001, xid: 7, curedBy: none}]", "needs an xid out of 48, 74, 79"),
    ("defects: [{kind: bad-node, node: gpu-001, curedBy: none, appears: time}]", "positive afterS"),
    ("defects: [{kind: bad-node, node: gpu-001, curedBy: none, afterS: 5}]", "positive afterS"),
    ("refusals: [{node: gpu-099, rung: reboot, message: x}]", "refusals[0] names the node 'gpu-099'"),
    ("refusals: [{node: gpu-001, rung: pray, message: x}]", "Invalid enum value 'pray'"),
    ("nodes: 8\nnodes: 9", "duplicate key"),
]


@pytest.mark.parametrize(("text", "says"), BAD, ids=[text[:40] for text, _ in BAD])
def test_a_bad_plant_is_refused_in_one_sentence(text: str, says: str, tmp_path: Path) -> None:
    file = tmp_path / "plant.yaml"
    file.write_text(text)
    with pytest.raises(BadInputError) as caught:
        load_plant(file)
    sentence = str(caught.value)
    assert says in sentence
    assert str(file) in sentence
    assert "\n" not in sentence


def test_a_missing_plant_is_named(tmp_path: Path) -> None:
    with pytest.raises(BadInputError, match=r"nowhere\.yaml"):
        load_plant(tmp_path / "nowhere.yaml")


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)
KEYS = st.sampled_from(["seed", "nodes", "domains", "driver", "update", "jobs", "defects", "refusals"])


@given(value=JSON | st.dictionaries(KEYS, JSON, max_size=4))
def test_nothing_but_a_sentence_comes_out_of_nonsense(value: Any) -> None:
    said = ""
    try:
        parse_plant(value, "nonsense.yaml")
    except BadInputError as error:
        said = str(error)
    assert said == "" or said.startswith("nonsense.yaml is not a")
    assert "\n" not in said
