"""Time and memory of one comparison of a large cluster with its recipe: `python benchmarks/baseline.py`.

The objects are made up and handed over as the bytes that an API server would send; the network is left out. The first
comparison decodes Helm's records, the later ones do not. Prints one line per figure.
"""

from __future__ import annotations

import argparse
import asyncio
import base64
import gzip
import json
import resource
import time
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any, TypeVar

from muster import yamlio
from muster.clock import SystemClock
from muster.configure.catalogue import load
from muster.configure.criteria import parse_criteria
from muster.configure.live.assess import assess
from muster.configure.live.drift import drift
from muster.configure.live.read import Memory, read
from muster.configure.plan import plan
from muster.configure.resolve import resolve
from muster.kube.api import ResourceType
from muster.resources.base import ObjectMeta, to_object
from muster.resources.fingerprint import Reading, ReadingClass, fingerprint
from muster.resources.node_health import Certificate, Lifecycle, NodeHealth, NodeHealthStatus, Observed, State
from muster.sim.inprocess import InProcessApi
from muster.sim.store import Store

T = TypeVar("T")
CRITERIA = {"service": "eks", "accelerator": "h100", "intent": "training", "os": "ubuntu", "platform": "kubeflow"}
NODES, PODS, DAEMON_SETS, READINGS, ROUNDS = 1000, 5000, 5, 150, 5
NOW = datetime(2026, 1, 5, 8, 0, tzinfo=UTC)
CREATED = "2026-01-05T07:00:00Z"
SPACE = "gpu-operator"


class Made:
    """A source of made-up objects, by (plural, namespace)."""

    def __init__(self, objects: dict[tuple[str, str], list[bytes]]) -> None:
        self._objects = objects

    async def objects(
        self, res: ResourceType, namespace: str, project: Callable[[bytes], T | None], label_selector: str = ""
    ) -> tuple[T, ...]:
        del label_selector  # nothing else is in it
        raws = self._objects.get((res.plural, namespace), [])
        return tuple(found for raw in raws if (found := project(raw)) is not None)


def daemon_set(name: str) -> dict[str, Any]:
    pod = {
        "nodeSelector": {"nvidia.com/gpu.present": "true"},
        "tolerations": [{"operator": "Exists"}],
        "containers": [{"name": "main", "image": "registry.example/work:1"}],
    }
    counts = ("desiredNumberScheduled", "numberReady", "updatedNumberScheduled", "currentNumberScheduled")
    return {
        "apiVersion": "apps/v1",
        "kind": "DaemonSet",
        "metadata": {"name": name, "namespace": SPACE, "generation": 1},
        "spec": {"template": {"spec": pod}},
        "status": {"observedGeneration": 1, **dict.fromkeys(counts, NODES)},
    }


def node(number: int) -> dict[str, Any]:
    labels = {"nvidia.com/gpu.present": "true", **{f"feature.example/{n}": "true" for n in range(60)}}
    info = {"kernelVersion": "6.8.0-1028-aws", "osImage": "Ubuntu 24.04.1 LTS", "kubeletVersion": "v1.34.1"}
    conditions = [{"type": "Ready", "status": "True"}]
    return {
        "metadata": {"name": f"gpu-{number:04}", "labels": labels},
        "status": {"nodeInfo": info, "conditions": conditions},
    }


def health(number: int) -> dict[str, Any]:
    readings = [
        Reading(name=f"gpu.{n}.reading", value=f"{number}-{n}", reading_class=ReadingClass.CONFIG)
        for n in range(READINGS)
    ]
    print_ = fingerprint(readings)
    certificate = Certificate(
        node_uid="u", fingerprint=print_, profile="bringup", tests=(), certification="c", issued_at=NOW
    )
    status = NodeHealthStatus(
        observed=Observed(observed_at=NOW, node_uid="u", boot_id="b", fingerprint=print_),
        lifecycle=Lifecycle(state=State.IN_SERVICE, since=NOW, certificate=certificate),
    )
    return dict(to_object(NodeHealth(metadata=ObjectMeta(name=f"gpu-{number:04}"), status=status)))


def pod(number: int) -> dict[str, Any]:
    owner = {"apiVersion": "apps/v1", "kind": "DaemonSet", "name": f"daemon-{number % DAEMON_SETS}", "uid": "u"}
    container = {"name": "main", "restartCount": 0, "ready": True, "state": {"running": {"startedAt": CREATED}}}
    if number % 10 == 0:  # that many need a second look
        container["lastState"] = {"terminated": {"exitCode": 0, "reason": "Completed", "finishedAt": CREATED}}
    return {
        "metadata": {
            "name": f"pod-{number}",
            "namespace": SPACE,
            "ownerReferences": [owner],
            "creationTimestamp": CREATED,
        },
        "spec": {
            "nodeName": f"gpu-{number % NODES:04}",
            "containers": [{"name": "main", "env": [{"name": f"E{n}", "value": "x" * 40} for n in range(30)]}],
        },
        "status": {"phase": "Running", "containerStatuses": [container]},
    }


def record(release: Any, manifest: str) -> dict[str, Any]:
    about = {"name": release.name, "namespace": release.namespace, "version": 1, "info": {"status": "deployed"}}
    chart = {"metadata": {"name": release.chart or release.name, "version": release.version or "0.1.0"}}
    text = json.dumps({**about, "chart": chart, "manifest": manifest, "config": dict(release.values)})
    packed = base64.b64encode(base64.b64encode(gzip.compress(text.encode()))).decode()
    metadata = {
        "name": f"sh.helm.release.v1.{release.name}.v1",
        "namespace": release.namespace,
        "uid": release.name,
        "resourceVersion": "1",
    }
    return {"metadata": metadata, "data": {"release": packed}}


def megabytes() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


async def main(rounds: int) -> None:
    recipe = resolve(parse_criteria(CRITERIA), load()).recipe
    planned = plan(recipe)
    daemons = [daemon_set(f"daemon-{n}") for n in range(DAEMON_SETS)]
    manifest = yamlio.dumps_all(daemons)
    records = [record(r, manifest if r.component == "gpu-operator" else "") for r in planned.releases]

    def raw(objects: list[dict[str, Any]]) -> list[bytes]:
        return [json.dumps(obj).encode() for obj in objects]

    source = Made(
        {
            ("nodes", ""): raw([node(n) for n in range(NODES)]),
            ("nodehealths", ""): raw([health(n) for n in range(NODES)]),
            ("pods", SPACE): raw([pod(n) for n in range(PODS)]),
            ("daemonsets", SPACE): raw(daemons),
            ("secrets", ""): raw(records),
        }
    )
    api, memory, before = InProcessApi(Store(SystemClock())), Memory(), megabytes()
    print(f"{NODES} nodes with {READINGS} readings each, {PODS} pods, {len(recipe.components)} components")
    for attempt in range(rounds):
        start = time.process_time()
        live = await read(api, recipe, planned, now=NOW, kubernetes_version="v1.34.1", source=source, memory=memory)
        seen = time.process_time()
        assertions = assess(recipe, planned, live)
        assessed = time.process_time()
        drifts = drift(recipe, planned, live)
        end = time.process_time()
        print(
            f"comparison {attempt + 1}: {end - start:.2f} s of CPU (read {seen - start:.2f}, "
            f"assert {assessed - seen:.2f}, drift {end - assessed:.2f}); "
            f"{len(assertions)} assertions, {len(drifts)} drifts, "
            f"peak of memory {megabytes() - before:.0f} MiB above the {before:.0f} of the objects themselves"
        )


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="two comparisons instead of five")
    asyncio.run(main(2 if parser.parse_args().quick else ROUNDS))
