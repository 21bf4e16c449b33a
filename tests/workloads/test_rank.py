"""What a rank reports, and the words it may use."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from muster.resources.certification import Reason
from muster.workloads.progress import Progress, read_progress
from muster.workloads.rank import REASONS, RankFailure, RankResult, failed

numbers = st.one_of(st.none(), st.floats())


@given(value=numbers, compute=numbers, fact=st.floats(), ok=st.booleans(), message=st.text(max_size=600))
def test_a_result_survives_being_written(
    value: float | None, compute: float | None, fact: float, ok: bool, message: str
) -> None:
    result = RankResult(ok=ok, value=value, compute_s=compute, facts={"x": fact}, message=message, suspects=("a",))
    again = RankResult.from_json(result.to_json())
    assert again.ok == ok
    assert again.suspects == ("a",)
    assert again.message == message[:500]
    assert again.value == (value if value is not None and math.isfinite(value) else None)
    assert again.compute_s == (compute if compute is not None and math.isfinite(compute) else None)
    assert again.facts == ({"x": fact} if math.isfinite(fact) else {})


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_a_value_that_is_no_number_is_never_a_pass(value: float) -> None:
    result = RankResult(ok=True, value=value, unit="GB/s").honest()
    assert not result.ok
    assert result.reason == "numeric"
    assert result.value is None


def test_a_finite_value_stands() -> None:
    result = RankResult(ok=True, value=3.0)
    assert result.honest() is result


@pytest.mark.parametrize("text", ["", "[]", "{", '{"ok": 1}', "NaN", "[" * 100_000])
def test_what_is_no_result_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="result of a rank"):
        RankResult.from_json(text)


@given(
    st.dictionaries(
        st.sampled_from(["ok", "value", "sizes", "facts", "gpu", "suspects"]),
        st.recursive(
            st.one_of(st.none(), st.booleans(), st.floats(), st.text(max_size=5)),
            lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
            max_leaves=8,
        ),
    )
)
def test_hostile_json_gives_a_result_or_a_sentence(content: dict[str, object]) -> None:
    text = json.dumps(content)
    if not isinstance(content.get("ok"), bool):
        with pytest.raises(ValueError, match="result of a rank"):
            RankResult.from_json(text)
        return
    result = RankResult.from_json(text)
    assert result.ok is content["ok"]
    assert result.value is None or math.isfinite(result.value)


def test_reasons_are_those_of_a_certification() -> None:
    assert set(REASONS) <= {reason.value for reason in Reason}
    with pytest.raises(ValueError, match="no reason"):
        RankFailure("tired", "x")
    assert failed(RankFailure("hang", "no answer", ("b",))) == RankResult(
        ok=False, reason="hang", message="no answer", suspects=("b",)
    )


def test_progress_is_read_back_whole_after_a_longer_line(tmp_path: Path) -> None:
    path = tmp_path / "progress"
    progress = Progress(path)
    progress.enter("a phase with a very long name indeed, longer than is kept", step=123456, waiting=True)
    progress.enter("b", step=1)
    found = read_progress(path)
    assert (found["phase"], found["step"], found["waiting"]) == ("b", 1, False)


def test_progress_that_is_not_there_is_empty(tmp_path: Path) -> None:
    assert read_progress(tmp_path / "none") == {}
    (tmp_path / "bad").write_bytes(b"\xff[1")
    assert read_progress(tmp_path / "bad") == {}
    Progress(None).enter("nothing is written")
