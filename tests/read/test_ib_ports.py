"""Network ports: what must hold for any number of ports, in any order, spelling and cut."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from muster.errors import BadInputError
from muster.read import formats
from muster.read.fabric_ports import thresholds
from muster.read.fabric_ports.counters import canonical
from tests.read.cases import DATA, as_input, read_text

FAMILIES = ("ib-", "roce-", "ethernet-", "optical-", "optics-", "copper-")
INPUTS = sorted(
    path
    for path in (DATA / "cases").glob("*/input.*")
    if path.parent.name.startswith(FAMILIES) and path.suffix in (".txt", ".csv", ".json")
)


def ca(device: str, *, state: str = "Active", physical: str = "LinkUp", rate: int = 400) -> str:
    return (
        f"CA '{device}'\n\tCA type: MT4129\n\tNumber of ports: 1\n\tFirmware version: 28.1.1\n\tPort 1:\n"
        f"\t\tState: {state}\n\t\tPhysical state: {physical}\n\t\tRate: {rate}\n\t\tBase lid: 9\n\t\tSM lid: 1\n"
        f"\t\tPort GUID: 0x1\n\t\tLink layer: InfiniBand\n"
    )


def said(report: dict[str, Any]) -> tuple[set[Any], set[Any]]:
    """What is concluded, without order and line numbers."""
    verdicts = {(row["of"], row["result"], row["reason"]) for row in report["verdicts"]}
    return verdicts, {(fault["code"], str(fault["entity"]), fault["count"]) for fault in report["faults"]}


def read_path(path: Path, data: bytes | None = None) -> dict[str, Any]:
    content = path.read_bytes() if data is None else data
    return formats.read([as_input(path.name, content)], {}).plain()


@pytest.mark.parametrize("path", INPUTS, ids=lambda path: f"{path.parent.name}/{path.name}")
def test_a_cut_text_is_read_as_far_as_it_goes(path: Path) -> None:
    data = path.read_bytes()
    whole = read_path(path)
    for at in random.Random(path.name).sample(range(1, len(data)), k=min(25, len(data) - 1)):
        try:
            cut = read_path(path, data[:at])
        except BadInputError:
            continue  # too short to be recognised
        if b"\n" in data[:at].rstrip(b"\n") and not data[:at].endswith(b"\n") and path.suffix != ".json":
            assert cut["truncated"], f"cut at byte {at}"
        wrong = {fault["code"] for fault in cut["faults"]} - {fault["code"] for fault in whole["faults"]}
        assert wrong <= {"optic-rx-dark", "port-disabled"}, f"cut at byte {at}"


@pytest.mark.parametrize("path", INPUTS, ids=lambda path: f"{path.parent.name}/{path.name}")
def test_line_ends_and_colours_change_nothing(path: Path) -> None:
    data = path.read_bytes()
    assert said(read_path(path, data.replace(b"\n", b"\r\n"))) == said(read_path(path))
    if path.suffix == ".txt":
        colourful = b"\n".join(b"\x1b[0m" + line for line in data.split(b"\n")[:-1]) + b"\n"
        assert said(read_path(path, colourful)) == said(read_path(path))


@given(
    st.lists(st.tuples(st.sampled_from(["Active", "Down"]), st.sampled_from([200, 400])), min_size=1, max_size=9),
    st.randoms(use_true_random=False),
)
def test_every_port_is_judged_by_itself_in_any_order(ports: list[tuple[str, int]], order: random.Random) -> None:
    texts = [
        ca(f"mlx5_{n}", state=state, physical="LinkUp" if state == "Active" else "Polling", rate=rate)
        for n, (state, rate) in enumerate(ports)
    ]
    context = {"expected_rate_gbps": 400}
    report = read_text("".join(texts), "ib", context)
    for n, (state, rate) in enumerate(ports):
        result = "PASS" if (state, rate) == ("Active", 400) else "FAIL"
        assert (f"mlx5_{n}/1", result) in {(row["of"], row["result"]) for row in report["verdicts"]}
    assert report["values"]["ports"]["value"] == len(ports)
    order.shuffle(texts)
    assert said(read_text("".join(texts), "ib", context)) == said(report)


@given(st.integers(0, 2**40), st.integers(0, 2**40), st.booleans())
def test_hexadecimal_and_decimal_counts_are_the_same(symbol: int, recovered: int, upper: bool) -> None:
    def block(show: Any) -> str:
        head = "Port=4 Lid=0x0010 GUID=0x00000000000000ab Device=4129 Port Name=x\n"
        return (
            head + f"symbol_error_counter_extended={show(symbol)}\n"
            f"link_error_recovery_counter_extended={show(recovered)}\n"
        )

    digits = "X" if upper else "x"
    hexadecimal = read_text(block(lambda n: f"0x{n:016{digits}}"), "ib")
    assert said(hexadecimal) == said(read_text(block(str), "ib"))
    assert hexadecimal["values"]["symbol_error_counter_extended"]["value"] == symbol
    assert bool(hexadecimal["faults"]) == (symbol > 10_000 or recovered > 10 or (symbol > 0 and recovered > 0))


@given(st.integers(0, 10**6), st.integers(0, 10**6), st.integers(1, 10**6))
def test_only_the_increase_counts(before: int, more: int, seconds: int) -> None:
    path = "/sys/class/infiniband/mlx5_0/ports/1/counters/symbol_error"
    text = f"{path}:{2**33 + before}\n{path}:{2**33 + before + more}\n"
    report = read_text(text, "ib", {"interval_s": seconds})
    assert bool(report["faults"]) == (more * 3600 > 120 * seconds)
    assert report["values"]["increases"]["value"] == {"mlx5_0/1": {"symbol_error": more}} if more else True


def test_a_stopped_counter_gives_no_pass() -> None:
    path = "/sys/class/infiniband/mlx5_0/ports/1/counters/symbol_error"
    report = read_text(f"{path}:65535\n{path}:65535\n", "ib", {"interval_s": 60})
    assert not any(row["result"] == "PASS" for row in report["verdicts"])
    assert any(row["reason"] == "counter-saturated" for row in report["verdicts"])


def test_no_expectation_is_no_verdict_on_the_rate() -> None:
    report = read_text(ca("mlx5_7"), "ib")
    assert ("mlx5_7/1 rate", "UNKNOWN", "expectation-missing") in said(report)[0]
    assert not any(row["of"] == "mlx5_7/1" for row in report["verdicts"])


def test_ports_that_nobody_uses_are_no_fault() -> None:
    text = ca("mlx5_0") + ca("mlx5_1", state="Down", physical="Polling", rate=10)
    assert len(read_text(text, "ib")["faults"]) == 1
    assert read_text(text, "ib", {"unused_ports": ["mlx5_1"]})["faults"] == []
    assert read_text(text, "ib", {"expected_active_ports": 1})["faults"] == []
    codes = {fault["code"] for fault in read_text(text, "ib", {"expected_active_ports": 2})["faults"]}
    assert codes == {"port-down", "ports-missing"}


def test_states_and_counters_of_a_node_are_read_together() -> None:
    counters = "/sys/class/infiniband/mlx5_3/ports/1/counters/link_downed:90\n"
    inputs = [as_input("state", ca("mlx5_3").encode()), as_input("counters", counters.encode())]
    report = formats.read(inputs, {"expected_rate_gbps": 400}).plain()
    assert [fault["code"] for fault in report["faults"]] == ["port-link-flapping"]
    assert not any(row["of"] == "mlx5_3/1" and row["result"] == "PASS" for row in report["verdicts"])


@pytest.mark.parametrize(
    "context",
    [
        {"expected_rate_gbps": "fast"},
        {"expected_rate_gbps": {"mlx5_0": -1}},
        {"interval_s": 0},
        {"unused_ports": "mlx5_0"},
        {"gid_index": True},
        {"expected_fec": 7},
    ],
)
def test_a_context_that_cannot_be_used_is_refused(context: dict[str, Any]) -> None:
    with pytest.raises(BadInputError, match="in the context must be"):
        read_text(ca("mlx5_0"), "ib", context)


@settings(suppress_health_check=[HealthCheck.too_slow], max_examples=60)
@given(
    st.binary(max_size=400),
    st.sampled_from(["ib", "ethernet", "optics"]),
    st.sampled_from([path.read_bytes() for path in INPUTS[::7]]),
    st.integers(0, 4000),
)
def test_junk_never_breaks_the_reader(junk: bytes, kind: str, text: bytes, at: int) -> None:
    try:
        report = read_text(text[:at] + junk + text[at:], kind)
    except BadInputError:
        return
    assert report["kind"] == kind


@given(st.integers(0, 10**9), st.integers(0, 10**9), st.floats(0.1, 1e7))
def test_more_counts_never_weigh_less(one: int, two: int, seconds: float) -> None:
    less, more = sorted((one, two))
    for entry in thresholds.THRESHOLDS:
        assert entry.exceeded(more, seconds) or not entry.exceeded(less, seconds)
        assert not entry.exceeded(0, seconds)
        if entry.window_s:
            assert not entry.exceeded(more, None), "a rate needs a time"


def test_every_lifetime_limit_has_a_rate_limit() -> None:
    for counter in thresholds.TELLING_LIFETIME:
        assert thresholds.of_counter(counter), counter


@pytest.mark.parametrize(
    ("name", "wanted"),
    [
        ("SymbolErrorCounter", "symbol_error"),
        ("symbol_error_counter_extended", "symbol_error"),
        ("LinkDownedCounter", "link_downed"),
        ("PortXmitWaitExt", "port_xmit_wait"),
        ("XmtDiscards", "port_xmit_discards"),
        ("out_of_sequence", None),
    ],
)
def test_names_of_counters(name: str, wanted: str | None) -> None:
    assert canonical(name) == wanted
