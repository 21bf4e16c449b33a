"""The command line of the package, and its archive, in a Python without PyTorch."""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from muster.certify import catalogue
from muster.workloads import __main__, alone
from muster.workloads.archive import build_pyz
from muster.workloads.gemm import throttling
from muster.workloads.programs import ONE_RANK_PER_NODE, PROGRAMS
from muster.workloads.report import NodeReport
from muster.workloads.train import _off_the_curve
from tests.workloads.cases import alone as run_alone


def test_every_program_is_listed_and_tells_its_parameters(capsys: pytest.CaptureFixture[str]) -> None:
    assert __main__.main(["--help"]) == 0
    listed = capsys.readouterr().out
    for name in alone.NAMES:
        assert name in listed
        with pytest.raises(SystemExit) as ended:
            __main__.main([name, "--help"])
        assert ended.value.code == 0
        assert "Program `" in capsys.readouterr().out


def test_programs_that_are_not_there(capsys: pytest.CaptureFixture[str]) -> None:
    assert __main__.main(["all-reduc"]) == 2
    assert "no program 'all-reduc'" in capsys.readouterr().err
    assert run_alone("dance", {}).reason == "harness"


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["host", "--ranks", "2"], "one rank"),
        (["host", "--ranks", "0"], "--ranks"),
        (["host", "--timeout", "0"], "--timeout"),
        (["storage", "--ranks", "-3"], "--ranks"),
    ],
)
def test_bad_input_is_refused_in_a_sentence(
    arguments: list[str], told: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("RANK", raising=False)
    assert __main__.main(arguments) == 2
    said = capsys.readouterr()
    assert told in said.err
    assert "Traceback" not in said.err


def test_without_pytorch_the_remedy_is_named(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    assert __main__.main(["all-reduce", "--ranks", "2", "--device", "cpu"]) == 2
    assert "muster-gpu[workloads]" in capsys.readouterr().err


def test_a_report_for_people_names_what_is_wrong() -> None:
    report = NodeReport(
        node="a", ok=False, value=1.5, unit="GB/s", reason="numeric", message="3 wrong values",
        ranks=({"rank": 0, "value": 1.5}, {"rank": 1, "value": None, "computeS": 0.5}), facts={"x_us": 2.0},
    )  # fmt: skip
    text = alone.text_of_report("all-reduce", report)
    assert text.splitlines()[0] == "all-reduce: did not pass (numeric), 1.5 GB/s: 3 wrong values"
    assert "rank 1  0.5 s own work" in text
    assert "x_us: 2" in text


def test_one_rank_speaks_of_the_whole_node() -> None:
    assert set(ONE_RANK_PER_NODE) <= set(PROGRAMS)


def test_the_archive_is_the_same_whenever_it_is_made(tmp_path: Path) -> None:
    first, second = build_pyz(tmp_path / "a.pyz"), build_pyz(tmp_path / "b.pyz")
    assert first.read_bytes() == second.read_bytes()
    names = zipfile.ZipFile(first).namelist()
    assert names == sorted(names)
    assert "muster/workloads/rank.py" in names
    assert not any(
        name.startswith("muster/") and not name.startswith(("muster/workloads/", "muster/__init__")) for name in names
    )


def test_the_archive_runs_on_its_own(tmp_path: Path) -> None:
    archive = build_pyz(tmp_path / "muster-workloads.pyz")
    argv = [sys.executable, "-I", str(archive), "host", "--json"]
    done = subprocess.run(argv, capture_output=True, text=True, cwd=tmp_path, timeout=60)
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    assert report["ok"] is True
    assert report["facts"]["cpus"] >= 1


def test_the_package_needs_nothing_else_of_the_project(tmp_path: Path) -> None:
    archive = build_pyz(tmp_path / "w.pyz")
    names = [
        name[:-3].replace("/", ".") for name in zipfile.ZipFile(archive).namelist() if name.startswith("muster/")
    ]
    modules = [name.removesuffix(".__init__") for name in names if not name.endswith("__main__")]
    code = (
        f"import sys, importlib; sys.path.insert(0, {str(archive)!r})\n"
        f"for name in {modules!r}: importlib.import_module(name)\n"
        "print('torch' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-I", "-S", "-c", code], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == "False"


def test_the_programs_know_the_parameters_of_the_catalogue() -> None:
    seen = 0
    for test in catalogue.tests().values():
        if not test.program:
            continue
        assert test.program in PROGRAMS, test.name
        known = alone.params_of(test.program)
        assert set(test.params) <= {*known, "collective", "command"}, test.name
        seen += 1
    assert seen > 5


def test_losses_off_the_expected_curve() -> None:
    expected = [1.0, 0.5, 0.25]
    assert _off_the_curve([1.0, 0.5, 0.25], expected, 1e-3) == ("", None)
    assert _off_the_curve([1.0005, 0.5, 0.25], expected, 1e-3) == ("", None)
    assert _off_the_curve([1.0, 0.51, 0.25], expected, 1e-3)[1] == 1
    assert _off_the_curve([1.0, float("nan")], expected, 1e-3)[1] == 1
    assert _off_the_curve([1.0, float("inf"), 0.25], expected, 1e-3)[1] == 1
    assert _off_the_curve([1.0], expected, 1e-3) == ("1 losses of 3 steps", 1)


@pytest.mark.requirement("companion/BMAAS09")
def test_throttling_is_a_decay_over_time() -> None:
    assert throttling([10.0] * 9) == 0
    assert throttling([10.0] * 5 + [8.0] * 4) == pytest.approx(0.2)
    assert throttling([8.0, 8.0, 10.0]) == 0
    assert throttling([10.0, 10.0, 10.0, 2.0, 10.0, 10.0, 10.0, 10.0, 10.0]) == 0
    assert throttling([5.0]) == 0
