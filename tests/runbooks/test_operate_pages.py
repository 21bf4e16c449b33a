"""The pages about operating: their YAML is what the program reads, their commands on the example files run."""

from __future__ import annotations

import asyncio
import importlib.util
import os
import re
import subprocess
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from muster import yamlio
from muster.agent import config as agent_config
from muster.agent.monitor import NodeFacts
from muster.cli.group import run
from muster.clock import SystemClock
from muster.errors import BadInputError
from muster.operate.backtest.cases import read_cases
from muster.operate.model import NOTE_REASONS
from muster.operate.policy_files import read_policy
from muster.operate.policy_problems import problems
from muster.telemetry.names import NAMES
from tests.bones.test_pages import commands, words

ROOT = Path(__file__).parents[2]
HOW_TO = ROOT / "docs/how-to"
POLICIES = ROOT / "docs/examples/policies"
PLUGINS = ROOT / "docs/examples/agent-plugins"
PAGES = ("roll-out.md", "write-a-policy.md", "drain.md", "write-a-monitor.md", "operate-a-node.md", "read-a-log.md")
FACTS = NodeFacts(boot_id="boot-1", booted_at=None, gpus=())
NOW = datetime(2026, 1, 5, 8, 0, tzinfo=UTC)


def text(page: str) -> str:
    return (HOW_TO / page).read_text(encoding="utf-8")


def documents(page: str) -> list[Any]:
    return [yamlio.loads(block, page) for block in re.findall(r"```yaml\n(.*?)```", text(page), re.DOTALL)]


@pytest.mark.parametrize("page", PAGES)
def test_the_yaml_of_the_page_is_what_the_program_reads(page: str) -> None:
    for document in documents(page):
        if "kind" in document:
            assert problems(read_policy(document, page)) == ()
        elif "cases" in document:
            assert read_cases(document, page)
        else:
            assert agent_config.read(document, page).plugins


def test_the_pages_have_examples() -> None:
    assert [len(documents(page)) for page in PAGES[:4]] == [1, 4, 1, 3]


def offline(page: str) -> list[list[str]]:
    """Commands of the page that need no cluster: they name files of this project, or what is shipped."""
    found = [words(command) for command in commands(text(page))]
    return [
        given
        for given in found
        if given[:1] == ["policy"]
        and "--cluster" not in given
        and "week.json" not in given
        and any(word.startswith(("docs/", "--shipped")) for word in given)
    ]


@pytest.mark.parametrize("page", ["roll-out.md", "write-a-policy.md"])
def test_commands_on_the_example_files_run(page: str, monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    monkeypatch.chdir(ROOT)
    found = offline(page)
    assert len(found) >= 3
    for given in found:
        assert run(given) == 0, given
        assert capsys.readouterr().out, given


def test_the_parts_of_the_page_are_the_example_file() -> None:
    """What write-a-policy.md shows piece by piece is what the file holds."""
    whole = yamlio.load(POLICIES / "training.yaml")["spec"]
    rules = {rule["name"]: rule for rule in whole["rules"]}
    for document in documents("write-a-policy.md"):
        spec = document.get("spec", {})
        assert all(rules[rule["name"]] == rule for rule in spec.get("rules", ()))
        for pattern in spec.get("patterns", ()):
            assert pattern.items() <= whole["patterns"][0].items()
        for rule in spec.get("drain", {}).get("rules", ()):
            assert rule in whole["drain"]["rules"]


def test_the_backtest_of_the_page_finds_what_the_new_policy_does_more(
    monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    monkeypatch.chdir(POLICIES)
    assert run(["policy", "backtest", "training.yaml", "--history", "history.json"]) == 0
    told = capsys.readouterr().out
    assert "hold by throttles" in told
    assert "hold by lost-links-again" in told


def test_the_example_configuration_is_read_and_the_script_says_what_it_should(tmp_path: Path) -> None:
    config = agent_config.load(PLUGINS / "agent.yaml")
    assert [plugin.name for plugin in config.plugins] == ["raid", "site", "npd"]
    shown = [plugin for document in documents("write-a-monitor.md") for plugin in document["plugins"]]
    named = {plugin["name"]: plugin for plugin in yamlio.load(PLUGINS / "agent.yaml")["plugins"]}
    for plugin in shown:
        kind = next(key for key in ("script", "entryPoint", "nodeConditions") if key in plugin)
        assert kind in named[plugin["name"]]
    for content, code in (("md0 : active [UU]\n", 0), ("md0 : active [U_]\n", 1)):
        file = tmp_path / "mdstat"
        file.write_text(content)
        script = [str(PLUGINS / "check-raid.sh"), str(file)]
        assert subprocess.run(script, check=False, capture_output=True).returncode == code


def site_monitor() -> Any:
    """The example package, imported as its entry point says."""
    project = PLUGINS / "site_monitor"
    entry = re.search(r'^site = "(\w+):(\w+)"$', (project / "pyproject.toml").read_text(), re.MULTILINE)
    assert entry is not None
    spec = importlib.util.spec_from_file_location(entry[1], project / "src" / entry[1] / "__init__.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return getattr(module, entry[2])


def test_the_example_monitor_opens_and_closes_its_fault(tmp_path: Path) -> None:
    make = site_monitor()
    monitor = make({"file": "/run/site"}, tmp_path, SystemClock())
    (well,) = asyncio.run(monitor.look(FACTS, NOW)).probes
    assert well.healthy is True
    (tmp_path / "run").mkdir()
    (tmp_path / "run/site").write_text("ana changes a fan\nsecond line\n")
    (faulty,) = asyncio.run(monitor.look(FACTS, NOW)).probes
    assert (faulty.healthy, faulty.check, faulty.code) == (False, "site", "site-work")
    assert faulty.message.strip() == "ana changes a fan"
    with pytest.raises(BadInputError, match="needs the option 'file'"):
        make({}, tmp_path, SystemClock())


def test_files_that_the_pages_name_are_there() -> None:
    for page in (*PAGES, "../install.md", "../concepts.md"):
        for name in re.findall(r"(?:src/muster|docs/examples|deploy)/[\w./-]*\w", text(page)):
            assert (ROOT / name).exists(), (page, name)
    assert os.access(PLUGINS / "check-raid.sh", os.X_OK)


def test_the_policies_of_a_roll_out_leave_other_nodes_alone() -> None:
    for name in ("pilot.yaml", "repair.yaml"):
        policy = read_policy(yamlio.load(POLICIES / name), name)
        assert policy.spec.node_selector == {"muster-pilot": "true"}
        assert policy.spec.budget is not None
        assert policy.spec.budget.max_disrupted in ("1", "2")


OPERATE = (
    *(HOW_TO / page for page in PAGES),
    *sorted((ROOT / "docs/runbooks").glob("*.md")),
    ROOT / "docs/install.md",
)


@pytest.mark.parametrize("page", OPERATE, ids=lambda page: page.name)
def test_metrics_reasons_and_values_of_the_chart_that_a_page_names_exist(page: Path) -> None:
    told = page.read_text(encoding="utf-8")
    assert set(re.findall(r"\bmuster_[a-z_]+\b", told)) - set(NAMES) <= set()
    assert set(re.findall(r"Event `(\w+)`|reason=(\w+)", told)) <= {
        pair for reason in NOTE_REASONS for pair in ((reason, ""), ("", reason))
    }
    values = yamlio.load(ROOT / "deploy/chart/values.yaml")
    named = re.findall(
        r"--set(?:-string)? ((?:[\w-]+\.?)+)=|`((?:agent|controller|metrics|image|crds)\.[\w.]+)", told
    )
    for name in (flag or code for flag, code in named):
        if not name.startswith("daemonsets."):  # a value of another chart
            assert has(values, name), name


def has(values: Any, name: str) -> bool:
    """Whether the chart has the value; what is below an empty map is the user's own."""
    for part in name.split("."):
        if not isinstance(values, dict) or (part not in values and "muster-pilot" not in part):
            return values == {}
        values = values.get(part, {})
    return True


def test_the_check_of_values_finds_what_is_missing() -> None:
    values = {"agent": {"config": {}, "port": 1}}
    assert has(values, "agent.config.gpu.enabled")
    assert not has(values, "agent.prot")
    assert not has(values, "agent.port.x")
