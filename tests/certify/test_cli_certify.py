"""`muster certify` without a cluster: bad input in one sentence, plans and reports from files, objects printed."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from muster import yamlio
from muster.cli.certify_spec import Asked, build_spec, matches, parse_target
from muster.cli.group import run
from muster.errors import BadInputError
from muster.resources.base import to_object
from muster.resources.certification import Certification, CertificationPart
from tests.certify.report_samples import Fleet, certification

SICK = Fleet(bad=("gpu-0003",), links=(("gpu-0006", "gpu-0013"),), untested=("gpu-0001",))


def node(
    name: str, product: str = "NVIDIA-H100-80GB-HBM3", gpus: str = "8", ready: str = "True", **labels: str
) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {
            "name": name,
            "uid": f"uid-{name}",
            "labels": {
                "nvidia.com/gpu.product": product,
                "nvidia.com/gpu.present": "true",
                "topology.kubernetes.io/zone": "a",
                **labels,
            },
        },
        "spec": {"providerID": f"aws:///a/{name}"},
        "status": {
            "allocatable": {"nvidia.com/gpu": gpus},
            "conditions": [{"type": "Ready", "status": ready}],
            "nodeInfo": {"bootID": "b"},
        },
    }


def nodes_file(folder: Path, *nodes: dict[str, Any]) -> str:
    path = folder / "nodes.json"
    path.write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": list(nodes)}))
    return str(path)


def fleet_file(folder: Path, count: int = 8) -> str:
    return nodes_file(folder, *(node(f"n{i}", pool="a" if i < 4 else "b") for i in range(count)))


def saved(folder: Path, made: Certification, parts: list[CertificationPart], *, as_list: bool = True) -> str:
    objects = [to_object(o) for o in (made, *parts)]
    kinds = ["Certification"] + ["CertificationPart"] * len(parts)
    full = [{**o, "apiVersion": "muster.dev/v1alpha1", "kind": k} for o, k in zip(objects, kinds, strict=True)]
    path = folder / ("saved.json" if as_list else "saved.yaml")
    path.write_text(json.dumps({"kind": "List", "items": full}) if as_list else yamlio.dumps_all(full))
    return str(path)


# Bad input


@pytest.mark.parametrize(
    ("args", "sentence"),
    [
        (["run"], "Nothing says which nodes"),
        (["run", "--target", "gpu"], "'gpu' is no label"),
        (["run", "--target", "a in (b)"], "is no label"),
        (["run", "--target", "a=b,a=c"], "two values of a"),
        (["run", "--target", ","], "names no label"),
        (["run", "--nodes", "N1"], "cannot be the name of a node"),
        (["run", "--nodes", "n1,n1"], "names n1 twice"),
        (["run", "--nodes", "n1", "--partners", "n1"], "among --nodes and --partners"),
        (["run", "--nodes", "n1", "--tests", "pear"], "'pear' is no profile and no test; did you mean pair?"),
        (["run", "--nodes", "n1", "--profile", "burn-in"], "no test profile 'burn-in'"),
        (["run", "--nodes", "n1", "--tests", "repair", "--profile", "idle"], "give one"),
        (["run", "--nodes", "n1", "--floor", "pair"], "malformed"),
        (["run", "--nodes", "n1", "--floor", "pair=fast"], "'fast' is no number"),
        (["run", "--nodes", "n1", "--floor", "busbw=300"], "'busbw', which is no test"),
        (["run", "--nodes", "n1", "--floor", "pair=nan"], "above 0"),
        (["run", "--nodes", "n1", "--env", "A"], "malformed"),
        (["run", "--nodes", "n1", "--gang", "slurm:q"], "write kueue:QUEUE"),
        (["run", "--nodes", "n1", "--gang", "kueue"], "write kueue:QUEUE"),
        (["run", "--nodes", "n1", "--toleration", "a=b:Sometimes"], "malformed"),
        (["run", "--nodes", "n1", "--nic-resource", "rdma/ib=none"], "1 to 1024"),
        (["run", "--nodes", "n1", "--nic-resource", "=3"], "has no name"),
        (["run", "--nodes", "n1", "--max-rounds", "0"], "range"),
        (["run", "--nodes", "n1", "--max-false-blame", "2"], "range"),
        (["run", "--nodes", "n1", "--name", "No Good"], "--name 'No Good'"),
        (["run", "--nodes", "n1", "--name", "x" * 64], "at most 63"),
        (["run", "--nodes", "n1", "--timeout", "1h"], "add --wait"),
        (["run", "--nodes", "n1", "--wait", "--timeout", "soon"], "'soon' is no time"),
        (["run", "--nodes", "n1", "--wait", "--timeout", "30s"], "is shorter than the tests themselves"),
        (["run", "--nodes", "n1", "--custom-test", "/nowhere.yaml"], "Cannot read /nowhere.yaml"),
        (["plan", "--nodes", "n1", "--from", "/nowhere.json"], "Cannot read /nowhere.json"),
        (["report"], "Say which certification"),
        (["report", "--file", "/nowhere.yaml"], "Cannot read /nowhere.yaml"),
        (["report", "x", "-o", "pdf"], "'pdf' is not one of"),
        (["explain", "x"], "Missing argument 'NODE'"),
        (["local", "--inject", "node=9"], "is no fault"),
        (["local", "--inject", "node=1,fault=tired"], "is no fault"),
        (["local", "--tests", "dcgm-diag"], "does not run locally"),
        (["local", "--workers", "1"], "range"),
        (["status", "x", "--kubeconfig", "/nowhere/config"], "/nowhere/config"),
    ],
)
def test_bad_input_is_one_sentence_and_exit_code_two(
    args: list[str], sentence: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["certify", *args]) == 2
    told = capsys.readouterr()
    assert sentence in told.err
    assert told.err.startswith("muster: ")
    assert told.err.count("\n") == 1
    assert told.out == ""


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        ("- 1\n", "holds no test"),
        ("customTests: []\n", "holds no test"),
        ("name: t\n", "cannot be used as a test"),
        ("name: t\ncommand: [x]\ncolor: red\n", "no field 'color'"),
        ("name: t\ncommand: [x]\nscope: rack\n", "scope 'rack'"),
        ("name: pair\ncommand: [x]\n", "comes with Muster"),
        ("name: [\n", "not valid YAML"),
    ],
)
def test_a_custom_test_that_cannot_be_used(
    content: str, sentence: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "t.yaml"
    path.write_text(content)
    assert run(["certify", "run", "--nodes", "n1", "--dry-run", "--custom-test", str(path)]) == 2
    assert sentence in capsys.readouterr().err


def test_the_help_of_every_verb_says_its_exit_codes_or_changes_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    for verb in ("plan", "run", "status", "report", "explain", "tests", "local"):
        assert run(["certify", verb, "--help"]) == 0
        assert "Usage: muster certify " + verb in capsys.readouterr().out


def test_help_imports_nothing_heavy() -> None:
    code = (
        "import sys; from muster.cli.group import run; run(['certify', '--help']); "
        "print([m for m in sys.modules if m.startswith(('muster.certify', 'muster.kube', 'lightkube', 'torch'))])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "[]"


# Selectors


@given(
    st.dictionaries(st.sampled_from("abcd"), st.sampled_from(["", "x", "y"]), max_size=4),
    st.dictionaries(st.sampled_from("abcd"), st.sampled_from(["", "x", "y"]), max_size=4),
    st.sets(st.tuples(st.sampled_from("abcd"), st.sampled_from(["", "x", "y"])), max_size=3),
)
def test_a_selector_means_what_it_means_to_kubernetes(
    labels: dict[str, str], equal: dict[str, str], unequal: set[tuple[str, str]]
) -> None:
    from muster.sim.selectors import labels_match, parse_labels

    terms = [f"{k}={v}" for k, v in equal.items()] + [f"{k}!={v}" for k, v in sorted(unequal)]
    if not terms:
        return
    text = ",".join(terms)
    assert matches(labels, *parse_target(text)) == labels_match(parse_labels(text), labels)


@given(st.text(max_size=40))
def test_any_target_is_read_or_refused(text: str) -> None:
    try:
        equal, unequal = parse_target(text)
        said = ""
    except BadInputError as error:
        equal, unequal, said = {}, [], str(error)
    assert said.startswith("--target") == (bool(text.strip()) and not equal and not unequal)


# Objects


def dry_run(*args: str, capsys: pytest.CaptureFixture[str]) -> dict[str, Any]:
    assert run(["certify", "run", "--dry-run", "-o", "json", *args]) == 0
    printed: dict[str, Any] = json.loads(capsys.readouterr().out)
    return printed


def test_the_object_holds_what_was_asked_and_nothing_that_was_detected(capsys: pytest.CaptureFixture[str]) -> None:
    obj = dry_run("--target", "nvidia.com/gpu.present=true", "--tests", "repair", "--name", "a", capsys=capsys)
    assert obj == {
        "apiVersion": "muster.dev/v1alpha1",
        "kind": "Certification",
        "metadata": {"name": "a"},
        "spec": {
            "nodeSelector": {"nvidia.com/gpu.present": "true"},
            "profile": "repair",
            "budget": {},
            "pods": {},
        },
    }


def test_every_option_reaches_its_field(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    own = tmp_path / "own.yaml"
    own.write_text("name: probe\ncommand: [./probe, --fast]\nimage: probe:1\nscope: pair\n")
    text = (
        "--nodes n1,n2 --nodes n3 --partners p1 --tests host,probe,all-reduce --profile stack --expect-transport EFA "
        "--floor all-reduce=300 --max-rounds 9 --max-runs 90 --max-minutes 30 --max-node-hours 2 "
        "--max-false-blame 0.01 "
        "--image torch:1 --pull-secret s --nic-resource vpc.amazonaws.com/efa=32 --gpu-claim-template g "
        "--nic-claim-template c --host-network --env NCCL_IB_HCA=mlx5 --toleration a=b:NoSchedule --toleration c "
        "--storage-claim data --gang kueue:gpus"
    )
    spec = dry_run(*text.split(), "--custom-test", str(own), capsys=capsys)["spec"]
    assert spec["nodes"] == ["n1", "n2", "n3"]
    assert (spec["partners"], spec["profile"], spec["tests"]) == (["p1"], "stack", ["host", "probe", "all-reduce"])
    assert spec["customTests"] == [
        {"name": "probe", "scope": "pair", "image": "probe:1", "command": ["./probe", "--fast"]}
    ]
    assert (spec["expectedTransport"], spec["floors"]) == ("EFA", {"all-reduce": 300.0})
    assert spec["budget"] == {
        "maxRounds": 9,
        "maxRuns": 90,
        "maxWallMinutes": 30.0,
        "maxNodeMinutes": 120.0,
        "maxFalseBlame": 0.01,
    }
    assert spec["pods"] == {
        "image": "torch:1",
        "imagePullSecrets": ["s"],
        "nicResource": "vpc.amazonaws.com/efa",
        "nics": 32,
        "gpuClaimTemplate": "g",
        "nicClaimTemplate": "c",
        "hostNetwork": True,
        "env": {"NCCL_IB_HCA": "mlx5"},
        "tolerations": [{"key": "a", "operator": "Equal", "value": "b", "effect": "NoSchedule"}, {"key": "c"}],
        "storageClaim": "data",
        "gang": {"scheduler": "kueue", "queue": "gpus"},
    }


def test_without_a_name_it_is_the_profile_and_the_time(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    name = dry_run("--nodes", "n1", "--tests", "idle", capsys=capsys)["metadata"]["name"]
    assert name.startswith("idle-20")
    assert len(name) == len("idle-20261103-081500")


def test_a_spec_is_checked_as_the_controller_checks_it() -> None:
    spec = build_spec(Asked(nodes=("n1",), tests="host, pair"))
    assert (spec.profile, spec.tests) == ("bringup", ("host", "pair"))
    with pytest.raises(BadInputError, match="storageClaim"):
        build_spec(Asked(nodes=("n1",), tests="storage"))


# Plans


def test_a_plan_from_a_file_says_what_it_costs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source = fleet_file(tmp_path)
    assert run(["certify", "plan", "--from", source, "--target", "nvidia.com/gpu.present=true", "-o", "json"]) == 0
    shown = json.loads(capsys.readouterr().out)
    assert [(c["product"], c["nodes"], c["gpus"]) for c in shown["cells"]] == [("NVIDIA-H100-80GB-HBM3", 8, 8)]
    assert sum(t["runs"] for t in shown["tests"]) == shown["expectedRuns"]
    assert sum(t["nodeHours"] for t in shown["tests"]) == pytest.approx(shown["expectedNodeHours"], abs=0.1)
    assert shown["enough"]
    assert shown["expectedNodeHours"] <= shown["worstNodeHours"]
    assert shown["expectedMinutes"] <= shown["worstMinutes"]


def test_architectures_are_cells_of_their_own_and_the_odd_ones_are_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """One stray node never outvotes or excludes the others."""
    fleet = [node("a100", product="NVIDIA-A100-SXM4-80GB"), *(node(f"n{i}") for i in range(4))]
    fleet += [node("small", gpus="4"), node("bare", gpus="0"), node("down", ready="False")]
    assert (
        run(["certify", "plan", "--from", nodes_file(tmp_path, *fleet), "--target", "nvidia.com/gpu.present=true"])
        == 0
    )
    told = capsys.readouterr().out
    assert "4 nodes of NVIDIA-H100-80GB-HBM3 on aws" in told
    assert "1 node of NVIDIA-A100-SXM4-80GB on aws" in told
    for piece in ("small: The node offers 4 GPUs", "bare: The node offers no GPUs", "down: The node is not Ready"):
        assert piece in told
    assert "Expected, when nothing fails" in told
    assert "At most, by its budget" in told


def test_a_busy_and_a_cordoned_node_are_untested_with_the_reason(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    cordoned = node("n4")
    cordoned["spec"]["unschedulable"] = True
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "train-0", "namespace": "ml"},
        "spec": {
            "nodeName": "n3",
            "containers": [{"name": "c", "resources": {"limits": {"nvidia.com/gpu": "8"}}}],
        },
        "status": {"phase": "Running"},
    }
    source = nodes_file(tmp_path, *(node(f"n{i}") for i in range(4)), cordoned, pod)
    assert run(["certify", "plan", "--from", source, "--target", "nvidia.com/gpu.present=true"]) == 0
    told = capsys.readouterr().out
    assert "3 nodes of" in told
    assert "n3: The pod ml/train-0 has GPUs of the node" in told
    assert "n4: A person cordoned the node" in told


def test_no_node_that_can_be_tested_is_said_and_not_a_success(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    source = nodes_file(tmp_path, node("n1", ready="False"))
    assert run(["certify", "plan", "--from", source, "--nodes", "n1"]) == 3
    assert "No node can be tested." in capsys.readouterr().out


@pytest.mark.parametrize(
    ("target", "sentence"),
    [
        ("pool=c", "the label pool has the values a, b"),
        ("color=red", "none of 8 nodes has the label color"),
        ("pool=a,nvidia.com/gpu.present!=true", "each label alone occurs"),
    ],
)
def test_a_target_that_matches_nothing_says_which_part(
    target: str, sentence: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """ "Found none" is not enough: the cause has a name."""
    assert run(["certify", "plan", "--from", fleet_file(tmp_path), "--target", target]) == 2
    assert sentence in capsys.readouterr().err


def test_unequal_labels_choose_nodes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    target = "nvidia.com/gpu.present=true,pool!=a"
    assert run(["certify", "plan", "--from", fleet_file(tmp_path), "--target", target, "-o", "json"]) == 0
    assert json.loads(capsys.readouterr().out)["cells"][0]["nodes"] == 4


def test_a_budget_that_cannot_hold_it_is_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source = fleet_file(tmp_path)
    assert run(["certify", "plan", "--from", source, "--target", "pool=a", "--max-rounds", "2"]) == 3
    assert "The budget does not allow what is expected" in capsys.readouterr().out


@pytest.mark.parametrize(
    "content", ["{}", '{"kind": "List", "items": []}', "[1, 2]", '{"kind": "Node"}', "{", "[" * 5000]
)
def test_a_file_that_holds_no_nodes(content: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "nodes.json"
    path.write_text(content)
    assert run(["certify", "plan", "--nodes", "n1", "--from", str(path)]) == 2
    assert str(path) in capsys.readouterr().err


# Reports from files


@pytest.mark.parametrize("as_list", [True, False], ids=["list", "documents"])
@pytest.mark.parametrize("form", ["text", "html", "json", "junit"])
def test_a_report_from_a_file(form: str, as_list: bool, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source = saved(tmp_path, *certification(SICK, parts=2), as_list=as_list)
    assert run(["certify", "report", "--file", source, "-o", form]) == 3
    shown = capsys.readouterr().out
    assert "gpu-0003" in shown
    to = tmp_path / "out"
    assert run(["certify", "report", "--file", source, "-o", form, "--to", str(to)]) == 3
    assert to.read_text() == shown
    assert "Not passed" in capsys.readouterr().out


def test_a_pass_ends_with_zero_and_a_missing_part_does_not(tmp_path: Path) -> None:
    made, parts = certification(Fleet(), parts=2)
    assert run(["certify", "report", "--file", saved(tmp_path, made, parts)]) == 0
    assert run(["certify", "report", "--file", saved(tmp_path, made, parts[:1])]) == 3


def test_explain_from_a_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source = saved(tmp_path, *certification(SICK, parts=2))
    assert run(["certify", "explain", "accept-1", "gpu-0003", "--file", source]) == 0
    told = capsys.readouterr().out
    for piece in ("gpu-0003: Failed", "For the verdict:", "Against it:", "Next: ", "TFLOP/s", "muster node gpu-0003"):
        assert piece in told
    assert run(["certify", "explain", "accept-1", "gpu-0033", "--file", source]) == 2
    assert "did you mean gpu-00" in capsys.readouterr().err
    assert run(["certify", "explain", "accept-2", "gpu-0003", "--file", source]) == 2
    assert "does not hold the certification accept-2" in capsys.readouterr().err


def test_a_file_of_several_asks_which(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    one, _ = certification(SICK, name="a")
    two, _ = certification(Fleet(), name="b")
    source = tmp_path / "two.yaml"
    source.write_text(
        yamlio.dumps_all([to_object(one) | {"kind": "Certification"}, to_object(two) | {"kind": "Certification"}])
    )
    assert run(["certify", "report", "--file", str(source)]) == 2
    assert "several certifications (a, b)" in capsys.readouterr().err
    assert run(["certify", "report", "b", "--file", str(source)]) == 0


@pytest.mark.parametrize(
    "content", ["", "a: b\n", "kind: Certification\n", "kind: Certification\nmetadata: 3\n", "{"]
)
def test_a_file_without_a_certification(content: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "c.yaml"
    path.write_text(content)
    assert run(["certify", "report", "--file", str(path)]) == 2
    assert str(path) in capsys.readouterr().err


def test_a_report_that_cannot_be_written(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source = saved(tmp_path, *certification(Fleet()))
    assert run(["certify", "report", "--file", source, "--to", str(tmp_path / "no" / "r.html")]) == 2
    assert "Cannot write" in capsys.readouterr().err


def test_tests_are_listed_with_their_digests(capsys: pytest.CaptureFixture[str]) -> None:
    from muster.certify import catalogue

    assert run(["certify", "tests", "-o", "json"]) == 0
    content = json.loads(capsys.readouterr().out)
    assert {t["name"]: t["digest"] for t in content["tests"]} == {n: t.digest for n, t in catalogue.tests().items()}
    assert run(["certify", "tests"]) == 0
    assert "profile full: host" in capsys.readouterr().out


def test_a_local_outcome_makes_a_report() -> None:
    from muster.certify.local_fleet import LocalOutcome
    from muster.cli.certify_local import report_of
    from tests.certify.report_samples import course

    plan, records, verdicts = course(SICK)
    report = report_of(LocalOutcome(plan=plan, records=records, details=(), verdicts=verdicts, wall_s=12.0))
    assert not report.passed
    assert "1 failed (gpu-0003)" in report.verdict
    assert report.problems == ()
    assert msgspec.to_builtins(report)["cost"]["spentRuns"] == len(records)
