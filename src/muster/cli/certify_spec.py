"""What a user asks of a certification on the command line: the options, and the spec that they make."""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click
import msgspec

from muster.errors import BadInputError

if TYPE_CHECKING:
    from muster.resources.certification import CertificationSpec, CustomTest, Gang, Toleration

F = TypeVar("F", bound=Callable[..., Any])
_LABEL_KEY = re.compile(
    r"(?:[a-z0-9](?:[a-z0-9.-]{0,251}[a-z0-9])?/)?[A-Za-z0-9](?:[A-Za-z0-9_.-]{0,61}[A-Za-z0-9])?"
)
_LABEL_VALUE = re.compile(r"(?:[A-Za-z0-9](?:[A-Za-z0-9_.-]{0,61}[A-Za-z0-9])?)?")
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]{0,254}")
_NODE = re.compile(r"[a-z0-9](?:[a-z0-9.-]{0,251}[a-z0-9])?")


class Asked(msgspec.Struct, frozen=True, kw_only=True):
    """The options as they were given."""

    target: str = ""
    nodes: Sequence[str] = ()
    partners: Sequence[str] = ()
    tests: str = ""
    profile: str = ""
    custom: Sequence[str] = ()
    expect_transport: str = ""
    floors: Sequence[str] = ()
    max_rounds: int | None = None
    max_runs: int | None = None
    max_minutes: float | None = None
    max_blocked_minutes: float | None = None
    max_node_hours: float | None = None
    max_false_blame: float | None = None
    image: str = ""
    pull_secrets: Sequence[str] = ()
    nic_resource: str = ""
    gpu_claim: str = ""
    nic_claim: str = ""
    host_network: bool = False
    env: Sequence[str] = ()
    tolerations: Sequence[str] = ()
    storage_claim: str = ""
    gang: str = ""


def spec_options(command: F) -> F:
    """Adds every option of a certification; the command receives them as keywords that `Asked` takes."""
    for option in reversed(_OPTIONS):
        command = option(command)
    return command


_OPTIONS = (
    click.option(
        "--target", default="", metavar="SELECTOR", help="Nodes by label: KEY=VALUE or KEY!=VALUE, by comma."
    ),
    click.option("--nodes", multiple=True, metavar="A,B", help="Nodes by name; may be given several times."),
    click.option("--partners", multiple=True, metavar="A,B", help="Proven nodes that may be borrowed as partners."),
    click.option("--tests", default="", metavar="NAMES", help="A profile (bringup), or tests by comma (host,pair)."),
    click.option("--profile", default="", metavar="NAME", help="Profile that says how hard to look; with --tests."),
    click.option("--custom-test", "custom", multiple=True, metavar="FILE", help="YAML with a test of your own."),
    click.option("--expect-transport", default="", metavar="NAME", help="EFA, IB, RoCE or MNNVL; another one fails."),
    click.option("--floor", "floors", multiple=True, metavar="TEST=VALUE", help="Least value in the test's unit."),
    click.option("--max-rounds", type=click.IntRange(1), help="Budget: rounds."),
    click.option("--max-runs", type=click.IntRange(1), help="Budget: runs."),
    click.option("--max-minutes", type=click.FloatRange(0, min_open=True), help="Budget: minutes of wall time."),
    click.option(
        "--max-blocked-minutes",
        type=click.FloatRange(0, min_open=True),
        help="Budget: minutes in a queue, unscheduled or starting; 1440 if left out.",
    ),
    click.option("--max-node-hours", type=click.FloatRange(0, min_open=True), help="Budget: node-hours."),
    click.option(
        "--max-false-blame",
        type=click.FloatRange(0, 0.5, min_open=True),
        help="Probability that anybody innocent is named; 0.001 if left out.",
    ),
    click.option("--image", default="", help="Image with PyTorch for the test pods."),
    click.option("--pull-secret", "pull_secrets", multiple=True, metavar="NAME", help="Secret for pulling images."),
    click.option(
        "--nic-resource", default="", metavar="NAME[=N]", help="NICs a pod asks for: vpc.amazonaws.com/efa=32."
    ),
    click.option(
        "--gpu-claim-template", "gpu_claim", default="", metavar="NAME", help="GPUs by DRA, not device plugin."
    ),
    click.option("--nic-claim-template", "nic_claim", default="", metavar="NAME", help="NICs by DRA."),
    click.option("--host-network", is_flag=True, help="Test pods use the network of the host."),
    click.option("--env", multiple=True, metavar="NAME=VALUE", help="Environment of the test programs."),
    click.option(
        "--toleration", "tolerations", multiple=True, metavar="KEY[=VALUE][:EFFECT]", help="Tolerate a taint."
    ),
    click.option("--storage-claim", default="", metavar="NAME", help="PersistentVolumeClaim for the storage test."),
    click.option("--gang", default="", metavar="SCHEDULER:QUEUE", help="kueue, kai or volcano, and its queue."),
)


def build_spec(asked: Asked, selected: Sequence[str] = ()) -> CertificationSpec:
    """The spec that the options ask for, checked. `selected`: nodes that `negative` terms of --target left over.

    Raises BadInputError in one sentence naming the option.
    """
    from muster.certify import catalogue
    from muster.resources.certification import CertificationSpec, Pods

    equal, unequal = parse_target(asked.target)
    nodes = names(asked.nodes, "--nodes")
    if not (nodes or equal or unequal):
        raise BadInputError("Nothing says which nodes to certify; add --target LABEL=VALUE or --nodes NAME,NAME.")
    partners = names(asked.partners, "--partners")
    both = [n for n in partners if n in nodes]
    if both:
        raise BadInputError(f"{both[0]} is among --nodes and --partners; a partner is proven already, name it once.")
    profile, tests = _tests(asked)
    resource, nics = _nic_resource(asked.nic_resource)
    spec = CertificationSpec(
        nodes=tuple(dict.fromkeys((*nodes, *selected))),
        node_selector={} if unequal else dict(equal),
        partners=partners,
        profile=profile,
        tests=tests,
        custom_tests=tuple(test for path in asked.custom for test in _custom(Path(path))),
        expected_transport=_transport(asked.expect_transport),
        floors={name: _positive(value, "--floor") for name, value in _pairs(asked.floors, "--floor").items()},
        budget=_budget(asked),
        pods=Pods(
            image=asked.image,
            image_pull_secrets=tuple(asked.pull_secrets),
            nic_resource=resource,
            nics=nics,
            gpu_claim_template=asked.gpu_claim,
            nic_claim_template=asked.nic_claim,
            host_network=asked.host_network,
            env=_environment(asked.env),
            tolerations=tuple(_toleration(text) for text in asked.tolerations),
            storage_claim=asked.storage_claim,
            gang=_gang(asked.gang),
        ),
    )
    catalogue.tests_for(spec)
    return spec


def parse_target(text: str) -> tuple[dict[str, str], list[tuple[str, str]]]:
    """`a=b,c!=d` as (labels that must be so, labels that must not). Raises BadInputError."""
    equal: dict[str, str] = {}
    unequal: list[tuple[str, str]] = []
    for term in filter(None, (part.strip() for part in text.split(","))):
        key, operator, value = _term(term)
        if not _LABEL_KEY.fullmatch(key) or not _LABEL_VALUE.fullmatch(value) or not operator:
            raise BadInputError(
                f"--target: {term[:80]!r} is no label; write KEY=VALUE or KEY!=VALUE, several of them by comma."
            )
        if operator == "!=":
            unequal.append((key, value))
        elif equal.get(key, value) != value:
            raise BadInputError(f"--target asks for two values of {key}, which no node has; give one of them.")
        else:
            equal[key] = value
    if text.strip() and not equal and not unequal:
        raise BadInputError(f"--target {text[:80]!r} names no label; write KEY=VALUE.")
    return equal, unequal


def _term(term: str) -> tuple[str, str, str]:
    for operator in ("!=", "==", "="):
        key, found, value = term.partition(operator)
        if found:
            return key.strip(), operator, value.strip()
    return term, "", ""


def matches(labels: Mapping[str, str], equal: Mapping[str, str], unequal: Sequence[tuple[str, str]]) -> bool:
    """Whether a node with `labels` is meant; a label that is missing is unequal to every value, as in Kubernetes."""
    return all(labels.get(k) == v for k, v in equal.items()) and all(labels.get(k) != v for k, v in unequal)


def names(texts: Sequence[str], option: str) -> tuple[str, ...]:
    """Node names out of options that take several by comma. Raises BadInputError."""
    found = [name.strip() for text in texts for name in text.split(",") if name.strip()]
    for name in found:
        if not _NODE.fullmatch(name):
            raise BadInputError(
                f"{option}: {name[:80]!r} cannot be the name of a node; names are a-z, 0-9, '-' and '.'."
            )
    twice = [name for name in found if found.count(name) > 1] if len(found) < 5000 else []
    if twice:
        raise BadInputError(f"{option} names {twice[0]} twice; name it once.")
    return tuple(found)


def _tests(asked: Asked) -> tuple[str, tuple[str, ...]]:
    """(profile, tests): --tests may be the name of a profile."""
    from muster.certify import catalogue

    wanted = tuple(part.strip() for part in asked.tests.split(",") if part.strip())
    if len(wanted) == 1 and wanted[0] in catalogue.profiles():
        if asked.profile and asked.profile != wanted[0]:
            raise BadInputError(
                f"--tests {wanted[0]} is a profile and --profile {asked.profile[:60]} is another; give one."
            )
        return wanted[0], ()
    profile = asked.profile or "bringup"
    catalogue.profile(profile)
    close = difflib.get_close_matches(wanted[0], [*catalogue.profiles(), *catalogue.tests()], n=1) if wanted else []
    if len(wanted) == 1 and not asked.custom and wanted[0] not in catalogue.tests():
        hint = f"did you mean {close[0]}?" if close else "'muster certify tests' lists both."
        raise BadInputError(f"--tests: {wanted[0][:60]!r} is no profile and no test; {hint}")
    return profile, wanted


def _budget(asked: Asked) -> Any:
    from muster.resources.certification import CertificationBudget

    given = {
        "max_rounds": asked.max_rounds,
        "max_runs": asked.max_runs,
        "max_wall_minutes": asked.max_minutes,
        "max_blocked_minutes": asked.max_blocked_minutes,
        "max_node_minutes": None if asked.max_node_hours is None else asked.max_node_hours * 60,
        "max_false_blame": asked.max_false_blame,
    }
    return CertificationBudget(**{name: value for name, value in given.items() if value is not None})  # type: ignore[arg-type] # each field takes the type of its option


def _pairs(texts: Sequence[str], option: str) -> dict[str, str]:
    found: dict[str, str] = {}
    for text in texts:
        key, equals, value = text.partition("=")
        if not equals or not key.strip() or key.strip() in found:
            raise BadInputError(f"{option} {text[:80]!r} is malformed or given twice; write it once as NAME=VALUE.")
        found[key.strip()] = value
    return found


def _environment(texts: Sequence[str]) -> dict[str, str]:
    found = _pairs(texts, "--env")
    for name in found:
        if not _VARIABLE.fullmatch(name):
            raise BadInputError(f"--env: {name[:60]!r} cannot be the name of a variable; take A-Z, 0-9 and '_'.")
    return found


def _transport(text: str) -> str:
    """Raises BadInputError for a word with which every run would fail."""
    from muster.read.collectives.transports import KNOWN

    name = text.casefold()
    if name and not name.startswith("net/") and name.removeprefix("gpudirect-") not in KNOWN:
        raise BadInputError(
            f"--expect-transport {text[:60]!r} is not known; use one of {', '.join(KNOWN)}, or NET/NAME for a plugin "
            "that is not among them."
        )
    return text


def _positive(text: str, option: str) -> float:
    try:
        return float(text)
    except ValueError as error:
        raise BadInputError(f"{option}: {text[:40]!r} is no number; give one such as 300.") from error


def _nic_resource(text: str) -> tuple[str, int]:
    name, equals, count = text.partition("=")
    if not name:
        if equals:
            raise BadInputError(f"--nic-resource {text[:80]!r} has no name; write NAME=N.")
        return "", 0
    if equals and not (count.isascii() and count.isdigit() and 0 < int(count[:6]) <= 1024):
        raise BadInputError(f"--nic-resource {text[:80]!r}: the number must be 1 to 1024.")
    return name, int(count) if equals else 1


def _toleration(text: str) -> Toleration:
    from muster.resources.certification import Toleration

    rest, _, effect = text.partition(":")
    key, equals, value = rest.partition("=")
    if not key or effect not in ("", "NoSchedule", "PreferNoSchedule", "NoExecute"):
        raise BadInputError(f"--toleration {text[:80]!r} is malformed; write KEY, KEY=VALUE or KEY=VALUE:NoSchedule.")
    return Toleration(key=key, operator="Equal" if equals else "Exists", value=value, effect=effect)


def _gang(text: str) -> Gang | None:
    from muster.resources.certification import Gang, GangScheduler

    if not text:
        return None
    scheduler, _, queue = text.partition(":")
    if scheduler not in {s.value for s in GangScheduler} or not queue:
        raise BadInputError(f"--gang {text[:80]!r} is malformed; write kueue:QUEUE, kai:QUEUE or volcano:QUEUE.")
    return Gang(scheduler=GangScheduler(scheduler), queue=queue)


def _custom(path: Path) -> tuple[CustomTest, ...]:
    """The tests of a file: one, or several under `customTests`."""
    from muster import yamlio
    from muster.resources.certification import CustomTest

    content = yamlio.load(path)
    entries = content.get("customTests", [content]) if isinstance(content, dict) else None
    if not isinstance(entries, list) or not entries:
        raise BadInputError(f"{path} holds no test; give one as a mapping with name and command.")
    if any(isinstance(entry, dict) and isinstance(entry.get("command"), str) for entry in entries):
        raise BadInputError(f"{path}: command is one text; write it as a list, such as [python3, /tests/probe.py].")
    known = {field.encode_name for field in msgspec.structs.fields(CustomTest)}
    for entry in entries:
        strange = sorted(str(key) for key in entry if key not in known) if isinstance(entry, dict) else []
        if strange:
            raise BadInputError(f"{path}: a test has no field '{strange[0][:60]}'; use {', '.join(sorted(known))}.")
    try:
        return msgspec.convert(tuple(entries), tuple[CustomTest, ...])
    except msgspec.ValidationError as error:
        raise BadInputError(f"{path} cannot be used as a test: {error}.") from error
