"""Keeps the tests away from a cluster that somebody works on."""

from __future__ import annotations

import asyncio
import json
import os

import pytest

from muster.kube.api import NODES
from muster.kube.config import Target
from muster.kube.http import HttpApi

ALLOWED = "MUSTER_TEST_ON_THIS_CLUSTER"
"""Set to 1 by somebody who means it."""
TEST_NODE_LABEL = "muster.dev/test"


def refuse_foreign_nodes(target: Target) -> None:
    """Fail the run when the cluster of KUBECONFIG has nodes that no test made: the tests delete and taint nodes."""
    if os.environ.get(ALLOWED) == "1":
        return
    foreign = asyncio.run(_foreign_nodes(target))
    if foreign:
        pytest.exit(
            f"KUBECONFIG names a cluster with nodes of its own ({', '.join(foreign[:3])}); these tests hold, drain "
            f"and delete nodes. Unset KUBECONFIG, or set {ALLOWED}=1 if the cluster may be used up.",
            returncode=2,
        )


async def _foreign_nodes(target: Target) -> list[str]:
    async with HttpApi(target) as api:
        page = await api.list_page(NODES, label_selector=f"!{TEST_NODE_LABEL}", limit=10)
    return [str(json.loads(item)["metadata"]["name"]) for item in page.items]
