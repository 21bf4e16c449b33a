"""What others write reaches neither a terminal as a command nor a status as a megabyte."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from muster.configure.live.assess import assess
from muster.configure.live.check import MAX_MESSAGE
from muster.configure.live.drift import drift
from muster.configure.live.state import Installed, Via
from muster.configure.plan import plan
from muster.plain_text import plain
from tests.live.bed import World, container, on_gpu_nodes, pod, recipe_of, see, well, workload

ESCAPES = "\x1b[2J\x1b]0;owned\x07 \x9b31m \u202e line1\nline2\r\x00\x7f"
RECIPE = recipe_of(on_gpu_nodes("op"))


@given(st.text(max_size=300), st.integers(4, 100))
def test_plain_text_is_one_short_printable_line(text: str, limit: int) -> None:
    found = plain(text, limit)
    assert found.isprintable()
    assert len(found) <= limit
    assert plain(found, limit) == found


async def broken(world: World) -> None:
    await world.node("gpu-1", info={"kernelVersion": f"6.8.0{ESCAPES}"})
    deployment = workload("Deployment", "web", "op")
    stuck = {
        **well("Deployment"),
        "availableReplicas": 0,
        "conditions": [
            {
                "type": "Progressing",
                "status": "False",
                "reason": "ProgressDeadlineExceeded",
                "message": ESCAPES + "x" * 100_000,
            }
        ],
    }
    failed: dict[str, Any] = {"conditions": [{"type": "Failed", "status": "True", "reason": "R", "message": ESCAPES}]}
    await world.install(
        "op",
        (deployment, stuck),
        (workload("Job", "setup", "op"), failed),
        status="failed",
        description=f"Upgrade failed: {ESCAPES}",
        version=f"1.9{ESCAPES}",
        values={"a": ESCAPES},
    )
    waiting = container(state={"waiting": {"reason": f"Err{ESCAPES}", "message": ESCAPES * 50}})
    await world.add_pod(pod("web-1", "op", ("Deployment", "web"), phase="Pending", containers=[waiting]))


def texts(values: Any) -> list[str]:
    return [getattr(v, name) for v in values for name in v.__struct_fields__ if isinstance(getattr(v, name), str)]


def test_no_message_holds_a_control_character_or_grows_without_bound() -> None:
    recipe = recipe_of(on_gpu_nodes("op"), constraints={"kernel.version": ">= 7.0"})
    live = see(recipe, broken)
    hostile = Installed(
        Via.ARGOCD, f"x{ESCAPES}", "op", False, ESCAPES, chart="gpu-operator", chart_version=ESCAPES, note=ESCAPES
    )
    live = type(live)(**{**live.__dict__, "installed": (*live.installed, hostile)})
    found = [*texts(assess(recipe, plan(recipe), live)), *texts(drift(recipe, plan(recipe), live))]
    assert len(found) > 20
    for text in found:
        assert text.isprintable(), text
        assert len(text) <= MAX_MESSAGE, text
