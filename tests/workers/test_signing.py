"""Requests of the coordinator: only genuine ones, meant for this process, and each only once."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from muster.workloads import signing
from muster.workloads.signing import WINDOW_S, Asked, Gate, RefusedError, same, sign_answer, sign_request

TOKEN = "k" * 32
NOW = 1_790_000_000.0


def gate(now: float = NOW, token: str = TOKEN) -> Gate:
    return Gate(token, "n1", "inc", lambda: now)


def asked(**changes: object) -> Asked:
    fields = {
        "method": "POST",
        "target": "/runs",
        "node": "n1",
        "incarnation": "inc",
        "time_text": f"{NOW:.3f}",
        "nonce": "nonce-1",
        "body": b"{}",
    }
    return Asked(**{**fields, **changes})  # type: ignore[arg-type]  # fields by name


def refusal(g: Gate, request: Asked, signature: str | None = None) -> RefusedError:
    with pytest.raises(RefusedError) as caught:
        g.check(request, sign_request(TOKEN, request) if signature is None else signature)
    return caught.value


def test_a_genuine_request_passes_once() -> None:
    g = gate()
    g.check(asked(), sign_request(TOKEN, asked()))
    assert "sent before" in str(refusal(g, asked()))


@pytest.mark.parametrize(
    "change",
    [
        {"method": "DELETE"},
        {"target": "/runs/x"},
        {"node": "n2"},
        {"incarnation": "other"},
        {"time_text": f"{NOW + 1:.3f}"},
        {"nonce": "nonce-2"},
        {"body": b"{} "},
    ],
)
@pytest.mark.requirement("v2.4/SEC13")
def test_whatever_is_changed_on_the_way_breaks_the_signature(change: dict[str, object]) -> None:
    error = refusal(gate(), asked(**change), sign_request(TOKEN, asked()))
    assert (error.status, error.known) == (401, False)


def test_another_token_is_refused_without_a_reason() -> None:
    assert refusal(gate(), asked(), sign_request("x" * 32, asked())).known is False


def test_a_request_for_another_node_or_process_is_refused_by_name() -> None:
    assert refusal(gate(), asked(node="n2")).status == 421
    assert refusal(gate(), asked(incarnation="older")).status == 410


def test_the_state_may_be_asked_without_knowing_the_process() -> None:
    request = asked(method="GET", target="/state", incarnation="")
    gate().check(request, sign_request(TOKEN, request))
    assert refusal(gate(), asked(method="GET", target="/runs/x", incarnation="")).status == 410


@pytest.mark.parametrize(
    ("off_s", "passes"), [(-WINDOW_S + 1, True), (WINDOW_S - 1, True), (-301.0, False), (301.0, False)]
)
def test_clocks_may_differ_within_the_window(off_s: float, passes: bool) -> None:
    g = gate(NOW + off_s)
    if passes:
        g.check(asked(), sign_request(TOKEN, asked()))
    else:
        assert "clocks" in str(refusal(g, asked()))
    assert g.skew_s == pytest.approx(off_s, abs=0.01)


@pytest.mark.parametrize("text", ["", "soon", "nan", "inf", "-inf"])
def test_a_time_that_is_none_is_refused(text: str) -> None:
    assert refusal(gate(), asked(time_text=text)).status == 400


def test_nonces_are_bounded_and_never_forgotten_within_the_window(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(signing, "NONCES_LIMIT", 3)
    now = [NOW]
    g = Gate(TOKEN, "n1", "inc", lambda: now[0], lambda: now[0])
    for i in range(3):
        g.check(asked(nonce=f"n{i}"), sign_request(TOKEN, asked(nonce=f"n{i}")))
    assert refusal(g, asked(nonce="n3")).status == 503
    assert "sent before" in str(refusal(g, asked(nonce="n0")))
    now[0] = NOW + 2 * WINDOW_S + 1
    later = asked(nonce="n4", time_text=f"{now[0]:.3f}")
    g.check(later, sign_request(TOKEN, later))


def test_a_clock_set_ahead_and_back_again_makes_no_old_request_fresh() -> None:
    now = [NOW]
    g = Gate(TOKEN, "n1", "inc", lambda: now[0], lambda: 0.0)
    g.check(asked(nonce="n0"), sign_request(TOKEN, asked(nonce="n0")))
    now[0] = NOW + 3600.0
    ahead = asked(nonce="n1", time_text=f"{now[0]:.3f}")
    g.check(ahead, sign_request(TOKEN, ahead))
    now[0] = NOW + 1.0
    assert "sent before" in str(refusal(g, asked(nonce="n0")))


def test_a_short_token_is_refused() -> None:
    with pytest.raises(ValueError, match="16"):
        gate(token="short")


def test_an_answer_is_bound_to_its_request() -> None:
    signature = sign_answer(TOKEN, 200, "nonce-1", b"{}")
    assert not same(sign_answer(TOKEN, 200, "nonce-2", b"{}"), signature)
    assert not same(sign_answer(TOKEN, 404, "nonce-1", b"{}"), signature)
    assert not same(sign_answer(TOKEN, 200, "nonce-1", b"{ }"), signature)


@given(st.lists(st.text(max_size=8), min_size=6, max_size=6), st.lists(st.text(max_size=8), min_size=6, max_size=6))
def test_different_requests_have_different_signatures(a: list[str], b: list[str]) -> None:
    assert (sign_request(TOKEN, Asked(*a)) == sign_request(TOKEN, Asked(*b))) == (a == b)
