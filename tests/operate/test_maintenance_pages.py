"""The examples in the pages about maintenance are what the program reads."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import msgspec

from muster import yamlio
from muster.agent import config as agent_config
from muster.agent.maintenance.config import Cloud
from muster.agent.maintenance.listed import parse_notices
from muster.kube.api import CRDS, FAULT_POLICIES, MAINTENANCES
from muster.operate.maintenance.scope import problems
from muster.resources import crd
from muster.resources.base import from_object
from muster.resources.fault_policy import Disposition, FaultPolicy
from muster.resources.maintenance import Maintenance
from muster.resources.node_health import NoticeKind, NoticeStatus
from muster.sim.inprocess import InProcessApi
from muster.sim.store import Store
from muster.sim.virtual import VirtualClock, run_virtual

PAGES = Path(__file__).parents[2] / "docs/how-to"
PLANNED = (PAGES / "planned-maintenance.md").read_text(encoding="utf-8")
CLOUD = (PAGES / "cloud-maintenance.md").read_text(encoding="utf-8")


def examples(page: str) -> list[Any]:
    return [yamlio.loads(text, "an example") for text in re.findall(r"```yaml\n(.*?)```", page, re.DOTALL)]


def test_the_declarations_can_be_carried_out_and_the_server_takes_them() -> None:
    declared = examples(PLANNED)
    assert len(declared) == 2
    for document in declared:
        assert problems(from_object(Maintenance, document).spec) == ()
    policy = examples(CLOUD)[0]

    async def story(clock: VirtualClock) -> None:
        api = InProcessApi(Store(clock, seed=1), user="test")
        for manifest in crd.manifests():
            await api.create(CRDS, dict(manifest))
        for document in declared:
            stored = await api.create(MAINTENANCES, document)
            assert {**stored["spec"], **document["spec"]} == stored["spec"]
        stored = await api.create(FAULT_POLICIES, policy)
        assert {**stored["spec"]["maintenance"], **policy["spec"]["maintenance"]} == stored["spec"]["maintenance"]

    run_virtual(story)


def test_policy_config_and_notices_are_read() -> None:
    policy, config, notices = examples(CLOUD)
    rules = from_object(FaultPolicy, policy).spec.maintenance
    assert rules is not None
    assert (rules.disposition, rules.lead_s) == (Disposition.DRAIN, 1800)
    section = agent_config.read(config, "the example").maintenance
    assert section.cloud is Cloud.AUTO
    assert section.webhook is not None
    assert section.webhook.interval_s == 120
    (notice,) = parse_notices(notices, "file", "the example")
    assert notice.kind is NoticeKind.POWER


def test_the_page_lists_every_key_and_word() -> None:
    rows = set(re.findall(r"^\| `([a-zA-Z]+)` \|", CLOUD, re.MULTILINE))
    fields = {f.encode_name for f in msgspec.structs.fields(type(agent_config.AgentConfig().maintenance))}
    assert rows == fields - {"intervalS", "timeoutS"}
    for word in (*NoticeKind, *NoticeStatus, *Cloud):
        assert f"`{word.value}`" in CLOUD
