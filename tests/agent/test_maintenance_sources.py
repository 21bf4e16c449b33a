"""Each shape of announced maintenance over a real HTTP stand-in: good answers, bad answers, none."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, TypeVar

import msgspec
import pytest

from muster.agent.maintenance import monitors
from muster.agent.maintenance.config import Cloud, MaintenanceConfig, WebhookConfig
from muster.agent.maintenance.fetch import MAX_BODY_BYTES, fetch
from muster.agent.monitor import Look, Monitor, NodeFacts
from muster.clock import SystemClock
from muster.errors import BadInputError, DeadlineError, MusterError, UnreachableError
from muster.resources.node_health import Notice, NoticeKind, NoticeStatus
from tests.agent.metadata_standin import NOW, Request, Standin, standin

T = TypeVar("T")
FACTS = NodeFacts(boot_id="b", booted_at=None, gpus=())
META = "/latest/meta-data/"
SCHEDULED, HISTORY = META + "events/maintenance/scheduled", META + "events/maintenance/history"
GCP = "/computeMetadata/v1/instance/"
AZURE = "/metadata/scheduledevents?api-version=2020-07-01"
AZURE_NAME = "/metadata/instance/compute/name?api-version=2021-02-01&format=text"
OCI = "/opc/v2/instance/"


def with_standin(test: Callable[[Standin], Awaitable[T]]) -> T:
    async def main() -> T:
        async with standin() as served:
            return await test(served)

    return asyncio.run(main())


def monitor(served: Standin, cloud: Cloud, **config: Any) -> Monitor:
    options: dict[str, Any] = {"endpoint": served.url, "timeout_s": 2.0} | config
    (made,) = monitors(MaintenanceConfig(cloud=cloud, **options), Path("/nowhere"), SystemClock())
    return made


async def look(asked: Monitor, now: datetime = NOW) -> Look:
    return await asked.look(FACTS, now)


async def notices(asked: Monitor, now: datetime = NOW) -> tuple[Notice, ...]:
    found = (await look(asked, now)).notices
    assert found is not None
    return found


def aws(served: Standin, scheduled: Any, token: str = "t1") -> None:
    served.answers["PUT /latest/api/token"] = (200, token.encode())
    served.get(SCHEDULED, json.dumps(scheduled))
    served.guard = lambda r: 401 if r.method == "GET" and r.headers.get("x-aws-ec2-metadata-token") != token else None


def aws_event(**fields: Any) -> dict[str, Any]:
    return {
        "NotBefore": "2 Mar 2026 09:00:43 GMT",
        "NotAfter": "2 Mar 2026 11:00:43 GMT",
        "NotBeforeDeadline": "9 Mar 2026 09:00:43 GMT",
        "Code": "system-reboot",
        "Description": "scheduled reboot",
        "EventId": "instance-event-0d59937288b749b32",
        "State": "active",
    } | fields


# AWS


@pytest.mark.requirement("v2.4/BFX02")
def test_aws_events_spot_and_rebalance() -> None:
    async def test(served: Standin) -> None:
        aws(served, [aws_event(), aws_event(EventId="instance-event-2", Code="instance-retirement", NotAfter=None)])
        served.get(META + "spot/instance-action", '{"action": "terminate", "time": "2026-03-01T08:02:00Z"}')
        served.get(META + "events/recommendations/rebalance", '{"noticeTime": "2026-03-01T07:55:00Z"}')
        found = {n.id: n for n in await notices(monitor(served, Cloud.AWS))}
        reboot = found["instance-event-0d59937288b749b32"]
        assert (reboot.kind, reboot.status, reboot.source) == (NoticeKind.REBOOT, NoticeStatus.SCHEDULED, "aws")
        assert reboot.not_before == datetime(2026, 3, 2, 9, 0, 43, tzinfo=UTC)
        assert reboot.ends_at == datetime(2026, 3, 2, 11, 0, 43, tzinfo=UTC)
        assert "2026-03-09" in reboot.message
        assert (found["instance-event-2"].kind, found["instance-event-2"].ends_at) == (NoticeKind.TERMINATE, None)
        spot = found["spot-instance-action"]
        assert (spot.kind, spot.emergency) == (NoticeKind.TERMINATE, True)
        assert spot.not_before == NOW + timedelta(minutes=2)
        assert found["rebalance-recommendation"].not_before is None

    with_standin(test)


@pytest.mark.parametrize(
    ("code", "description", "kind"),
    [
        ("instance-stop", "x", NoticeKind.STOP),
        ("instance-reboot", "x", NoticeKind.REBOOT),
        ("system-maintenance", "Network maintenance", NoticeKind.NETWORK),
        ("system-maintenance", "power maintenance", NoticeKind.POWER),
        ("something-new", "x", NoticeKind.OTHER),
    ],
)
def test_aws_codes(code: str, description: str, kind: NoticeKind) -> None:
    async def test(served: Standin) -> None:
        aws(served, [aws_event(Code=code, Description=description)])
        (found,) = await notices(monitor(served, Cloud.AWS))
        assert found.kind is kind

    with_standin(test)


def test_aws_token_is_kept_and_renewed_when_it_expires() -> None:
    async def test(served: Standin) -> None:
        aws(served, [])
        asked = monitor(served, Cloud.AWS)
        await notices(asked)
        await notices(asked)
        assert served.asked("/latest/api/token") == 1
        aws(served, [aws_event()], token="t2")
        assert len(await notices(asked)) == 1
        assert served.asked("/latest/api/token") == 2

    with_standin(test)


def test_aws_history_says_how_a_vanished_event_ended() -> None:
    async def test(served: Standin) -> None:
        aws(served, [aws_event()])
        asked = monitor(served, Cloud.AWS)
        await notices(asked)
        assert served.asked(HISTORY) == 0
        aws(served, [])
        old = aws_event(EventId="instance-event-other", State="completed")
        served.get(HISTORY, json.dumps([aws_event(State="completed", Description="[Completed] x"), old]))
        (found,) = await notices(asked)
        assert found.status is NoticeStatus.COMPLETED
        assert found.ends_at == NOW

    with_standin(test)


def test_aws_without_a_token_or_with_an_error_is_unknown() -> None:
    async def test(served: Standin) -> None:
        with pytest.raises(UnreachableError, match="instead of a token"):
            await look(monitor(served, Cloud.AWS))
        aws(served, [])
        served.get(SCHEDULED, "oops", status=500)
        with pytest.raises(UnreachableError, match="500"):
            await look(monitor(served, Cloud.AWS))

    with_standin(test)


# GCP


def gcp(served: Standin, upcoming: str | None = None, event: str = "NONE", preempted: str = "FALSE") -> None:
    served.guard = lambda r: 403 if r.headers.get("metadata-flavor") != "Google" else None
    served.answers.pop(f"GET {GCP}upcoming-maintenance?alt=json", None)
    if upcoming is not None:
        served.get(GCP + "upcoming-maintenance?alt=json", upcoming)
    served.get(GCP + "maintenance-event", event)
    served.get(GCP + "preempted", preempted)


PLANNED = {
    "can_reschedule": "true",
    "latest_window_start_time": "2026-03-08T09:00:00Z",
    "maintenance_reasons": ["PLANNED_UPDATE"],
    "maintenance_status": "PENDING",
    "type": "SCHEDULED",
    "window_end_time": "2026-03-02T11:00:00Z",
    "window_start_time": "2026-03-02T09:00:00Z",
}
CAMEL = {
    "maintenanceStatus": "ONGOING",
    "type": "UNSCHEDULED",
    "windowEndTime": "2026-03-02T11:00:00Z",
    "windowStartTime": "2026-03-02T09:00:00Z",
}


def test_gcp_upcoming_in_both_spellings_and_wrapped() -> None:
    async def test(served: Standin) -> None:
        for upcoming, status in (
            (PLANNED, NoticeStatus.SCHEDULED),
            (CAMEL, NoticeStatus.STARTED),
            ({"upcoming_maintenance": PLANNED}, NoticeStatus.SCHEDULED),
        ):
            gcp(served, json.dumps(upcoming))
            (found,) = await notices(monitor(served, Cloud.GCP))
            assert found.status is status
            assert found.not_before == datetime(2026, 3, 2, 9, tzinfo=UTC)
            assert found.ends_at == datetime(2026, 3, 2, 11, tzinfo=UTC)

    with_standin(test)


@pytest.mark.parametrize(
    "nothing", [None, "NONE", '"NONE"', "{}", '{ "error": "no notifications have been received" }']
)
def test_gcp_nothing_planned(nothing: str | None) -> None:
    async def test(served: Standin) -> None:
        gcp(served, nothing)
        assert await notices(monitor(served, Cloud.GCP)) == ()

    with_standin(test)


def test_gcp_a_maintenance_event_begins_what_was_planned_or_stands_for_itself() -> None:
    async def test(served: Standin) -> None:
        gcp(served, json.dumps(PLANNED), event="TERMINATE_ON_HOST_MAINTENANCE")
        (planned,) = await notices(monitor(served, Cloud.GCP))
        assert (planned.status, planned.kind) == (NoticeStatus.STARTED, NoticeKind.STOP)
        gcp(served, None, event="MIGRATE_ON_HOST_MAINTENANCE", preempted="TRUE")
        found = {n.id: n for n in await notices(monitor(served, Cloud.GCP))}
        assert found["maintenance-event"].kind is NoticeKind.MIGRATE
        assert found["maintenance-event"].not_before == NOW
        assert found["preempted"].emergency

    with_standin(test)


# Azure


def azure(served: Standin, *events: dict[str, Any]) -> None:
    served.guard = lambda r: 400 if r.headers.get("metadata") != "true" else None
    served.get(AZURE_NAME, "vmss_0")
    served.get(AZURE, json.dumps({"DocumentIncarnation": 1, "Events": list(events)}))


def azure_event(**fields: Any) -> dict[str, Any]:
    return {
        "EventId": "f020ba2e-3bc0-4c40-a10b-86575a9eabd5",
        "EventType": "Freeze",
        "ResourceType": "VirtualMachine",
        "Resources": ["vmss_3", "VMSS_0"],
        "EventStatus": "Scheduled",
        "NotBefore": "Sun, 01 Mar 2026 09:00:00 GMT",
        "Description": "Host server is undergoing maintenance.",
        "EventSource": "Platform",
        "DurationInSeconds": 9,
    } | fields


def test_azure_only_events_of_this_machine_count() -> None:
    async def test(served: Standin) -> None:
        azure(served, azure_event(), azure_event(EventId="other", Resources=["vmss_7"]))
        asked = monitor(served, Cloud.AZURE)
        (found,) = await notices(asked)
        assert (found.kind, found.status) == (NoticeKind.FREEZE, NoticeStatus.SCHEDULED)
        assert found.not_before == datetime(2026, 3, 1, 9, tzinfo=UTC)
        assert found.ends_at == datetime(2026, 3, 1, 9, 0, 9, tzinfo=UTC)
        azure(served, azure_event(EventStatus="Started", NotBefore=""))
        (begun,) = await notices(asked)
        assert (begun.status, begun.not_before) == (NoticeStatus.STARTED, found.not_before)
        azure(served)
        (ended,) = await notices(asked)
        assert ended.status is NoticeStatus.COMPLETED
        assert served.asked(AZURE_NAME) == 1

    with_standin(test)


@pytest.mark.parametrize(
    ("what", "kind"),
    [
        ("Reboot", "reboot"),
        ("Redeploy", "migrate"),
        ("Preempt", "terminate"),
        ("Terminate", "terminate"),
        ("New", "other"),
    ],
)
def test_azure_types(what: str, kind: str) -> None:
    async def test(served: Standin) -> None:
        azure(served, azure_event(EventType=what, DurationInSeconds=-1))
        (found,) = await notices(monitor(served, Cloud.AZURE))
        assert (found.kind.value, found.ends_at, found.emergency) == (kind, None, what == "Preempt")

    with_standin(test)


# OCI


def test_oci_reads_a_due_reboot_where_the_service_shows_it() -> None:
    async def test(served: Standin) -> None:
        served.guard = lambda r: 404 if r.headers.get("authorization") != "Bearer Oracle" else None
        served.get(OCI, '{"id": "ocid1.instance", "shape": "BM.GPU.H100.8"}')
        asked = monitor(served, Cloud.OCI)
        assert await notices(asked) == ()
        served.get(OCI, '{"id": "ocid1.instance", "timeMaintenanceRebootDue": "2026-03-05T21:10:29.600Z"}')
        (found,) = await notices(asked)
        assert (found.kind, found.source) == (NoticeKind.REBOOT, "oci")
        assert found.ends_at is not None
        assert found.not_before is not None
        assert found.ends_at - found.not_before == timedelta(hours=24)

    with_standin(test)


# Misbehaviour, the same for all


def good(served: Standin, cloud: Cloud) -> str:
    """Set a good answer with one notice; returns the target of the list."""
    match cloud:
        case Cloud.AWS:
            aws(served, [aws_event()])
            return SCHEDULED
        case Cloud.GCP:
            gcp(served, json.dumps(PLANNED))
            return GCP + "upcoming-maintenance?alt=json"
        case Cloud.AZURE:
            azure(served, azure_event())
            return AZURE
        case _:
            served.get(OCI, '{"id": "ocid1", "timeMaintenanceRebootDue": "2026-03-05T21:10:29.600Z"}')
            return OCI


CLOUDS = [Cloud.AWS, Cloud.GCP, Cloud.AZURE, Cloud.OCI]


@pytest.mark.parametrize("cloud", CLOUDS)
@pytest.mark.parametrize(
    "bad", ["<html>", "[[[", "3", '"x"', "null", '[{"Code": 7}]', '{"Events": 3}', "\x00\xff", "[" * 9000]
)
def test_an_answer_of_the_wrong_shape_never_ends_a_notice(cloud: Cloud, bad: str) -> None:
    async def test(served: Standin) -> None:
        target = good(served, cloud)
        asked = monitor(served, cloud)
        (before,) = await notices(asked)
        served.get(target, bad)
        with pytest.raises(MusterError):
            await look(asked)
        good(served, cloud)
        assert await notices(asked) == (before,)

    with_standin(test)


@pytest.mark.parametrize("cloud", CLOUDS)
@pytest.mark.parametrize("status", [301, 400, 403, 429, 500, 503])
def test_an_error_is_unknown_and_the_notices_stand(cloud: Cloud, status: int) -> None:
    async def test(served: Standin) -> None:
        target = good(served, cloud)
        asked = monitor(served, cloud)
        (before,) = await notices(asked)
        served.get(target, "x", status=status)
        with pytest.raises(UnreachableError, match=str(status)):
            await look(asked)
        good(served, cloud)
        assert await notices(asked) == (before,)

    with_standin(test)


@pytest.mark.parametrize("cloud", CLOUDS)
def test_chunked_answers_and_a_wrong_clock_of_the_node(cloud: Cloud) -> None:
    """The node's clock is a year ahead: what vanished before its time by the owner's clock is cancelled anyway."""

    async def test(served: Standin) -> None:
        served.chunked = True
        target = good(served, cloud)
        asked = monitor(served, cloud)
        wrong = NOW + timedelta(days=365)
        (before,) = await notices(asked, wrong)
        assert before.status is NoticeStatus.SCHEDULED
        nothing = {Cloud.AZURE: '{"Events": []}', Cloud.AWS: "[]", Cloud.OCI: '{"id": "ocid1"}'}
        served.get(target, nothing.get(cloud, "{}"))
        (after,) = await notices(asked, wrong)
        assert after.status is NoticeStatus.CANCELLED

    with_standin(test)


def test_a_hundred_events_are_told_up_to_a_bound_and_the_soonest_first() -> None:
    async def test(served: Standin) -> None:
        events = [
            aws_event(EventId=f"instance-event-{n:03}", NotBefore=f"2 Apr 2026 09:{n % 60:02}:00 GMT")
            for n in range(100)
        ]
        events[77]["NotBefore"] = "2 Mar 2026 09:00:00 GMT"
        aws(served, events)
        found = await look(monitor(served, Cloud.AWS))
        assert found.notices is not None
        ids = [n.id for n in found.notices]
        assert len(ids) == 64
        assert ids == sorted(ids)
        assert "instance-event-077" in ids
        assert found.unknown == ("36 notices more than can be told were left out",)

    with_standin(test)


def test_nobody_listens() -> None:
    async def main() -> None:
        async with standin() as served:
            asked = monitor(served, Cloud.OCI)
        await asyncio.sleep(0)
        with pytest.raises(UnreachableError, match="cannot be asked"):
            await look(asked)

    asyncio.run(main())


# The request itself


def test_a_slow_answer_is_given_up_as_a_whole() -> None:
    async def test(served: Standin) -> None:
        served.get("/x", "y" * 2000)
        served.drip_s = 0.02
        with pytest.raises(DeadlineError, match=r"within 0\.3 s"):
            await fetch(served.url + "/x", {}, 0.3)

    with_standin(test)


@pytest.mark.parametrize(
    "raw",
    [
        b"SSH-2.0-OpenSSH\r\n\r\n",
        b"HTTP/1.1 abc\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: -3\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 999999999999999\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 50\r\n\r\nshort",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n-5\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nffffff\r\n",
        b"HTTP/1.1 200 OK\r\n\r\n" + b"x" * (MAX_BODY_BYTES + 1),
        b"HTTP/1.1 302 Found\r\nLocation: http://10.0.0.1/\r\n\r\n",
        b"X: " + b"y" * 70_000 + b"\r\n\r\n",
        b"",
        b"\xff" * 300,
    ],
)
def test_what_is_no_bounded_http_is_refused(raw: bytes) -> None:
    async def test(served: Standin) -> None:
        served.raw = raw
        with pytest.raises(UnreachableError):
            await fetch(served.url + "/x", {}, 2.0)
        assert len(served.requests) == 1

    with_standin(test)


def test_an_answer_without_a_length_is_read_to_its_end() -> None:
    async def test(served: Standin) -> None:
        served.raw = b"HTTP/1.0 200 OK\r\nDate: nonsense\r\n\r\nhello"
        answer = await fetch(served.url, {}, 2.0)
        assert (answer.status, answer.body, answer.at) == (200, b"hello", None)

    with_standin(test)


def test_a_header_cannot_be_smuggled() -> None:
    async def test(served: Standin) -> None:
        with pytest.raises(UnreachableError, match="line break"):
            await fetch(served.url, {"A": "b\r\nEvil: yes"}, 2.0)

    with_standin(test)


# File and webhook

LISTED = """
notices:
  - id: CHG-1
    kind: power
    notBefore: 2026-03-02T22:00:00Z
    endsAt: 2026-03-03T02:00:00+01:00
    message: Feed B is replaced.
"""


def test_a_file_of_the_site(tmp_path: Path) -> None:
    (asked,) = monitors(MaintenanceConfig(file="/etc/notices.yaml"), tmp_path, SystemClock())
    assert asked.name == "maintenance-file"
    assert asyncio.run(notices(asked)) == ()
    path = tmp_path / "etc/notices.yaml"
    path.parent.mkdir()
    path.write_text(LISTED)
    (found,) = asyncio.run(notices(asked))
    assert (found.id, found.kind, found.source) == ("CHG-1", NoticeKind.POWER, "file")
    assert found.ends_at == datetime(2026, 3, 3, 1, tzinfo=UTC)
    path.write_text("")
    (gone,) = asyncio.run(notices(asked))
    assert gone.status is NoticeStatus.CANCELLED


@pytest.mark.parametrize(
    ("text", "word"),
    [
        ("notices: 3", "no list"),
        ("- {kind: power}", "id must be"),
        ("- {id: a, kind: powr}", "kind must be one of"),
        ("- {id: a, notbefore: 2026-03-02T22:00:00Z}", "no field"),
        ("- {id: a, notBefore: 2026-03-02T22:00:00}", "no time zone"),
        ("- {id: a, notBefore: tomorrow Z}", "no time"),
        ("- {id: a, emergency: 1}", "true or false"),
        ("- {id: a}\n- {id: a}", "twice"),
        ("- {id: a, notBefore: 2026-03-02T22:00:00Z, endsAt: 2026-03-01T22:00:00Z}", "before"),
        ("a: &x [*x]", "alias"),
        ("x" * 70_000, "larger"),
        ("- [", "YAML"),
    ],
)
def test_a_file_that_cannot_be_read_says_why(tmp_path: Path, text: str, word: str) -> None:
    (tmp_path / "n.yaml").write_text(text)
    (asked,) = monitors(MaintenanceConfig(file="n.yaml", cloud=Cloud.NONE), tmp_path, SystemClock())
    with pytest.raises(BadInputError, match=word):
        asyncio.run(look(asked))


def test_a_url_of_the_site(tmp_path: Path) -> None:
    (tmp_path / "token").write_text("s3cret\n")

    async def test(served: Standin) -> None:
        hook = WebhookConfig(url=served.url + "/m/{node}?x=1", token_file=str(tmp_path / "token"))
        config = MaintenanceConfig(cloud=Cloud.NONE, webhook=hook)
        (asked,) = monitors(config, tmp_path, SystemClock(), "gpu/1")
        served.guard = lambda r: 401 if r.headers.get("authorization") != "Bearer s3cret" else None
        served.get("/m/gpu%2F1?x=1", '[{"id": "a", "status": "started"}]')
        (found,) = await notices(asked)
        assert (found.source, found.status, found.not_before) == ("webhook", NoticeStatus.STARTED, NOW)
        (tmp_path / "token").write_text("other")
        with pytest.raises(UnreachableError, match="401") as caught:
            await look(asked)
        assert "other" not in str(caught.value)
        with pytest.raises(BadInputError, match="name of the node"):
            monitors(config, tmp_path, SystemClock())

    with_standin(test)


# Which cloud


@pytest.mark.parametrize(
    ("files", "names"),
    [
        ({"sys_vendor": "Amazon EC2\n"}, ["maintenance-aws"]),
        ({"sys_vendor": "Google", "product_name": "Google Compute Engine"}, ["maintenance-gcp"]),
        ({"chassis_asset_tag": "7783-7084-3265-9085-8269-3286-77"}, ["maintenance-azure"]),
        ({"chassis_asset_tag": "OracleCloud.com"}, ["maintenance-oci"]),
        ({"sys_vendor": "Microsoft Corporation"}, []),
        ({"sys_vendor": "Supermicro"}, []),
        ({}, []),
    ],
)
def test_the_firmware_names_the_cloud(tmp_path: Path, files: dict[str, str], names: list[str]) -> None:
    for name, content in files.items():
        path = tmp_path / "sys/class/dmi/id" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content)
    assert [m.name for m in monitors(MaintenanceConfig(), tmp_path, SystemClock())] == names
    assert monitors(MaintenanceConfig(enabled=False), tmp_path, SystemClock()) == ()


@pytest.mark.parametrize(
    "endpoint",
    ["http://10.1.2.3", "https://169.254.169.254", "http://169.254.169.254/x", "http://evil.example", "file:///x"],
)
def test_a_metadata_service_is_link_local(endpoint: str) -> None:
    with pytest.raises(msgspec.ValidationError, match="link-local"):
        msgspec.convert({"endpoint": endpoint}, MaintenanceConfig)


@pytest.mark.parametrize(
    "endpoint",
    [
        "",
        "http://169.254.169.254",
        "http://[fd00:ec2::254]",
        "http://metadata.google.internal/",
        "http://127.0.0.1:81",
    ],
)
def test_the_addresses_of_the_clouds_are(endpoint: str) -> None:
    assert msgspec.convert({"endpoint": endpoint}, MaintenanceConfig).endpoint == endpoint


def test_request_is_plain() -> None:
    async def test(served: Standin) -> Request:
        served.get("/a?b=c", "x")
        await fetch(served.url + "/a?b=c", {"Metadata": "true"}, 2.0)
        return served.requests[0]

    request = with_standin(test)
    assert request.headers["host"].startswith("127.0.0.1:")
    assert request.headers["accept-encoding"] == "identity"
