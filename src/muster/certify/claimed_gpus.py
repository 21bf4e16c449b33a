"""GPUs that a DRA driver offers: how many a node has and of what kind, as ResourceSlices tell. Pure.

A node whose GPUs are given out by claims alone offers no `nvidia.com/gpu`, and often bears no label of their product.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

import msgspec

from muster.certify.nodes import NodeFacts

GPU_DRIVER = "gpu.nvidia.com"
_OUT_OF_USE = ("NoSchedule", "NoExecute")


@dataclass(frozen=True)
class ClaimedGpus:
    """What the driver offers on one node."""

    count: int
    product: str = ""
    """As the label `nvidia.com/gpu.product` has it: without blanks."""


class _Pool(msgspec.Struct, frozen=True):
    name: str = ""
    generation: int = 0


class _Attribute(msgspec.Struct, frozen=True):
    string: str = ""


class _Taint(msgspec.Struct, frozen=True):
    effect: str = ""


class _Device(msgspec.Struct, frozen=True):
    name: str = ""
    attributes: dict[str, _Attribute] = {}
    taints: tuple[_Taint, ...] = ()

    def text(self, attribute: str) -> str:
        """The attribute; its name may bear the driver's domain."""
        found = self.attributes.get(attribute) or self.attributes.get(f"{GPU_DRIVER}/{attribute}")
        return found.string if found is not None else ""


class _Spec(msgspec.Struct, frozen=True, rename="camel"):
    driver: str = ""
    node_name: str = ""
    pool: _Pool = _Pool()
    devices: tuple[_Device, ...] = ()


class _Slice(msgspec.Struct, frozen=True):
    spec: _Spec = _Spec()


_decoder = msgspec.json.Decoder(_Slice, strict=False)


def claimed_gpus(slices: Iterable[bytes]) -> dict[str, ClaimedGpus]:
    """Node -> its whole GPUs. Slices of other drivers, of older generations of a pool and such as cannot be read are
    passed over, and so are devices that the driver has tainted."""
    specs: list[_Spec] = []
    for raw in slices:
        try:
            spec = _decoder.decode(raw).spec
        except msgspec.MsgspecError:
            continue
        if spec.driver == GPU_DRIVER and spec.node_name:
            specs.append(spec)
    newest: dict[tuple[str, str], int] = {}
    for spec in specs:
        pool = (spec.node_name, spec.pool.name)
        newest[pool] = max(newest.get(pool, 0), spec.pool.generation)
    found: dict[str, Counter[str]] = {}
    for spec in specs:
        products = found.setdefault(spec.node_name, Counter())
        if spec.pool.generation == newest[spec.node_name, spec.pool.name]:
            products.update("-".join(d.text("productName").split()) for d in spec.devices if _usable(d))
    return {
        node: ClaimedGpus(sum(products.values()), max(sorted(products), key=lambda p: products[p], default=""))
        for node, products in sorted(found.items())
    }


def _usable(device: _Device) -> bool:
    return device.text("type") in ("gpu", "") and not any(t.effect in _OUT_OF_USE for t in device.taints)


def with_claims(nodes: Mapping[str, NodeFacts], claimed: Mapping[str, ClaimedGpus]) -> dict[str, NodeFacts]:
    """`nodes` with the GPUs that claims give out there. A product label stays what it is."""
    return {
        name: replace(facts, gpus=claimed[name].count, product=facts.product or claimed[name].product)
        if name in claimed
        else facts
        for name, facts in nodes.items()
    }
