"""Lists, paging, and watches on virtual time."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from muster.kube.api import CONFIG_MAPS, CRDS, NODES, PODS, EventType, GoneError, Object, WatchEvent
from muster.sim.api_lists import ListOptions
from muster.sim.api_status import StatusError
from muster.sim.api_watch import Watch, WatchOptions
from muster.sim.inprocess import InProcessApi
from muster.sim.store import Store
from muster.sim.virtual import VirtualClock, run_virtual

from .samples import MERGE, WIDGETS, add_node, add_pod, new_store, widget, widget_crd


def names(result: Any) -> list[str]:
    return [version.obj["metadata"]["name"] for version in result.items]


def test_lists_are_in_order_and_select() -> None:
    store = new_store()
    for name in ("n3", "n1", "n2"):
        add_node(store, name, group="odd" if name != "n2" else "even")
    nodes = store.kind(NODES)
    assert names(store.list(nodes)) == ["n1", "n2", "n3"]
    assert names(store.list(nodes, options=ListOptions(label_selector="group=odd"))) == ["n1", "n3"]
    assert names(store.list(nodes, options=ListOptions(field_selector="metadata.name=n2"))) == ["n2"]


def test_namespaces_bound_lists() -> None:
    store = new_store()
    add_pod(store, "a")
    store.create(
        store.kind(PODS),
        {"metadata": {"name": "b"}, "spec": {"containers": [{"name": "m", "image": "i"}]}},
        "kube-system",
    )
    assert names(store.list(store.kind(PODS), "default")) == ["a"]
    assert names(store.list(store.kind(PODS))) == ["a", "b"]


def test_pages_show_one_version() -> None:
    store = new_store()
    nodes = store.kind(NODES)
    for number in range(5):
        add_node(store, f"n{number}")
    first = store.list(nodes, options=ListOptions(limit=2))
    assert names(first) == ["n0", "n1"]
    assert first.remaining == 3
    add_node(store, "n9")
    store.delete(nodes, "n3")
    second = store.list(nodes, options=ListOptions(limit=2, continue_token=first.continue_token))
    assert names(second) == ["n2", "n3"]
    assert second.version == first.version
    third = store.list(nodes, options=ListOptions(limit=2, continue_token=second.continue_token))
    assert names(third) == ["n4"]
    assert third.continue_token == ""


def test_expired_and_broken_continue_tokens() -> None:
    store = new_store()
    nodes = store.kind(NODES)
    for number in range(3):
        add_node(store, f"n{number}")
    token = store.list(nodes, options=ListOptions(limit=1)).continue_token
    add_node(store, "n9")
    store.compact()
    with pytest.raises(StatusError) as caught:
        store.list(nodes, options=ListOptions(limit=1, continue_token=token))
    assert (caught.value.code, caught.value.reason) == (410, "Expired")
    with pytest.raises(StatusError) as caught:
        store.list(nodes, options=ListOptions(continue_token="!!"))
    assert caught.value.code == 400


def test_resource_version_semantics_of_lists() -> None:
    store = new_store()
    nodes = store.kind(NODES)
    add_node(store, "n1")
    then = store.version
    add_node(store, "n2")
    exact = ListOptions(resource_version=str(then), resource_version_match="Exact")
    assert names(store.list(nodes, options=exact)) == ["n1"]
    assert names(store.list(nodes, options=ListOptions(resource_version="0"))) == ["n1", "n2"]
    for options, code in (
        (ListOptions(resource_version="999"), 504),
        (ListOptions(resource_version="x"), 400),
        (ListOptions(resource_version_match="Exact"), 422),
        (ListOptions(resource_version="1", resource_version_match="Sometimes"), 422),
    ):
        with pytest.raises(StatusError) as caught:
            store.list(nodes, options=options)
        assert caught.value.code == code


def brief(event: WatchEvent) -> tuple[str, str]:
    metadata = json.loads(event.raw)["metadata"]
    return event.type.value, metadata.get("name", "")


def add_map(store: Store, name: str, **labels: str) -> Object:
    """A config map: nothing but the test ever writes it."""
    body = {"metadata": {"name": name, "labels": labels}}
    return store.create(store.kind(CONFIG_MAPS), body, "default").obj


async def collect(api: InProcessApi, version: str, **options: Any) -> list[tuple[str, str]]:
    return [brief(event) async for event in api.watch(CONFIG_MAPS, version, timeout_s=30, **options)]


def test_watch_sees_every_change_after_its_version() -> None:
    async def main(clock: VirtualClock) -> None:
        store = Store(clock)
        api = InProcessApi(store)
        add_map(store, "n1")
        start = str(store.version)
        watching = asyncio.create_task(collect(api, start))
        await clock.sleep(1)
        add_map(store, "n2")
        store.patch(store.kind(CONFIG_MAPS), "n1", {"metadata": {"labels": {"a": "1"}}}, MERGE, "default")
        store.delete(store.kind(CONFIG_MAPS), "n1", "default")
        assert await watching == [("ADDED", "n2"), ("MODIFIED", "n1"), ("DELETED", "n1")]
        assert (clock.now() - clock.start).total_seconds() == pytest.approx(30)

    run_virtual(main)


@pytest.mark.parametrize("version", ["", "0"])
def test_watch_without_a_version_begins_with_what_is_there(version: str) -> None:
    async def main(clock: VirtualClock) -> None:
        store = Store(clock)
        add_map(store, "n1")
        add_map(store, "n2")
        assert await collect(InProcessApi(store), version) == [("ADDED", "n1"), ("ADDED", "n2"), ("BOOKMARK", "")]

    run_virtual(main)


def test_selectors_turn_changes_into_additions_and_deletions() -> None:
    async def main(clock: VirtualClock) -> None:
        store = Store(clock)
        maps = store.kind(CONFIG_MAPS)
        add_map(store, "n1", want="no")
        watching = asyncio.create_task(collect(InProcessApi(store), str(store.version), label_selector="want=yes"))
        await clock.sleep(1)
        for value in ("yes", "yes2", "yes"):
            store.patch(maps, "n1", {"metadata": {"labels": {"want": value}}}, MERGE, "default")
        store.patch(maps, "n1", {"metadata": {"labels": {"other": "x"}}}, MERGE, "default")
        store.delete(maps, "n1", "default")
        seen = await watching
        assert [kind for kind, _ in seen] == ["ADDED", "DELETED", "ADDED", "MODIFIED", "DELETED"]

    run_virtual(main)


def test_what_leaves_a_selection_is_shown_as_it_last_was() -> None:
    async def main(clock: VirtualClock) -> None:
        store = Store(clock)
        start = str(add_map(store, "n1", want="yes")["metadata"]["resourceVersion"])
        store.patch(store.kind(CONFIG_MAPS), "n1", {"metadata": {"labels": {"want": "no"}}}, MERGE, "default")
        watch = InProcessApi(store).watch(CONFIG_MAPS, start, label_selector="want=yes", timeout_s=1)
        last = json.loads((await anext(watch)).raw)
        assert last["metadata"]["labels"] == {"want": "yes"}
        assert last["metadata"]["resourceVersion"] == str(store.version)

    run_virtual(main)


def test_a_watch_ends_when_its_kind_is_no_longer_served() -> None:
    async def main(clock: VirtualClock) -> None:
        store = Store(clock)
        crds = store.kind(CRDS)
        store.create(crds, widget_crd())
        store.create(store.kind(WIDGETS), widget(), "default")
        api = InProcessApi(store)

        async def watch() -> list[str]:
            return [event.type.value async for event in api.watch(WIDGETS, "0", timeout_s=1000)]

        watching = asyncio.create_task(watch())
        await clock.sleep(1)
        store.delete(crds, "widgets.test.example.com")
        assert await watching == ["ADDED", "BOOKMARK", "DELETED"]
        assert clock.elapsed_s == pytest.approx(1)

    run_virtual(main)


def test_deletion_carries_the_last_state_and_a_new_version() -> None:
    async def main(clock: VirtualClock) -> None:
        store = Store(clock)
        obj = add_map(store, "n1", a="1")
        store.delete(store.kind(CONFIG_MAPS), "n1", "default")
        events = [
            e async for e in InProcessApi(store).watch(CONFIG_MAPS, obj["metadata"]["resourceVersion"], timeout_s=1)
        ]
        last = json.loads(events[0].raw)
        assert events[0].type is EventType.DELETED
        assert last["metadata"]["labels"] == {"a": "1"}
        assert last["metadata"]["resourceVersion"] == str(store.version)

    run_virtual(main)


def test_history_is_bounded_and_old_versions_are_gone() -> None:
    async def main(clock: VirtualClock) -> None:
        store = Store(clock, history_limit=10)
        api = InProcessApi(store)
        add_map(store, "n1")
        early = str(store.version)
        for number in range(40):
            store.patch(store.kind(CONFIG_MAPS), "n1", {"metadata": {"labels": {"a": str(number)}}}, MERGE, "default")
        with pytest.raises(GoneError, match="too old resource version"):
            await collect(api, early)
        recent = await collect(api, str(store.version - 10))
        assert len([kind for kind, _ in recent if kind == "MODIFIED"]) == 10
        with pytest.raises(GoneError):
            await collect(api, str(store.version - 11))

    run_virtual(main)


def test_an_open_watch_that_falls_behind_ends_with_gone() -> None:
    async def main(clock: VirtualClock) -> None:
        store = Store(clock)
        add_map(store, "n1")
        watch = Watch(store, store.kind(CONFIG_MAPS), "", WatchOptions(resource_version=str(store.version)))
        add_map(store, "n2")
        store.compact()
        with pytest.raises(StatusError) as caught:
            _ = [item async for item in watch.events()]
        assert caught.value.code == 410

    run_virtual(main)


def test_bookmarks_come_every_minute_and_carry_the_version() -> None:
    async def main(clock: VirtualClock) -> None:
        store = Store(clock)
        add_map(store, "n1")
        events = [e async for e in InProcessApi(store).watch(CONFIG_MAPS, str(store.version), timeout_s=150)]
        assert [event.type for event in events] == [EventType.BOOKMARK] * 3
        assert json.loads(events[-1].raw)["metadata"]["resourceVersion"] == str(store.version)

    run_virtual(main)


def test_initial_events_end_with_a_marked_bookmark() -> None:
    async def main(clock: VirtualClock) -> None:
        store = Store(clock)
        add_map(store, "n1")
        newest: Any = {"send_initial_events": True, "resource_version_match": "NotOlderThan"}
        options = WatchOptions(bookmarks=True, timeout_s=1, **newest)
        items = [item async for item in Watch(store, store.kind(CONFIG_MAPS), "", options).events()]
        assert [(item.type, item.initial_end) for item in items] == [
            (EventType.ADDED, False),
            (EventType.BOOKMARK, True),
        ]
        with pytest.raises(StatusError):
            Watch(store, store.kind(CONFIG_MAPS), "", WatchOptions(send_initial_events=True))

    run_virtual(main)


steps = st.lists(
    st.tuples(st.sampled_from(["create", "patch", "delete"]), st.sampled_from("abc"), st.sampled_from("01")),
    max_size=25,
)


@settings(max_examples=60)
@given(steps, st.integers(0, 25), st.sampled_from(["", "l=1"]))
def test_replaying_a_watch_gives_the_list_at_any_version(
    script: list[tuple[str, str, str]], start_at: int, selector: str
) -> None:
    """List at version v plus the events after v equals the list now; past versions list what was seen then."""

    async def main(clock: VirtualClock) -> None:
        store = Store(clock)
        kind = store.kind(CONFIG_MAPS)
        options = ListOptions(label_selector=selector)
        seen: dict[int, list[Any]] = {}
        refusals: list[int] = []
        start, begun = store.version, store.list(kind, options=options)
        for number, (verb, name, value) in enumerate(script):
            if number == start_at:
                start, begun = store.version, store.list(kind, options=options)
            try:
                if verb == "create":
                    store.create(kind, {"metadata": {"name": name, "labels": {"l": value}}}, "default")
                elif verb == "patch":
                    store.patch(kind, name, {"metadata": {"labels": {"l": value}}}, MERGE, "default")
                else:
                    store.delete(kind, name, "default")
            except StatusError as error:
                refusals.append(error.code)
            seen[store.version] = [version.obj for version in store.list(kind, options=options).items]
        state = {version.obj["metadata"]["name"]: version.obj for version in begun.items}
        watch_options = WatchOptions(resource_version=str(start), label_selector=selector, timeout_s=0)
        if start:
            async for item in Watch(store, kind, "", watch_options).events():
                assert item.version is not None
                name = item.version.obj["metadata"]["name"]
                if item.type is EventType.DELETED:
                    del state[name]
                else:
                    assert (name in state) is (item.type is EventType.MODIFIED)
                    state[name] = item.version.obj
        now = {v.obj["metadata"]["name"]: v.obj for v in store.list(kind, options=options).items}
        assert state == now
        assert set(refusals) <= {404, 409}
        for version, objects in seen.items():
            exact = ListOptions(
                label_selector=selector, resource_version=str(version), resource_version_match="Exact"
            )
            assert [v.obj for v in store.list(kind, options=exact).items] == objects

    run_virtual(main)
