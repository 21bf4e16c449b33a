"""Whatever a metadata service answers, reading it ends in notices or in one sentence."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from muster.agent.maintenance import aws, azure, gcp, monitors, oci
from muster.agent.maintenance.config import Cloud, MaintenanceConfig
from muster.agent.maintenance.listed import parse_notices
from muster.agent.maintenance.standing import follow, keep, restore
from muster.agent.monitor import NodeFacts
from muster.clock import SystemClock
from muster.errors import BadInputError, DeadlineError
from muster.resources.node_health import Notice
from tests.agent.metadata_standin import NOW, standin

WORDS = re.findall(
    r"\S+",
    """
    Events EventId EventType EventStatus Resources NotBefore NotAfter NotBeforeDeadline DurationInSeconds Code State
    Description active Scheduled Started vm Reboot maintenance_status window_start_time window_end_time PENDING type
    timeMaintenanceRebootDue id action time terminate noticeTime notices kind status notBefore endsAt message NONE
    2026-03-01T08:00:00Z 0001-01-01T00:00:00+14:00 9999-12-31T23:59:59-12:00 9999-12-31T23:59:59Z 99999999999999999999
    """,
)
words = st.sampled_from([*WORDS, "Sun, 01 Mar 2026 09:00:00 GMT", "\x1b[31m", ""]) | st.text(max_size=5)
scalars = st.none() | st.booleans() | st.integers(-(10**18), 10**18) | st.floats(allow_nan=False) | words
documents: st.SearchStrategy[Any] = st.recursive(
    scalars,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(words, inner, max_size=8),
    max_leaves=25,
)


def refusal(read: Callable[[bytes], object], body: bytes) -> str:
    """The sentence of a refusal; empty when the answer was read."""
    try:
        read(body)
    except BadInputError as error:
        return str(error)
    return ""


def read_all(document: Any) -> list[Notice]:
    """Every reader on one document; each gives notices or refuses in one sentence."""
    found: list[Notice] = []

    def upcoming(body: bytes) -> None:
        planned = gcp.parse_upcoming(body)
        found.extend(() if planned is None else (planned,))

    readers: tuple[Callable[[bytes], object], ...] = (
        lambda body: found.extend(aws.parse_events(body)),
        lambda body: found.append(aws.parse_spot(body)),
        lambda body: found.append(aws.parse_rebalance(body)),
        lambda body: found.extend(azure.parse_events(body, "vm")),
        upcoming,
        lambda body: found.extend(oci.parse_instance(body)),
        lambda _: found.extend(parse_notices(document, "file", "it")),
    )
    refusals = [refusal(reader, msgspec.json.encode(document)) for reader in readers]
    assert all(sentence.isprintable() for sentence in refusals)
    return found


@given(documents)
def test_any_document(document: Any) -> None:
    found = read_all(document)
    for notice in found:
        assert 0 < len(notice.id) <= 300
        assert (notice.id + notice.message).isprintable()
        assert len(notice.message) <= 400
    standing = follow((), found, NOW)
    assert restore(keep(standing)) == standing


@given(
    st.fixed_dictionaries(
        {
            "EventId": words,
            "Code": words,
            "State": st.sampled_from(["active", "completed", "canceled"]),
            "Resources": st.just(["vm"]),
            "EventStatus": st.sampled_from(["Scheduled", "Started"]),
            "EventType": words,
        },
        optional={"NotBefore": words, "NotAfter": words, "Description": words, "DurationInSeconds": scalars},
    )
)
def test_events_that_are_nearly_right(event: dict[str, Any]) -> None:
    for notice in (*read_all([event]), *read_all({"Events": [event]})):
        assert notice.source in ("aws", "azure")
        assert follow(follow((), [notice], NOW), [], NOW)


@given(st.binary(max_size=200))
def test_any_bytes(body: bytes) -> None:
    readers: tuple[Callable[[bytes], object], ...] = (
        aws.parse_events,
        oci.parse_instance,
        gcp.parse_upcoming,
        gcp.parse_event,
        gcp.parse_preempted,
    )
    assert all(refusal(read, body).isprintable() for read in readers)


def test_a_service_that_drips_is_given_up_and_what_stood_stands() -> None:
    async def main() -> None:
        async with standin() as served:
            served.get("/opc/v2/instance/", '{"id": "o", "timeMaintenanceRebootDue": "2026-03-05T21:10:29Z"}')
            config = MaintenanceConfig(cloud=Cloud.OCI, endpoint=served.url, timeout_s=0.3)
            (asked,) = monitors(config, Path("/nowhere"), SystemClock())
            facts = NodeFacts(boot_id="b", booted_at=None, gpus=())
            before = (await asked.look(facts, NOW)).notices
            kept = asked.keep()
            served.drip_s = 0.02
            with pytest.raises(DeadlineError):
                await asked.look(facts, NOW)
            assert asked.keep() == kept
            served.drip_s = 0.0
            (again,) = monitors(config, Path("/nowhere"), SystemClock())
            again.restore(kept)
            assert (await again.look(facts, NOW)).notices == before

    asyncio.run(main())
