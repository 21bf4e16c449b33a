"""Which BMC belongs to a node. Pure."""

from __future__ import annotations

import re

from muster.operate.providers.config import RedfishSettings
from muster.operate.providers.provider import NodeFactsForRepair, PermanentProviderError
from muster.plain_text import plain

_PART = re.compile(r"\{(name|providerID|label:[^{}]+|annotation:[^{}]+)\}")
_HOST = re.compile(r"[0-9A-Za-z._:\[\]-]{1,255}")


def bmc_address(settings: RedfishSettings, node: NodeFactsForRepair) -> str:
    """The URL of the BMC: from `addresses`, else from `address` with the node's own words filled in.

    Raises PermanentProviderError. What is filled in must be a name or an address: whoever may label nodes must not
    lead the password elsewhere by a path or a user in it.
    """
    fixed = settings.addresses.get(node.name)
    if fixed:
        return fixed.rstrip("/")
    if not settings.address:
        raise PermanentProviderError(f"Provider {settings.name} knows no BMC of {node.name}; add it to `addresses`.")

    def fill(match: re.Match[str]) -> str:
        kind, _, key = match.group(1).partition(":")
        if kind == "label":
            value = node.labels.get(key, "")
        elif kind == "annotation":
            value = node.annotations.get(key, "")
        elif kind == "providerID":
            # Bare-metal providers write `<provider>://<id>`; the last part names the machine.
            value = node.provider_id.rstrip("/").rpartition("/")[2]
        else:
            value = node.name
        if not _HOST.fullmatch(value):
            shown = plain(value, 60) or "nothing"
            raise PermanentProviderError(f"{node.name} has no usable {match.group(1)} to find its BMC by ({shown}).")
        return value

    return _PART.sub(fill, settings.address).rstrip("/")
