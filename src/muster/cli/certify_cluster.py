"""Reading certifications, their parts and nodes for `muster certify`, from a cluster or from files."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from muster.errors import BadInputError
from muster.plain_text import plain
from muster.resources.certification import Certification, CertificationPart

if TYPE_CHECKING:
    from muster.certify.claimed_gpus import ClaimedGpus
    from muster.certify.nodes import HealthFacts, NodeFacts
    from muster.kube.api import KubeApi

FILE_LIMIT_BYTES = 256 * 1024 * 1024
"""A certification of 1,024 nodes with everything it measured takes some 10 MiB."""
_certification = msgspec.json.Decoder(Certification, strict=False)


async def read_certification(api: KubeApi, name: str) -> Certification:
    """Raises BadInputError when there is none of that name, or it cannot be read."""
    from muster.cli.cluster import read_all
    from muster.kube.api import CERTIFICATIONS, NotFoundError
    from muster.resources.base import from_object

    try:
        return from_object(Certification, await api.get(CERTIFICATIONS, name))
    except NotFoundError as error:
        known = sorted(c.metadata.name for c in await read_all(api, CERTIFICATIONS, _certification.decode))
        close = difflib.get_close_matches(name, known, n=1)
        hint = f"did you mean {close[0]}?" if close else "'muster certify status' lists them."
        raise BadInputError(f"There is no certification {plain(name, 80)}; {hint}") from error
    except msgspec.ValidationError as error:
        raise BadInputError(f"The certification {plain(name, 80)} cannot be read: {error}.") from error


async def read_parts(
    api: KubeApi, certification: Certification, known: Mapping[int, CertificationPart] | None = None
) -> dict[int, CertificationPart]:
    """The parts that the status counts and that exist, by number; `known` ones are not read again.

    One that is missing or unreadable is left out: the report says so.
    """
    from muster.kube.api import CERTIFICATION_PARTS, NotFoundError
    from muster.resources.base import from_object

    found = dict(known or {})
    for number in range(certification.status.parts):
        if number in found:
            continue
        try:
            name = f"{certification.metadata.name}-{number}"
            found[number] = from_object(CertificationPart, await api.get(CERTIFICATION_PARTS, name))
        except (NotFoundError, msgspec.ValidationError):
            continue
    return found


def read_file(path: Path, name: str = "") -> tuple[Certification, tuple[CertificationPart, ...]]:
    """A certification and its parts from YAML documents or JSON (also a List of kubectl). Raises BadInputError."""
    certifications: list[Certification] = []
    parts: list[CertificationPart] = []
    for obj in objects_of(read_documents(path)):
        model = {"Certification": Certification, "CertificationPart": CertificationPart}.get(str(obj.get("kind")))
        if model is None:
            continue
        try:
            read = msgspec.convert(obj, model, strict=False)
        except msgspec.ValidationError as error:
            raise BadInputError(f"{path}: a {obj['kind']} cannot be read: {error}.") from error
        if isinstance(read, Certification):
            certifications.append(read)
        elif isinstance(read, CertificationPart):
            parts.append(read)
    if name:
        certifications = [c for c in certifications if c.metadata.name == name]
    if not certifications:
        which = f"the certification {plain(name, 80)}" if name else "a Certification"
        raise BadInputError(
            f"{path} does not hold {which}; save it with 'kubectl get certifications,certificationparts -o json'."
        )
    if len(certifications) > 1:
        several = ", ".join(plain(c.metadata.name, 60) for c in certifications[:5])
        raise BadInputError(f"{path} holds several certifications ({several}); say which by its name.")
    return certifications[0], tuple(parts)


def read_documents(path: Path) -> list[Any]:
    """What a file of YAML or JSON holds. JSON is read by its own parser: it may be large. Raises BadInputError."""
    from muster import yamlio

    try:
        with path.open("rb") as file:
            data = file.read(FILE_LIMIT_BYTES + 1)
    except OSError as error:
        raise BadInputError(f"Cannot read {path}: {error.strerror or error}.") from error
    if len(data) > FILE_LIMIT_BYTES:
        raise BadInputError(f"{path} is larger than {FILE_LIMIT_BYTES // 1024 // 1024} MiB; give a smaller file.")
    if data.lstrip()[:1] in (b"{", b"["):
        try:
            return [msgspec.json.decode(data)]
        except (msgspec.MsgspecError, RecursionError) as error:
            raise BadInputError(f"{path} is not valid JSON: {error}.") from error
    return yamlio.loads_all(data, str(path), at_most=10_000)


def objects_of(documents: Iterable[Any]) -> Iterable[dict[str, Any]]:
    """The Kubernetes objects in documents, those inside of Lists too."""
    for document in documents:
        if isinstance(document, list):
            yield from (o for o in document if isinstance(o, dict))
        elif isinstance(document, dict):
            items = document.get("items")
            if str(document.get("kind", "")).endswith("List") and isinstance(items, list):
                yield from (o for o in items if isinstance(o, dict))
            else:
                yield document


@dataclass(frozen=True)
class Fleet:
    """Nodes and their health by name, and who has the GPUs of a node now (namespace/name of a pod)."""

    nodes: Mapping[str, NodeFacts]
    healths: Mapping[str, HealthFacts]
    busy: Mapping[str, str]
    claimed: Mapping[str, ClaimedGpus] = field(default_factory=dict)
    """GPUs that a DRA driver offers, for plans that claim them."""


class _Metadata(msgspec.Struct, frozen=True):
    name: str


class _Named(msgspec.Struct, frozen=True):
    metadata: _Metadata


_named = msgspec.json.Decoder(_Named, strict=False)


async def read_fleet(api: KubeApi) -> Fleet:
    """The nodes of the cluster, and who uses them."""
    from muster.certify.picture import read_claimed_gpus
    from muster.cli.cluster import read_all
    from muster.kube.api import NODE_HEALTHS, NODES, PODS, ForbiddenError, NotFoundError

    raw_nodes: list[bytes] = await read_all(api, NODES, bytes)
    raw_pods: list[bytes] = await read_all(api, PODS, bytes)
    try:
        raw_healths: list[bytes] = await read_all(api, NODE_HEALTHS, bytes)
    except BadInputError as error:
        if not isinstance(error.__cause__, NotFoundError):
            raise
        raw_healths = []  # a plan may be asked for before Muster is installed
    try:
        claimed = await read_claimed_gpus(api)
    except ForbiddenError:
        claimed = {}  # few people may list them, and few clusters have any
    return replace(_fleet(raw_nodes, raw_healths, raw_pods, "the cluster"), claimed=claimed)


def fleet_from_file(path: Path) -> Fleet:
    """The nodes of a file that `kubectl get nodes -o json` (or nodes,pods) wrote. Raises BadInputError."""
    from muster.certify.claimed_gpus import claimed_gpus

    by_kind: dict[str, list[bytes]] = {}
    for obj in objects_of(read_documents(path)):
        by_kind.setdefault(str(obj.get("kind")), []).append(msgspec.json.encode(obj))
    if "Node" not in by_kind:
        raise BadInputError(f"{path} holds no Node; save them with 'kubectl get nodes -o json'.")
    found = _fleet(by_kind["Node"], by_kind.get("NodeHealth", ()), by_kind.get("Pod", ()), str(path))
    return replace(found, claimed=claimed_gpus(by_kind.get("ResourceSlice", ())))


def _fleet(nodes: Iterable[bytes], healths: Iterable[bytes], pods: Iterable[bytes], source: str) -> Fleet:
    from muster.certify.nodes import health_facts, node_facts
    from muster.certify.picture import gpu_user

    try:
        users = sorted(user for user in map(gpu_user, pods) if user is not None)
        return Fleet(
            nodes={facts.name: facts for facts in map(node_facts, nodes)},
            healths={_named.decode(raw).metadata.name: health_facts(raw) for raw in healths},
            busy={node: pod for node, _, pod in reversed(users)},
        )
    except msgspec.MsgspecError as error:
        raise BadInputError(f"Something of {source} cannot be read: {error}.") from error
