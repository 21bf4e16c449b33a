"""Plugins: exit-code scripts as real processes, Python plugins, conditions of the Node."""

from __future__ import annotations

import asyncio
import dataclasses
import importlib
import os
import select
import stat
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from muster.agent import plugins
from muster.agent.config import load
from muster.agent.host.child import run_child
from muster.agent.monitor import Look, NodeFacts
from muster.agent.plugins import entry_points
from muster.agent.plugins.config import (
    ConditionConfig,
    EntryPointConfig,
    NodeConditionsConfig,
    PluginConfig,
    ScriptConfig,
)
from muster.agent.plugins.entry_points import PluginError
from muster.agent.plugins.node_conditions import code_of, judge
from muster.agent.plugins.script import ScriptMonitor
from muster.agent.sources import Probe
from muster.clock import SystemClock
from muster.errors import BadInputError
from muster.faults.sighting import Sighting
from muster.kube.api import NODES, NotFoundError, PatchType
from muster.kube.http import HttpApi
from muster.resources.base import ConditionStatus
from muster.resources.fault import Entity, EntityKind, Hint, Scope, Severity
from muster.sim.inprocess import InProcessApi
from muster.sim.store import Store
from tests.controlplane.plugin import RealCluster

T0 = datetime(2026, 3, 1, 12, 0, tzinfo=UTC)
BOOT = "11111111-2222-3333-4444-555555555555"
FACTS = NodeFacts(boot_id=BOOT, booted_at=T0 - timedelta(days=1), gpus=())


# Scripts


def script(folder: Path, text: str, **changes: Any) -> ScriptMonitor:
    program = folder / "plugin.sh"
    program.write_text(f"#!/bin/sh\n{text}\n")
    program.chmod(program.stat().st_mode | stat.S_IXUSR)
    timeout_s = changes.pop("timeout_s", 5.0)
    config = ScriptConfig(command=(str(program),), check="site", code="raid", **changes)
    return ScriptMonitor(PluginConfig(name="raid", script=config, timeout_s=timeout_s), config)


def told(monitor: ScriptMonitor) -> Probe:
    (probe,) = asyncio.run(monitor.look(FACTS, T0)).probes
    return probe


def test_exit_codes_mean_what_they_mean_to_node_problem_detector(tmp_path: Path) -> None:
    assert told(script(tmp_path, "echo all well")).healthy is True
    faulty = told(script(tmp_path, "echo 'array /dev/md0 is degraded'; echo more; exit 1"))
    assert (faulty.healthy, faulty.message) == (False, "array /dev/md0 is degraded")
    assert (faulty.source, faulty.check, faulty.code) == ("plugin-raid", "site", "raid")
    unknown = told(script(tmp_path, "echo no tool; exit 2"))
    assert unknown.healthy is None
    assert unknown.message.endswith("ended with exit code 2: no tool")
    signalled = told(script(tmp_path, "kill -9 $$"))
    assert (signalled.healthy, signalled.message[-9:]) == (None, "signal 9.") or signalled.message.endswith(
        "signal 9"
    )


def test_codes_entity_and_severity_are_those_of_the_configuration(tmp_path: Path) -> None:
    disk = Entity(kind=EntityKind.DISK, name="md0")
    monitor = script(
        tmp_path,
        "exit 7",
        entity=disk,
        severity=Severity.FATAL,
        hint=Hint.REPLACE,
        ok_codes=(0, 3),
        faulty_codes=(1, 7),
    )
    probe = told(monitor)
    assert (probe.healthy, probe.entity, probe.severity, probe.hint) == (False, disk, Severity.FATAL, Hint.REPLACE)
    assert told(script(tmp_path, "exit 3", ok_codes=(0, 3))).healthy is True


def test_a_script_that_hangs_is_killed_with_everything_it_started(tmp_path: Path) -> None:
    monitor = script(tmp_path, f"sleep 600 & echo $! > {tmp_path}/pid\nsleep 600", timeout_s=0.5)
    began = time.monotonic()
    probe = told(monitor)
    assert time.monotonic() - began < 5
    assert probe.healthy is None
    assert "did not end within 0.5 s" in probe.message
    assert not alive(int((tmp_path / "pid").read_text()))


def alive(pid: int) -> bool:
    """Whether the process is still there; one that was killed has a moment to go."""
    try:
        process = os.pidfd_open(pid)
    except ProcessLookupError:
        return False
    try:
        return not select.select([process], [], [], 5)[0]
    finally:
        os.close(process)


def test_a_child_left_behind_keeps_nobody_waiting(tmp_path: Path) -> None:
    monitor = script(tmp_path, f"sleep 600 & echo $! > {tmp_path}/pid\necho done; exit 0")
    began = time.monotonic()
    assert told(monitor).healthy is True
    assert time.monotonic() - began < 4
    assert not alive(int((tmp_path / "pid").read_text()))


def test_endless_and_binary_output_is_bounded(tmp_path: Path) -> None:
    noisy = told(script(tmp_path, "head -c 3000000 /dev/zero | tr '\\0' x; exit 1"))
    assert noisy.healthy is False
    assert len(noisy.message) == 512
    binary = told(script(tmp_path, "printf '\\033[31mred\\377\\n'; exit 1"))
    assert "\x1b" not in binary.message
    assert "red" in binary.message
    finished = asyncio.run(run_child(("/bin/sh", "-c", "yes"), timeout_s=0.3, max_bytes=100))
    assert (finished.code, len(finished.output), finished.truncated) == (None, 100, True)


def test_nothing_of_the_agents_environment_reaches_a_script(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SECRET_TOKEN", "hush")
    probe = told(script(tmp_path, "env | tr '\\n' ' '; exit 1"))
    assert "hush" not in probe.message
    assert "PATH=" in probe.message
    assert "MUSTER_HOST_ROOT=/" in probe.message


def test_no_shell_reads_the_words_of_a_command(tmp_path: Path) -> None:
    config = ScriptConfig(command=("/bin/echo", "$(id); `id` && false"), check="site", code="x", faulty_codes=(1,))
    probe = told(ScriptMonitor(PluginConfig(name="x", script=config), config))
    assert probe.message == "$(id); `id` && false"


def test_a_program_that_is_not_there_raises(tmp_path: Path) -> None:
    config = ScriptConfig(command=(str(tmp_path / "missing"),), check="site", code="x")
    with pytest.raises(OSError, match="missing"):
        told(ScriptMonitor(PluginConfig(name="x", script=config), config))


def test_giving_up_on_a_look_kills_the_script(tmp_path: Path) -> None:
    monitor = script(tmp_path, f"echo $$ > {tmp_path}/pid\nsleep 600", timeout_s=60)

    async def story() -> None:
        look = asyncio.create_task(monitor.look(FACTS, T0))
        for _ in range(1000):
            if (tmp_path / "pid").exists() and (tmp_path / "pid").read_text().strip():
                break
            await asyncio.sleep(0.01)
        look.cancel()
        with pytest.raises(asyncio.CancelledError):
            await look

    asyncio.run(story())
    assert not alive(int((tmp_path / "pid").read_text()))


# Configuration


@pytest.mark.parametrize(
    ("document", "words"),
    [
        ({"name": "Bad Name", "script": {}}, "missing required"),
        ({"name": "x"}, "exactly one of"),
        ({"name": "x", "script": {"command": ["sh"], "check": "c", "code": "d"}}, "absolute path"),
        ({"name": "x", "script": {"command": ["/a"], "check": "C C", "code": "d"}}, "lower-case"),
        ({"name": "x", "script": {"command": ["/a"], "check": "c", "code": "d", "okCodes": [1]}}, "share a code"),
        ({"name": "x", "nodeConditions": {"conditions": []}}, "at least one"),
        ({"name": "x", "nodeConditions": {"conditions": [{"type": "A", "unhealthyStatus": "Unknown"}]}}, "unhealthy"),
        ({"name": "x", "entryPoint": {"name": "y"}, "intervalS": 0}, "intervalS"),
    ],
)
def test_nonsense_is_refused_with_the_place(document: dict[str, Any], words: str) -> None:
    with pytest.raises(msgspec.ValidationError, match=words):
        msgspec.convert(document, PluginConfig)


def test_one_monitor_for_each_enabled_plugin() -> None:
    run = ScriptConfig(command=("/bin/true",), check="c", code="d")
    listed = (
        PluginConfig(name="a", script=run),
        PluginConfig(name="b", script=run, enabled=False),
        PluginConfig(name="c", entry_point=EntryPointConfig(name="nobody")),
    )
    made = plugins.monitors(listed, Path("/"), SystemClock())
    assert [monitor.name for monitor in made] == ["plugin-a", "plugin-c"]
    with pytest.raises(BadInputError, match="Two plugins are named 'a'"):
        plugins.monitors((listed[0], listed[0]), Path("/"), SystemClock())
    conditions = NodeConditionsConfig(conditions=(ConditionConfig(type="A"),))
    with pytest.raises(BadInputError, match="no cluster to ask"):
        plugins.monitors((PluginConfig(name="n", node_conditions=conditions),), Path("/"), SystemClock())


# Python plugins

FINDING = Probe(
    source="whatever", check="site", code="x", entity=Entity(kind=EntityKind.NODE), healthy=False, message="a\x1b[1mb"
)


def sighting(at: datetime) -> Sighting:
    return Sighting(
        source="whatever",
        check="site",
        code="x",
        entity=Entity(kind=EntityKind.NODE),
        severity=Severity.WARNING,
        scope=Scope.NODE,
        hint=Hint.NONE,
        at=at,
    )


class Inner:
    """Somebody's monitor, good or bad."""

    name, interval_s, deadline_s = "theirs", 1.0, 1.0

    def __init__(self, answer: object) -> None:
        self.answer = answer

    async def look(self, facts: NodeFacts, now: datetime) -> Any:
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer

    def keep(self) -> str:
        if isinstance(self.answer, Exception):
            raise self.answer
        return "kept"

    def restore(self, kept: str) -> None:
        if isinstance(self.answer, Exception):
            raise self.answer

    async def close(self) -> None:
        if isinstance(self.answer, Exception):
            raise self.answer


def plugin_monitor(answer: object) -> entry_points.PluginMonitor:
    config = PluginConfig(name="theirs", entry_point=EntryPointConfig(name="theirs", options={"a": 1}))
    made = entry_points.load(
        config, Path("/"), SystemClock(), lambda name: lambda options, root, clock: Inner(answer)
    )
    assert isinstance(made, entry_points.PluginMonitor)
    return made


def test_what_a_plugin_says_is_bounded_and_under_its_own_name() -> None:
    monitor = plugin_monitor(Look(probes=(FINDING,) * 300, unknown=("u" * 2000,) * 40))
    look = asyncio.run(monitor.look(FACTS, T0))
    assert len(look.probes) == entry_points.MAX_FINDINGS
    assert (look.probes[0].source, look.probes[0].message) == ("plugin-theirs", "a [1mb")
    assert look.unknown[-1] == "44 findings beyond the first 256 were left out"
    assert max(len(words) for words in look.unknown) <= entry_points.MAX_MESSAGE
    assert monitor.keep() == "kept"


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (RuntimeError("boom\x1b"), "RuntimeError: boom"),
        ({"probes": []}, "gave a dict and no Look"),
        (Look(probes=("nonsense",)), "gave a str among its probes"),  # type: ignore[arg-type] # what the test is about
        (Look(probes=(dataclasses.replace(FINDING, severity="fatl"),)), "gave a Probe that is none"),  # type: ignore[arg-type] # as above
        (Look(probes=(dataclasses.replace(FINDING, message=7),)), "gave a Probe that is none"),  # type: ignore[arg-type] # as above
        (Look(sightings=(sighting(T0.replace(tzinfo=None)),)), "gave a time without a time zone"),
        (Look(notices=("tomorrow",)), "gave a Notice that is none"),  # type: ignore[arg-type] # as above
    ],
)
def test_a_plugin_that_does_anything_else_is_a_sentence(answer: object, words: str) -> None:
    monitor = plugin_monitor(answer)
    with pytest.raises(PluginError, match=words):
        asyncio.run(monitor.look(FACTS, T0))
    asyncio.run(monitor.close())
    assert len(monitor.keep()) <= 4


def test_a_plugin_that_cannot_go_on_from_what_it_kept_says_so() -> None:
    monitor = plugin_monitor(RuntimeError("no"))
    monitor.restore("x")
    with pytest.raises(PluginError, match="cannot go on from what it kept"):
        asyncio.run(monitor.look(FACTS, T0))


def test_real_entry_points_are_found_by_name_and_broken_ones_are_degraded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    info = tmp_path / "site_monitors-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: site-monitors\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(
        "[muster.monitors]\ngood = site_monitors:make\nbroken = site_monitors_missing:make\n"
    )
    (tmp_path / "site_monitors.py").write_text(
        "from muster.agent.monitor import Look\n"
        "class M:\n"
        "    name, interval_s, deadline_s = 'm', 1.0, 1.0\n"
        "    def __init__(self, options): self.options = options\n"
        "    async def look(self, facts, now): return Look(unknown=(str(self.options['level']),))\n"
        "    def keep(self): return ''\n"
        "    def restore(self, kept): pass\n"
        "    async def close(self): pass\n"
        "def make(options, root, clock): return M(options)\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    listed = tuple(
        PluginConfig(name=name, entry_point=EntryPointConfig(name=name, options={"level": 3}))
        for name in ("good", "broken", "absent")
    )
    good, broken, absent = plugins.monitors(listed, Path("/"), SystemClock())
    assert asyncio.run(good.look(FACTS, T0)).unknown == ("3",)
    with pytest.raises(PluginError, match="site_monitors_missing"):
        asyncio.run(broken.look(FACTS, T0))
    with pytest.raises(PluginError, match=r"No installed package.*there are: broken, good"):
        asyncio.run(absent.look(FACTS, T0))


# Conditions of the Node


def condition(status: str = "True", *, age_s: float = 60, since_s: float = 3600, **more: Any) -> dict[str, Any]:
    return {
        "type": "XidCriticalError",
        "status": status,
        "reason": '{"31":true}',
        "message": "",
        "lastHeartbeatTime": stamp(T0 - timedelta(seconds=age_s)),
        "lastTransitionTime": stamp(T0 - timedelta(seconds=since_s)),
    } | more


def stamp(at: datetime) -> str:
    return at.strftime("%Y-%m-%dT%H:%M:%SZ")


def judged(*listed: dict[str, Any], wanted: ConditionConfig | None = None) -> Probe:
    config = NodeConditionsConfig(conditions=(wanted or ConditionConfig(type="XidCriticalError"),))
    (probe,) = judge("plugin-npd", config, {"status": {"conditions": list(listed)}}, FACTS, T0)
    return probe


def test_a_condition_is_a_fault_while_its_writer_renews_it() -> None:
    bad = judged(condition())
    assert (bad.healthy, bad.check, bad.code) == (False, "node-condition", "xid-critical-error")
    assert bad.message == 'XidCriticalError is True: {"31":true}'
    assert judged(condition("False")).healthy is True
    assert judged(condition("Unknown")).healthy is None
    ready = ConditionConfig(type="Ready", unhealthy_status=ConditionStatus.FALSE)
    assert judged(condition("False", type="Ready"), wanted=ready).healthy is False
    assert judged(condition("True", type="Ready"), wanted=ready).healthy is True


def test_without_a_fresh_heartbeat_a_condition_says_nothing_of_now() -> None:
    for status in ("True", "False"):
        stale = judged(condition(status, age_s=901))
        assert stale.healthy is None
        assert "nobody has renewed" in stale.message
    assert judged().message == "nobody has set the condition XidCriticalError on the Node"


def test_a_condition_that_holds_until_the_next_boot_is_seen_as_that() -> None:
    # A device plugin writes the boot ID into the message, beats no heart, and never takes the condition back.
    latched = condition(age_s=4500, since_s=4546, message=BOOT)
    now = judged(latched)
    assert now.healthy is False
    assert "latched since 2026-03-01 10:44:14 UTC until the next boot" in now.message
    assert judged(latched | {"message": "99999999-2222-3333-4444-555555555555"}).healthy is True


def test_a_latched_condition_from_before_the_boot_is_unknown() -> None:
    wanted = ConditionConfig(type="XidCriticalError", latched=True)
    assert judged(condition(age_s=5000, since_s=5000), wanted=wanted).healthy is False
    old = judged(condition(age_s=200_000, since_s=200_000), wanted=wanted)
    assert (old.healthy, old.message) == (None, "XidCriticalError was set before the node booted, and not since")
    assert judged(condition("False", age_s=200_000), wanted=wanted).healthy is True


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.text(max_size=40),
        lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=20), inner, max_size=4),
        max_leaves=12,
    )
)
def test_any_object_is_judged(value: Any) -> None:
    config = NodeConditionsConfig(conditions=(ConditionConfig(type="A"),))
    for node in ({"status": value}, {"status": {"conditions": value}}, {"status": {"conditions": [value]}}):
        (probe,) = judge("s", config, node, FACTS, T0)
        assert probe.healthy in (None, True, False)
    mangled = {"type": "A", "status": "True", "lastHeartbeatTime": value, "message": value, "reason": value}
    (probe,) = judge("s", config, {"status": {"conditions": [mangled]}}, FACTS, T0)
    assert probe.healthy in (None, True, False)


@pytest.mark.parametrize(
    ("condition_type", "code"),
    [
        ("XidCriticalError", "xid-critical-error"),
        ("ReadonlyFilesystem", "readonly-filesystem"),
        ("example.com/GPUBad2", "example-com-gpu-bad2"),
        ("***", "condition"),
    ],
)
def test_codes_of_conditions(condition_type: str, code: str) -> None:
    assert code_of(condition_type) == code


def test_the_monitor_reads_its_own_node(tmp_path: Path) -> None:
    async def story() -> tuple[bool | None, str]:
        api = InProcessApi(Store(SystemClock()))
        node = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n1"}}
        await api.create(NODES, node | {"status": {"conditions": [condition()]}})
        listed = (
            PluginConfig(
                name="npd",
                node_conditions=NodeConditionsConfig(conditions=(ConditionConfig(type="XidCriticalError"),)),
            ),
        )
        (monitor,) = plugins.monitors(listed, tmp_path, SystemClock(), api, "n1")
        look = await monitor.look(FACTS, T0)
        (other,) = plugins.monitors(listed, tmp_path, SystemClock(), api, "n2")
        with pytest.raises(NotFoundError):
            await other.look(FACTS, T0)
        return look.probes[0].healthy, monitor.name

    assert asyncio.run(story()) == (False, "plugin-npd")


def test_conditions_on_a_real_api_server(real_cluster: RealCluster) -> None:
    """Times and fields as a real server keeps them, written through the status of the Node."""

    async def story() -> tuple[Probe, ...]:
        async with HttpApi.from_kubeconfig(str(real_cluster.kubeconfig), None) as api:
            await api.create(NODES, {"metadata": {"name": "plugin-conditions"}})
            try:
                listed = [condition(message=BOOT, age_s=4500), condition("False", type="KernelDeadlock")]
                await api.patch(
                    NODES,
                    "plugin-conditions",
                    {"status": {"conditions": listed}},
                    PatchType.MERGE,
                    subresource="status",
                )
                wanted = tuple(
                    ConditionConfig(type=name) for name in ("XidCriticalError", "KernelDeadlock", "Absent")
                )
                plugin = PluginConfig(name="npd", node_conditions=NodeConditionsConfig(conditions=wanted))
                (monitor,) = plugins.monitors((plugin,), Path("/"), SystemClock(), api, "plugin-conditions")
                return (await monitor.look(FACTS, T0)).probes
            finally:
                await api.delete(NODES, "plugin-conditions")

    assert [probe.healthy for probe in asyncio.run(story())] == [False, True, None]


# The examples

EXAMPLES = Path(__file__).parents[2] / "docs/examples/agent-plugins"


def test_the_example_configuration_is_understood() -> None:
    config = load(EXAMPLES / "agent.yaml")
    assert [plugin.name for plugin in config.plugins] == ["raid", "site", "npd"]
    npd = config.plugins[2].node_conditions
    assert npd is not None
    assert [condition.latched for condition in npd.conditions] == [False, False, True]


@pytest.mark.parametrize(
    ("state", "healthy"), [("[2/2] [UU]", True), ("[2/1] [U_]", False), ("[3/1] [_U_]", False), (None, None)]
)
def test_the_example_script_tells_a_degraded_array(tmp_path: Path, state: str | None, healthy: bool | None) -> None:
    mdstat = tmp_path / "mdstat"
    if state is not None:
        mdstat.write_text(
            f"Personalities : [raid1]\nmd0 : active raid1 sdb1[1] sda1[0]\n      97280 blocks {state}\n"
        )
    config = ScriptConfig(command=(str(EXAMPLES / "check-raid.sh"), str(mdstat)), check="disk", code="raid-degraded")
    assert told(ScriptMonitor(PluginConfig(name="raid", script=config), config)).healthy is healthy


def test_the_example_monitor_is_faulty_while_its_file_exists(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(EXAMPLES / "site_monitor/src"))
    make = importlib.import_module("site_monitor").make
    plugin = load(EXAMPLES / "agent.yaml").plugins[1]
    monitor = entry_points.load(plugin, tmp_path, SystemClock(), lambda name: make)
    (tmp_path / "run/site").mkdir(parents=True)
    (before,) = asyncio.run(monitor.look(FACTS, T0)).probes
    (tmp_path / "run/site/maintenance").write_text("new cables\nmore\n")
    (during,) = asyncio.run(monitor.look(FACTS, T0)).probes
    assert (before.healthy, during.healthy) == (True, False)
    assert (during.message, during.source) == ("new cables", "plugin-site")
    with pytest.raises(BadInputError, match="absolute path"):
        make({}, tmp_path, SystemClock())
