"""The NVLinks of one GPU: which are down that should be up, and which have too many errors. Pure."""

from __future__ import annotations

from muster.agent.gpu.ledger import Ledger
from muster.agent.gpu.sample import GpuSample, LinkSample
from muster.resources.fault import Entity, EntityKind

DOWN, ERRORS = "nvlink-down", "nvlink-errors"


def judge_links(ledger: Ledger, gpu: GpuSample, entity: Entity) -> None:
    """Tell of the links of `gpu`."""
    states = {link.link: link.up for link in gpu.links if link.up is not None}
    up = sorted(number for number, is_up in states.items() if is_up)
    if states:
        before = ledger.links_up(gpu.uuid, up)
        for number in sorted(states):
            if states[number] or number in before:
                ledger.tell(DOWN, _entity(gpu, number), bool(states[number]), f"link {number} is down")
        expected = ledger.config.expected_links
        if expected is not None:
            ledger.tell(DOWN, entity, len(up) >= expected, f"{len(up)} of {expected} links are up")
    for link in gpu.links:
        _judge_errors(ledger, gpu, link, entity)


def _entity(gpu: GpuSample, link: int) -> Entity:
    return Entity(kind=EntityKind.NVLINK, uuid=gpu.uuid, pci=gpu.pci or None, link=link)


def _judge_errors(ledger: Ledger, gpu: GpuSample, link: LinkSample, whole: Entity) -> None:
    limits = ledger.config
    troubles: list[str] = []
    told, began_anew = False, ""
    for name, value, limit in (
        ("crc", link.crc, limits.nvlink_crc_per_minute),
        ("replay", link.replay, limits.nvlink_replays_per_minute),
        ("recovery", link.recovery, limits.nvlink_recoveries_per_minute),
    ):
        if value is None:
            continue
        growth = ledger.growth(f"{gpu.uuid}/link{link.link}/{name}", value)
        if growth is None:
            began_anew = f"{gpu.uuid}/link{link.link}/{name}"
            continue
        told = True
        if growth.per_s * 60 > limit:
            troubles.append(f"{growth.per_s * 60:.0f} {name} errors a minute")
    if link.effective_errors is not None:
        growth = ledger.growth(f"{gpu.uuid}/link{link.link}/effective", link.effective_errors)
        if growth is None:
            began_anew = f"{gpu.uuid}/link{link.link}/effective"
        else:
            told = True
            # The rate is one over the life of the link, so it counts only while errors still come.
            rate = link.effective_ber
            if growth.by > 0 and rate is not None and rate > limits.nvlink_effective_ber:
                troubles.append(f"effective bit error rate {rate:g}, {growth.by} new errors")
    entity = whole if link.link < 0 else _entity(gpu, link.link)
    if told:
        ledger.tell_lasting(ERRORS, entity, bool(troubles), ", ".join(troubles))
    elif began_anew:
        ledger.no_rate(ERRORS, entity, began_anew)
