"""`muster policy`: files, cases, history and a cluster over HTTP; exit codes and sentences."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from muster.cli.group import run
from muster.kube.api import CRDS, FAULT_POLICIES, NODE_HEALTHS, NODES, AlreadyExistsError
from muster.resources import crd
from muster.resources.base import to_object
from muster.resources.fault_policy import Disposition
from tests.contract.server import Server, eventually, simulated
from tests.live.cluster import create, on
from tests.operate.histories import ago, burst, fault
from tests.operate.test_backtest import node, policy

RULES = """
apiVersion: muster.dev/v1alpha1
kind: FaultPolicy
metadata: {name: mine}
spec:
  priority: 10
  repairProvider: cloud
  rules:
    - {name: off-bus, when: "fault.code == '79'", disposition: repair, ladder: [{rung: reboot}, {rung: ticket}]}
"""
CASES = """
cases:
  - name: off the bus is rebooted
    faults: [{check: xid, code: '79'}]
    expect: [{fault: xid/79, rule: off-bus, disposition: DISPOSITION, ladder: [reboot, ticket]}]
"""


def files(folder: Path, disposition: str = "repair", rules: str = RULES) -> list[str]:
    (folder / "rules.yaml").write_text(rules)
    (folder / "cases.yaml").write_text(CASES.replace("DISPOSITION", disposition))
    return [str(folder / "rules.yaml"), str(folder / "cases.yaml")]


def test_passing_cases_exit_with_0_and_failing_ones_with_3(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["policy", "test", *files(tmp_path)]) == 0
    assert "1 case, 0 failed." in capsys.readouterr().out
    assert run(["policy", "test", *files(tmp_path, "drain")]) == 3
    told = capsys.readouterr().out
    assert "disposition is repair, expected drain" in told
    assert run(["policy", "test", *files(tmp_path, "drain"), "-o", "json"]) == 3
    (row,) = json.loads(capsys.readouterr().out)
    assert (row["passed"], row["said"][0]["rule"]) == (False, "off-bus")


@pytest.mark.parametrize(
    ("rules", "code", "clause"),
    [
        (RULES.replace("fault.code", "fault.cod"), 3, "undeclared reference"),
        (RULES.replace("repairProvider", "repairProvder"), 2, "did you mean repairProvider"),
        (RULES.replace("kind: FaultPolicy", "kind: Pod"), 2, "holds no FaultPolicy"),
        ("", 2, "is empty"),
        ("a: [", 2, "not valid YAML"),
    ],
)
def test_lint_tells_what_is_wrong(
    rules: str, code: int, clause: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = files(tmp_path, rules=rules)[0]
    assert run(["policy", "lint", path]) == code
    captured = capsys.readouterr()
    assert clause in captured.out + captured.err
    assert "Traceback" not in captured.err


def test_lint_warns_of_a_provider_that_is_not_there(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["policy", "lint", files(tmp_path)[0], "--provider", "redfish"]) == 0
    assert "names the provider cloud, which this controller does not have (it has redfish)" in capsys.readouterr().out


def test_show_names_where_each_rule_comes_from(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["policy", "show", "--file", files(tmp_path)[0], "-o", "json"]) == 0
    shown = json.loads(capsys.readouterr().out)
    origin = {rule["name"]: rule["from"] for rule in shown["rules"]}
    assert (origin["off-bus"], origin["fatal-hardware"]) == ("mine", "safe-default")
    assert shown["budget"]["maxDisrupted"] == "10%"
    for name in ("safe-default", "full-automation", "observe-only"):
        assert run(["policy", "show", "--shipped", name]) == 0
        assert name in capsys.readouterr().out
    assert run(["policy", "show", "--shipped", "safe-default"]) == 0
    text = capsys.readouterr().out
    assert text.startswith("Policies, strongest first: safe-default\n")
    assert "requireApproval: false" in text
    assert "blackouts: none" in text
    assert run(["policy", "show", "--shipped", "none-such"]) == 2
    assert "there are safe-default" in capsys.readouterr().err


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with simulated(tmp_path_factory.mktemp("simulated")) as found:
        for manifest in crd.manifests():
            with suppress(AlreadyExistsError):
                create(found, CRDS, dict(manifest))
        for kind in (NODE_HEALTHS, FAULT_POLICIES):
            eventually(partial(served, found, kind))
        for name in ("n1", "n2"):
            create(found, NODES, {"metadata": {"name": name, "labels": {"pool": "a"}}})
            health = to_object(node(name, (fault("79", burst(ago(2))),)).health)
            status = health.pop("status")
            create(found, NODE_HEALTHS, {"apiVersion": "muster.dev/v1alpha1", "kind": "NodeHealth", **health}, status)
        present: dict[str, Any] = to_object(policy("present", "fault.code == '79'", Disposition.DRAIN))
        create(found, FAULT_POLICIES, {"apiVersion": "muster.dev/v1alpha1", "kind": "FaultPolicy", **present})
        yield found


def served(server: Server, kind: Any) -> bool:
    try:
        on(server, lambda api: api.list_page(kind))
    except Exception:
        return False
    return True


def test_the_history_of_a_cluster_is_exported_and_replayed(
    server: Server, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    target, kubeconfig = str(tmp_path / "history.json"), ["--kubeconfig", str(server.kubeconfig)]
    assert run(["policy", "export", "--to", target, *kubeconfig]) == 0
    assert "2 nodes, 1 policy." in capsys.readouterr().out
    rules = files(tmp_path)[0]
    results = []
    for source in (["--history", target], ["--cluster", *kubeconfig]):
        assert run(["policy", "backtest", rules, *source, "-o", "json"]) == 0
        results.append(json.loads(capsys.readouterr().out))
    for result in results:
        assert (result["candidate"]["repairs"], result["present"]["drains"]) == (2, 2)
        assert result["missed"] == []
    assert run(["policy", "backtest", rules, "--history", target]) == 0
    told = capsys.readouterr().out
    assert "off-bus" in told
    assert "repairs on 2 nodes" in told
    assert told.startswith("2 nodes, 2026-01-08 10:00:00 UTC to ")
    assert "+00:00" not in told


def test_show_reads_the_policies_of_a_node_from_the_cluster(
    server: Server, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["policy", "show", "n1", "--kubeconfig", str(server.kubeconfig), "-o", "json"]) == 0
    shown = json.loads(capsys.readouterr().out)
    assert (shown["policies"], shown["labels"]) == (["present", "safe-default"], {"pool": "a"})
    assert run(["policy", "show", "n9", "--kubeconfig", str(server.kubeconfig)]) == 2
    assert "has no node n9" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("args", "clause"),
    [
        (["backtest", "RULES"], "--history FILE or --cluster"),
        (["backtest", "RULES", "--history", "none-such"], "cannot be read"),
        (["backtest", "RULES", "--history", "RULES"], "no recorded history"),
        (["test", "RULES"], "No file holds cases"),
        (["show", "n1", "--selector", "a=b"], "exclude each other"),
        (["show", "--selector", "nonsense", "--shipped", "safe-default"], "no LABEL=VALUE"),
    ],
)
def test_bad_input_is_one_sentence(
    args: list[str], clause: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rules = files(tmp_path)[0]
    assert run(["policy", *(rules if a == "RULES" else a for a in args)]) == 2
    assert clause in capsys.readouterr().err
