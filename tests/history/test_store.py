"""One contract for both databases: idempotent, in any order, across versions, and what is old goes."""

from __future__ import annotations

import itertools
import random
import sqlite3
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from muster.errors import BadInputError, UnreachableError
from muster.operate.history import schema
from muster.operate.history.address import Address, parse
from muster.operate.history.facts import (
    DelayRow,
    Facts,
    NodeRow,
    RepairRow,
    Row,
    StepRow,
    WatchedRow,
    WorkRow,
    moment,
    records_of,
)
from muster.operate.history.store import HistoryStore, open_store
from muster.operate.ledger import build
from tests.history.plugin import Server

numbers = itertools.count()


@pytest.fixture
def sqlite_address(tmp_path: Path) -> Address:
    return parse(f"sqlite://{tmp_path}/history.db")


@pytest.fixture
def postgresql_address(postgresql: Server) -> Address:
    return parse(postgresql.create(f"h{next(numbers)}"))


@pytest.fixture(
    params=[
        "sqlite_address",
        pytest.param("postgresql_address", marks=[pytest.mark.full, pytest.mark.real_postgresql]),
    ]
)
def address(request: pytest.FixtureRequest) -> Address:
    return request.getfixturevalue(request.param)


@pytest.fixture
def store(address: Address) -> Iterator[HistoryStore]:
    opened = open_store(address, create=True)
    opened.migrate()
    yield opened
    opened.close()


def step(node: str, at_us: int, state: str, episode: str = "", kind: str = "fault") -> StepRow:
    return StepRow(node, at_us, state, episode, kind, "xid/79")


STORY: tuple[Row, ...] = (
    NodeRow("n1", "u1", "a", 10),
    step("n1", 20, "InService", kind="certification"),
    WorkRow("p1", "n1", "team/train", 30, 60),
    step("n1", 70, "Quarantined", "e1"),
    RepairRow("r1", "n1", 75, "reboot", 1),
    step("n1", 76, "Repairing", "e1"),
    step("n1", 90, "InService", "e1", kind="certification"),
    DelayRow("n1", "budget", 65, 70),
    WatchedRow("s1", 15, 100),
)


def test_what_was_told_is_read_back(store: HistoryStore) -> None:
    store.write(STORY)
    facts = store.read(0, 1000)
    assert set(STORY) == {*facts.nodes, *facts.steps, *facts.work, *facts.repairs, *facts.watched, *facts.delays}
    assert facts.kept_from_us is None


times = st.integers(0, 1000)
ends = st.one_of(st.none(), times)
names = st.sampled_from(["n1", "n2"])
states = st.sampled_from(["InService", "Quarantined", "Repairing", "Uncertified", "OfTomorrow"])
rows: st.SearchStrategy[Row] = st.one_of(
    st.builds(NodeRow, names, st.sampled_from(["u1", "u2"]), st.just("a"), times, ends),
    st.builds(StepRow, names, times, states, st.sampled_from(["", "e1"]), st.just("fault"), st.just("xid/79")),
    st.builds(WorkRow, st.sampled_from(["p1", "p2"]), names, st.just("j"), times, ends),
    st.builds(RepairRow, st.sampled_from(["r1", "r2"]), names, times, st.just("reboot"), st.just(1)),
    st.builds(WatchedRow, st.sampled_from(["s1", "s2"]), times, times),
    st.builds(DelayRow, names, st.sampled_from(["budget", "pod"]), times, ends),
)


def consistent(told: list[Row]) -> list[Row]:
    """One repair has one node; everything else may contradict itself."""
    return [replace(r, node="n1") if isinstance(r, RepairRow) else r for r in told]


@given(st.lists(rows, max_size=25).map(consistent), st.integers(0, 2**32))
@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@pytest.mark.requirement("v2.4/OSL02")
def test_order_and_repetition_change_nothing_and_the_sums_close(tmp_path: Path, told: list[Row], seed: int) -> None:
    rng = random.Random(seed)
    shuffled = [*told, *rng.sample(told, k=len(told) // 2)]
    rng.shuffle(shuffled)
    found = []
    for order in (told, shuffled):
        opened = open_store(parse(f"sqlite://{tmp_path}/{next(numbers)}.db"), create=True)
        opened.migrate()
        half = len(order) // 2
        opened.write(order[:half])
        opened.write(order[half:])
        found.append(opened.read(0, 1001))
        opened.close()
    assert as_sets(found[0]) == as_sets(found[1])
    records = records_of(found[1])
    ledger = build(records, moment(100), moment(900))
    assert sum(ledger.by_class().values()) == ledger.total_us
    for node in ("n1", "n2"):
        spans = sorted((s.start_us, s.end_us) for s in ledger.spans if s.node == node)
        assert all(earlier[1] <= later[0] for earlier, later in itertools.pairwise(spans)), "a node lived twice"


def as_sets(facts: Facts) -> list[frozenset[Row]]:
    kinds = (facts.nodes, facts.steps, facts.work, facts.repairs, facts.watched, facts.delays)
    return [frozenset(kind) for kind in kinds]


def test_an_end_is_the_earliest_that_was_told_and_is_never_taken_back(store: HistoryStore) -> None:
    row = WorkRow("p1", "n1", "j", 10)
    store.write([replace(row, to_us=50)])
    store.write([row])
    store.write([replace(row, to_us=40), replace(row, from_us=5)])
    assert store.read(0, 100).work == (WorkRow("p1", "n1", "j", 5, 40),)


def test_a_window_tells_a_stay_from_its_beginning(store: HistoryStore) -> None:
    """A node that left service before the window and is still out keeps the cause."""
    store.write(STORY)
    in_window = store.read(77, 85)
    assert [s.at_us for s in in_window.steps] == [20, 70, 76]
    ledger = build(records_of(in_window), moment(77), moment(85))
    assert {(s.time_class.value, s.cause_name, s.rung) for s in ledger.spans} == {("repairing", "xid/79", "reboot")}


def test_what_is_old_goes_but_the_present_stays_explained(store: HistoryStore) -> None:
    store.write(STORY)
    before = build(records_of(store.read(80, 100)), moment(80), moment(100))
    assert store.prune(77) == 3  # work, delay, repair
    facts = store.read(80, 100)
    assert facts.kept_from_us == 77
    assert [s.at_us for s in facts.steps] == [20, 70, 76, 90]
    after = build(records_of(facts), moment(80), moment(100))
    assert [s.time_class for s in after.spans] == [s.time_class for s in before.spans]
    store.prune(95)
    assert [s.at_us for s in store.read(80, 100).steps] == [90]
    store.prune(50)
    assert store.read(80, 100).kept_from_us == 95, "what is gone does not come back"


def test_a_node_that_is_gone_leaves_nothing_behind_in_the_end(store: HistoryStore) -> None:
    store.write([NodeRow("n9", "u9", "a", 10, 30), step("n9", 20, "Quarantined", "e9")])
    store.prune(40)
    assert store.read(0, 100).nodes == store.read(0, 100).steps == ()


def test_what_has_no_end_is_told_to_the_next_process(store: HistoryStore) -> None:
    store.write(STORY)
    unfinished, last = store.unfinished()
    assert (unfinished, last) == ((NodeRow("n1", "u1", "a", 10),), 100)


def test_a_history_of_version_1_is_brought_up_to_date_with_its_rows(address: Address) -> None:
    old = open_store(address, create=True)
    cursor = old._connection.cursor()
    cursor.execute(schema.META)
    for statement in schema.MIGRATIONS[0]:
        cursor.execute(statement)
    cursor.execute("INSERT INTO muster_meta VALUES ('version', 1)")
    cursor.execute("INSERT INTO muster_nodes VALUES ('n1', 'u1', 'a', 10, NULL)")
    with pytest.raises(BadInputError, match="of an older Muster"):
        old.read(0, 100)
    assert old.migrate() == 1
    assert old.migrate() == schema.VERSION
    old.write([DelayRow("n1", "budget", 5)])
    assert old.read(0, 100).nodes == (NodeRow("n1", "u1", "a", 10),)
    old.close()


def test_a_newer_history_is_refused_and_left_alone(store: HistoryStore) -> None:
    store.write(STORY)
    cursor = store._connection.cursor()
    cursor.execute(f"UPDATE muster_meta SET value = {schema.VERSION + 1} WHERE name = 'version'")
    for use in (store.migrate, lambda: store.read(0, 100)):
        with pytest.raises(BadInputError, match="newer Muster"):
            use()


def test_an_empty_database_says_what_to_do(address: Address) -> None:
    opened = open_store(address, create=True)
    with pytest.raises(BadInputError, match="holds no history of Muster yet"):
        opened.read(0, 100)
    opened.close()


def test_many_migrate_and_write_at_once(address: Address) -> None:
    failed: list[BaseException] = []

    def work(number: int) -> None:
        try:
            opened = open_store(address, create=True)
            opened.migrate()
            for start in range(0, 200, 20):
                opened.write([WorkRow(f"p{i}", "n1", "j", i, i + number) for i in range(start, start + 40)])
            opened.close()
        except BaseException as error:
            failed.append(error)

    threads = [threading.Thread(target=work, args=(n,)) for n in range(1, 5)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failed
    opened = open_store(address, create=False)
    assert {(w.from_us, w.to_us) for w in opened.read(0, 1000).work} == {(i, i + 1) for i in range(220)}
    opened.close()


def test_a_write_that_fails_leaves_nothing(store: HistoryStore) -> None:
    with pytest.raises((UnreachableError, OverflowError)):
        store.write([NodeRow("n1", "u1", "a", 10), WorkRow("p", "n1", "j", 2**70)])
    assert store.read(0, 100).nodes == ()


def test_a_server_that_comes_back_goes_on(postgresql: Server) -> None:
    address = parse(postgresql.create(f"h{next(numbers)}"))
    opened = open_store(address, create=True)
    opened.migrate()
    opened.write(STORY)
    postgresql.stop("immediate")
    with pytest.raises(UnreachableError, match="cannot be used"):
        opened.write(STORY)
    with pytest.raises(UnreachableError):
        open_store(address, create=True)
    postgresql.start()
    again = open_store(address, create=True)
    assert again.migrate() == schema.VERSION
    again.write(STORY)
    assert len(again.read(0, 1000).steps) == 4
    again.close()


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda p: p / "missing.db", "no file"),
        (lambda p: _with(p / "text.db", b"this is no database, and long enough to have a header"), "no SQLite"),
    ],
)
def test_a_file_that_cannot_be_read(tmp_path: Path, make: Callable[[Path], Path], words: str) -> None:
    with pytest.raises(BadInputError, match=words):
        open_store(parse(f"sqlite://{make(tmp_path)}"), create=False)
    assert not (tmp_path / "missing.db").exists()


def _with(path: Path, content: bytes) -> Path:
    path.write_bytes(content)
    return path


def test_a_reader_works_while_the_controller_writes(tmp_path: Path) -> None:
    address = parse(f"sqlite://{tmp_path}/h.db")
    writer = open_store(address, create=True)
    writer.migrate()
    writer.write(STORY)
    blocked = sqlite3.connect(address.target, isolation_level=None)
    blocked.execute("BEGIN IMMEDIATE")
    reader = open_store(address, create=False)
    assert len(reader.read(0, 1000).steps) == 4
    blocked.execute("ROLLBACK")
    for opened in (reader, writer, blocked):
        opened.close()
    later = open_store(address, create=False)
    assert len(later.read(0, 1000).steps) == 4
    later.close()
