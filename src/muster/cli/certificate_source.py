"""What `muster certificate` reads of a cluster, live or from files of its objects."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import msgspec

from muster.cli.certify_cluster import objects_of, read_certification, read_documents, read_parts
from muster.errors import BadInputError, NotSatisfiedError
from muster.kube.api import NODE_HEALTHS, KubeApi, NotFoundError
from muster.plain_text import plain
from muster.resources.base import Model, from_object
from muster.resources.certification import Certification, CertificationPart
from muster.resources.node_health import NodeHealth

M = TypeVar("M", bound=Model)


@dataclass(frozen=True)
class Source:
    """What a certificate is exported from."""

    health: NodeHealth
    certification: Certification
    parts: Sequence[CertificationPart]


async def from_cluster(api: KubeApi, node: str) -> Source:
    """Raises BadInputError for an unknown node, NotSatisfiedError when it is not certified or the proof is gone."""
    health = await health_of(api, node)
    if health is None:
        raise BadInputError(f"The cluster has no NodeHealth {plain(node, 80)}; 'muster nodes' lists them.")
    name = _certification_of(health)
    try:
        certification = await read_certification(api, name)
    except BadInputError as error:
        if not isinstance(error.__cause__, NotFoundError):
            raise
        raise NotSatisfiedError(
            f"The certification {plain(name, 80)}, on which the certificate of {plain(node, 80)} rests, was deleted; "
            "give a saved copy with --file, or certify the node again."
        ) from error
    return Source(health, certification, tuple((await read_parts(api, certification)).values()))


async def health_of(api: KubeApi, node: str) -> NodeHealth | None:
    """The NodeHealth of `node`; None when there is none. Raises BadInputError when it cannot be read."""
    try:
        return from_object(NodeHealth, await api.get(NODE_HEALTHS, node))
    except NotFoundError:
        return None
    except msgspec.ValidationError as error:
        raise BadInputError(f"The NodeHealth {plain(node, 80)} cannot be read: {error}.") from error


def from_files(paths: Sequence[str], node: str) -> Source:
    """The same from files of YAML or JSON (also Lists of kubectl). Raises BadInputError, NotSatisfiedError."""
    healths: list[NodeHealth] = []
    certifications: list[Certification] = []
    parts: list[CertificationPart] = []
    for path in paths:
        documents = read_documents(Path(path))
        healths += _all(path, documents, NodeHealth)
        certifications += _all(path, documents, Certification)
        parts += _all(path, documents, CertificationPart)
    files = ", ".join(paths)
    health = next((h for h in healths if h.metadata.name == node), None)
    if health is None:
        raise BadInputError(
            f"{files}: no NodeHealth of {plain(node, 80)}; save it with 'kubectl get nodehealth {plain(node, 80)} "
            "-o yaml'."
        )
    wanted = _certification_of(health)
    certification = next((c for c in certifications if c.metadata.name == wanted), None)
    if certification is None:
        raise BadInputError(
            f"{files}: no Certification {plain(wanted, 80)}, on which the certificate rests; save it with "
            "'kubectl get certifications,certificationparts -o yaml'."
        )
    return Source(health, certification, parts)


def health_in(path: str, node: str) -> NodeHealth:
    """The NodeHealth of `node` in a file, or the only one there is. Raises BadInputError."""
    found = _all(path, read_documents(Path(path)), NodeHealth)
    named = [h for h in found if h.metadata.name == node] or found
    if len(named) != 1:
        raise BadInputError(
            f"{path} holds {len(found)} NodeHealths, and not one of {plain(node, 80)}; save that with kubectl."
        )
    return named[0]


def _all(path: str, documents: Sequence[object], model: type[M]) -> list[M]:
    """Every object of the kind that `model` is named after. Raises BadInputError."""
    try:
        return [from_object(model, o) for o in objects_of(documents) if o.get("kind") == model.__name__]
    except msgspec.ValidationError as error:
        raise BadInputError(f"{path}: a {model.__name__} cannot be read: {error}.") from error


def _certification_of(health: NodeHealth) -> str:
    life = health.status.lifecycle
    if life is None or life.certificate is None:
        name = plain(health.metadata.name, 80)
        raise NotSatisfiedError(f"The node {name} has no certificate; 'muster node {name}' says what it needs.")
    return life.certificate.certification
