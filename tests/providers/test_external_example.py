"""The external controller of the documentation, as a process against the simulated API server over HTTP."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from muster.resources import crd
from tests.contract.client import Client
from tests.contract.server import eventually, simulated
from tests.providers.cloud_api import Asked, Told, cloud_api

EXAMPLE = Path(__file__).parents[2] / "docs/examples/external-repair/controller.py"
REPAIRS = "/apis/muster.dev/v1alpha1/repairs"


def repair(name: str, **spec: Any) -> dict[str, Any]:
    wanted = {"nodeName": "gpu-001", "nodeUid": "u", "episode": "e", "rung": "replace", "provider": "hands", **spec}
    kind = {"apiVersion": "muster.dev/v1alpha1", "kind": "Repair"}
    return {**kind, "metadata": {"name": name}, "spec": wanted}


@contextmanager
def proxied(admin: Client) -> Iterator[str]:
    """What `kubectl proxy` does: plain HTTP here, the login there."""

    def forward(asked: Asked) -> Told:
        kind = asked.headers.get("content-type", "application/json")
        found = admin.request(asked.method, asked.path, asked.body or None, params=asked.query, content_type=kind)
        return Told(found.status, found.body)

    with cloud_api(forward) as api:
        yield api.url


@pytest.mark.full
def test_the_example_claims_does_and_reports(tmp_path: Path) -> None:
    with simulated(tmp_path) as server, proxied(server.admin) as url:
        admin = server.admin
        for manifest in crd.manifests():
            admin.create("/apis/apiextensions.k8s.io/v1/customresourcedefinitions", manifest).ok()
        admin.create(REPAIRS, repair("r1")).ok()
        admin.create(REPAIRS, repair("r2", cancel=True)).ok()
        admin.create(REPAIRS, repair("r3", provider="somebody")).ok()
        process = subprocess.Popen(
            [sys.executable, str(EXAMPLE), url, "hands", "0.1"], stdout=subprocess.PIPE, text=True
        )
        try:

            def over() -> bool:
                phases = {
                    r["metadata"]["name"]: r.get("status", {}).get("phase") for r in admin.get(REPAIRS).body["items"]
                }
                return phases["r1"] == "Done" and phases["r2"] == "Cancelled"

            eventually(over)
            done = admin.get(f"{REPAIRS}/r1").body["status"]
            assert (done["externalId"], done["message"]) == ("TASK-r1", "handed over")
            assert done["startedAt"] <= done["finishedAt"]
            assert "phase" not in (admin.get(f"{REPAIRS}/r3").body.get("status") or {})
        finally:
            process.terminate()
            said, _ = process.communicate(timeout=10)
        assert said.splitlines() == ["please replace gpu-001 (r1)"]


@pytest.mark.full
def test_what_a_dead_predecessor_left_running_is_gone_on_with(tmp_path: Path) -> None:
    with simulated(tmp_path) as server, proxied(server.admin) as url:
        admin = server.admin
        for manifest in crd.manifests():
            admin.create("/apis/apiextensions.k8s.io/v1/customresourcedefinitions", manifest).ok()
        admin.create(REPAIRS, repair("r1")).ok()
        admin.patch(f"{REPAIRS}/r1/status", {"status": {"phase": "Running"}}).ok()
        process = subprocess.Popen([sys.executable, str(EXAMPLE), url, "hands", "0.1"], stdout=subprocess.PIPE)
        try:
            eventually(lambda: admin.get(f"{REPAIRS}/r1").body["status"]["phase"] == "Done")
        finally:
            process.terminate()
            process.communicate(timeout=10)
