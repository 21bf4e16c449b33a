"""A certification that runs is what was asked for: nothing of its spec is changed, added or taken away."""

from __future__ import annotations

from typing import Any

import pytest

from muster.kube.api import CERTIFICATIONS, InvalidError, PatchType
from muster.sim.inprocess import InProcessApi
from tests.resources.test_crd_on_server import of, with_api

SPEC = {"nodes": ["a", "b"], "profile": "bringup", "floors": {"pair": 300.0}, "pods": {"env": {"NCCL_DEBUG": "WARN"}}}


@pytest.mark.parametrize(
    "change",
    [
        {"nodes": ["a"]},
        {"nodes": ["a", "b", "c"]},
        {"partners": ["c"]},
        {"nodeSelector": {"pool": "x"}},
        {"tests": ["host"]},
        {"expectedTransport": "EFA"},
        {"floors": None},
        {"floors": {"pair": 1.0}},
        {"pods": None},
        {"pods": {"gang": {"scheduler": "kueue", "queue": "gpus"}}},
        {"budget": {"maxRuns": 7}},
        {"purpose": "repair"},
    ],
    ids=str,
)
def test_no_field_is_changed_added_or_taken_away(change: dict[str, Any]) -> None:
    async def use(api: InProcessApi) -> dict[str, Any]:
        await api.create(CERTIFICATIONS, of(CERTIFICATIONS, "c", SPEC))
        before = await api.get(CERTIFICATIONS, "c")
        running = {"status": {"phase": "Running"}}
        await api.patch(CERTIFICATIONS, "c", running, PatchType.MERGE, subresource="status")
        with pytest.raises(InvalidError, match="cannot change once it is running"):
            await api.patch(CERTIFICATIONS, "c", {"spec": change}, PatchType.MERGE)
        after = await api.get(CERTIFICATIONS, "c")
        assert after["spec"] == before["spec"]
        return after

    assert with_api(use)["status"]["phase"] == "Running"
