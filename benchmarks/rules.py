"""CEL bindings by conformance and speed, and what a decision costs with the shipped policies.

    python benchmarks/rules.py            # the binding in use, and the others that are installed
    python benchmarks/rules.py --quick    # fewer repetitions

Conformance: expressions whose value the CEL specification fixes; an error that it asks for counts as right. Speed:
evaluations per second of one compiled rule over one fault, as a ratio to the binding in use. The others are optional
(`pip install cel-python common-expression-language`, best in an environment of their own): "not installed" otherwise.

Decisions: 8 open faults against the full-automation policy with patterns; `cold` means answers that were never given
before, `warm` the same findings on the next of many nodes. All times are CPU times: other work on the machine does
not count.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

NOW = datetime(2026, 1, 5, 8, 0, tzinfo=UTC)
FAULT = {
    "check": "xid",
    "code": "79",
    "severity": "fatal",
    "scope": "gpu",
    "hint": "reboot",
    "count": 3,
    "message": "GPU has fallen off the bus",
}
NODE = {"name": "n1", "pool": "a", "labels": {"pool": "a", "zone": "z1"}}
RULE = "fault.severity == 'fatal' && fault.scope in ['gpu', 'node', 'link', 'fabric'] && node.labels['pool'] == 'a'"
ERROR = "an error"
Compiled = Callable[[], Any]
EXPRESSIONS: tuple[tuple[str, Any], ...] = (
    ("1 + 2 * 3 == 7", True),
    ("7 / 2 == 3 && -7 / 2 == -3", True),
    ("7 % 3 == 1 && -7 % 3 == -1", True),
    ("9223372036854775807 + 1 > 0", ERROR),
    ("1 / 0 == 0", ERROR),
    ("1u + 2u == 3u", True),
    ("1.5 + 2.5 == 4.0", True),
    ("dyn(1) == 1.0", True),
    ("dyn(1) < 1.5", True),
    ("dyn(1) == '1'", False),
    ("'a' + 'b' == 'ab'", True),
    ("'abc' < 'abd'", True),
    ("size('héé') == 3", True),
    ("size(b'abc') == 3", True),
    ("'fallen' in ['fallen', 'off']", True),
    ("'k' in {'k': 1}", True),
    ("{'a': 1}['b'] == 1", ERROR),
    ("[1, 2, 3][5] == 1", ERROR),
    ("[1, 2] + [3] == [1, 2, 3]", True),
    ("false && (1 / 0 > 0)", False),
    ("(1 / 0 > 0) && false", False),
    ("true || (1 / 0 > 0)", True),
    ("(1 / 0 > 0) || true", True),
    ("true ? true : (1 / 0 > 0)", True),
    ("has(fault.code)", True),
    ("has(node.labels.absent)", False),
    ("node.labels.zone == 'z1'", True),
    ("node.labels['absent'] == 'x'", ERROR),
    ("[1, 2, 3].exists(x, x > 2)", True),
    ("[1, 2, 3].all(x, x > 0)", True),
    ("[1, 2, 3].exists_one(x, x > 2)", True),
    ("[1, 2, 3].filter(x, x > 1) == [2, 3]", True),
    ("[1, 2, 3].map(x, x * 2) == [2, 4, 6]", True),
    ("{'a': 1, 'b': 2}.exists(k, k == 'b')", True),
    ("[0, 2].exists(x, 4 / x == 2)", True),
    ("[0, 2].all(x, 4 / x == 3)", False),
    ("fault.message.contains('off the bus')", True),
    ("fault.message.startsWith('GPU') && fault.message.endsWith('bus')", True),
    ("fault.message.matches('^GPU has .* bus$')", True),
    ("'aab'.matches('a{2}b') && !'xyz'.matches('^y')", True),
    ("int('42') == 42 && string(42) == '42' && double('1.5') == 1.5", True),
    ("int('x') == 1", ERROR),
    ("timestamp('2026-01-05T08:00:00Z') < timestamp('2026-01-05T09:00:00Z')", True),
    ("timestamp('2026-01-05T08:00:00Z') + duration('1h') == timestamp('2026-01-05T09:00:00Z')", True),
    ("duration('90m') == duration('1.5h')", True),
    ("timestamp('2026-01-05T08:00:00Z').getDayOfWeek() == 1", True),
    ("type(1) == int && type('a') == string", True),
    ("null == null", True),
    ("!(true && false)", True),
    ("r'a\\d' == 'a\\\\d'", True),
    ('"""a""" == "a"', True),
    ("0x1F == 31", True),
    ("fault.absent == 'x'", ERROR),
    ("unknown_name == 'x'", ERROR),
    ("'a' && true", ERROR),
    ("1 + 'a' == '1a'", ERROR),
)


class Google:
    """cel-expr-python: Google's C++ library."""

    name = "cel-expr-python (in use)"

    def __init__(self) -> None:
        from cel_expr_python import cel

        kind = cel.Type
        # Members of maps of anything, so that all bindings see the same data.
        self._environment = cel.NewEnv(
            variables={"fault": kind.Map(kind.STRING, kind.DYN), "node": kind.Map(kind.STRING, kind.DYN)}
        )

    def compile(self, expression: str) -> Compiled:
        compiled = self._environment.compile(expression)
        data = {"fault": FAULT, "node": NODE}

        def run() -> Any:
            value = compiled.eval(data=data).value()
            if not isinstance(value, bool):
                raise ValueError(str(value))
            return value

        return run


class Celpy:
    """cel-python: pure Python."""

    name = "cel-python (celpy)"

    def __init__(self) -> None:
        import celpy

        self._celpy = celpy
        self._environment = celpy.Environment()

    def compile(self, expression: str) -> Compiled:
        program = self._environment.program(self._environment.compile(expression))
        data: Any = {"fault": self._celpy.json_to_cel(FAULT), "node": self._celpy.json_to_cel(NODE)}

        def run() -> Any:
            value = program.evaluate(data)
            return bool(value) if type(value).__name__ in ("BoolType", "bool") else value

        return run


class Rust:
    """common-expression-language: the cel crate, in Rust."""

    name = "common-expression-language"

    def __init__(self) -> None:
        import cel

        self._cel = cel
        self._context = {"fault": FAULT, "node": NODE}

    def compile(self, expression: str) -> Compiled:
        compile_one = getattr(self._cel, "compile", None)
        if compile_one is None:
            return lambda: self._cel.evaluate(expression, self._context)
        program = compile_one(expression)
        return lambda: program.execute(self._context)


def wrong(binding: Any) -> list[str]:
    """The expressions that the binding gets wrong, each with what it said."""
    found = []
    for expression, expected in EXPRESSIONS:
        try:
            value: Any = binding.compile(expression)()
        except BaseException as error:  # a panic of the Rust binding is no Exception
            value = ERROR
            said = f"{type(error).__name__}: {str(error).splitlines()[0][:80] if str(error) else ''}"
        else:
            said = repr(value)[:80]
        if value is not expected and value != expected:
            found.append(f"{expression}: expected {expected}, got {said}")
    return found


def per_second(work: Callable[[], object], seconds: float) -> float:
    """The median of five rates."""
    rates = []
    for _ in range(5):
        count, started = 0, time.thread_time()
        while (spent := time.thread_time() - started) < seconds / 5:
            for _ in range(100):
                work()
            count += 100
        rates.append(count / spent)
    return statistics.median(rates)


def bindings(seconds: float) -> None:
    print(f"{'binding':<30} {'conformance':>12} {'evaluations/s':>14} {'ratio':>7}")
    base = 0.0
    for kind in (Google, Celpy, Rust):
        try:
            binding = kind()
        except ImportError:
            print(f"{kind.name:<30} {'not installed':>12}")
            continue
        failed = wrong(binding)
        rate = per_second(binding.compile(RULE), seconds)
        base = base or rate
        print(
            f"{kind.name:<30} {len(EXPRESSIONS) - len(failed):>9}/{len(EXPRESSIONS)} {rate:>14,.0f} "
            f"{rate / base:>7.3f}"
        )
        for line in failed:
            print(f"    {line}")


def decisions(seconds: float) -> None:
    try:
        from muster.operate import rules
        from muster.operate.patterns.derive import derive
        from muster.operate.patterns.history import History
        from muster.operate.policy import FULL_AUTOMATION, effective_policy, judge, with_provider
        from muster.resources.fault import Burst, Entity, EntityKind, Fault, Hint, Scope, Severity
    except ImportError:
        print("Muster is not installed here; decisions are not measured.")
        return
    policy = effective_policy([with_provider(FULL_AUTOMATION, "cloud")], {})
    labels = {"pool": "a", "topology.kubernetes.io/rack": "r1"}

    def faults(node: int) -> tuple[Fault, ...]:
        return tuple(
            Fault(
                source="kernel-log",
                check="xid",
                code=code,
                entity=Entity(kind=EntityKind.GPU, uuid=f"GPU-{node}-{index}", index=index),
                severity=Severity.FATAL if index % 2 else Severity.WARNING,
                scope=Scope.GPU,
                hint=Hint.RESET_GPU if index % 3 else Hint.INSPECT,
                message="seen",
                first_seen=NOW,
                last_seen=NOW,
                bursts=tuple(
                    Burst(at=NOW + timedelta(minutes=10 * n), until=NOW + timedelta(minutes=10 * n)) for n in range(3)
                ),
            )
            for index, code in enumerate(("13", "31", "48", "74", "79", "95", "109", "119"))
        )

    def decide(node: int) -> None:
        own = faults(node)
        history = History(open=own)
        derived, _ = derive(policy, history, f"n{node}", labels, (), NOW + timedelta(hours=1))
        for fault in (*own, *derived):
            judge(policy, fault, labels, NOW, node_name=f"n{node}", history=history)

    def timed(repeat: int, prepare: Callable[[], None]) -> list[float]:
        spent = []
        for node in range(repeat):
            prepare()
            started = time.thread_time()
            decide(node)
            spent.append((time.thread_time() - started) * 1e3)
        return sorted(spent)

    own = faults(0)
    count = sum(1 for _ in policy.rules)
    rate = per_second(lambda: [judge(policy, f, labels, NOW, node_name="n") for f in own], seconds) * len(own)
    rules._answers.clear()
    print(f"\n{len(own)} faults, {count} rules, {sum(p.enabled for p in policy.patterns)} patterns")
    print(f"faults judged by rules alone, warm: {rate:,.0f} a second")
    decide(0)
    for name, prepare, repeat in (("warm", lambda: None, 2000), ("cold", rules._answers.clear, 200)):
        spent = timed(int(repeat * min(1.0, seconds)), prepare)
        print(
            f"one node with patterns, {name}: p50 {spent[len(spent) // 2]:.3f} ms, "
            f"p99 {spent[int(len(spent) * 0.99)]:.3f} ms"
        )
    nothing = History()
    empty = per_second(lambda: derive(policy, nothing, "n", labels, (), NOW), seconds)
    print(f"a node without faults: {1e6 / empty:.1f} microseconds")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--quick", action="store_true", help="Fewer repetitions.")
    seconds = 0.5 if parser.parse_args().quick else 2.0
    bindings(seconds)
    decisions(seconds)


if __name__ == "__main__":
    main()
