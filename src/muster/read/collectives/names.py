"""One name per node: the job's spelling, told aliases, short names, and addresses that NCCL printed for a host."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from muster.errors import BadInputError

MAX_HOSTS = 100_000
_OWN_ADDRESS = re.compile(
    r"(?:Bootstrap ?: ?Using|OOB) (?:[\w.@-]{1,32}):(?P<address>[0-9A-Fa-f:.%\w]{2,64}?)<\d{1,5}>"
)


class Names:
    """Spellings of hosts. `aliases` of the context maps a name to its other spellings."""

    def __init__(self, context: Mapping[str, Any]) -> None:
        self._canonical: dict[str, str] = {}
        self._hosts: dict[str, None] = {}
        self._short: dict[str, str | None] = {}
        aliases = context.get("aliases")
        if aliases is None:
            aliases = {}
        if not isinstance(aliases, dict):
            raise BadInputError("aliases in the context must map a node to a list of its other names.")
        for name, others in aliases.items():
            if not isinstance(others, list) or not all(isinstance(other, str) for other in others):
                raise BadInputError(f"aliases of {str(name)[:80]} in the context must be a list of names.")
            for other in others:
                self._canonical[other] = str(name)
        nodes = context.get("nodes")
        for name in nodes if isinstance(nodes, list) else ():
            self.host(str(name))

    def host(self, name: str | None) -> None:
        """A host that wrote a line itself."""
        if name is None or name in self._hosts or len(self._hosts) >= MAX_HOSTS:
            return
        self._hosts[name] = None
        short = name.partition(".")[0]
        self._short[short] = name if self._short.get(short, name) == name else None

    def learn(self, host: str | None, message: str) -> None:
        """Which address is the host's own, from the lines in which it says so."""
        if host is None or "Using" not in message:
            return
        found = _OWN_ADDRESS.search(message)
        if found and len(self._canonical) < MAX_HOSTS:
            self._canonical.setdefault(found["address"], host)

    def of(self, name: str | None) -> str | None:
        """The one name of a node: itself where nothing more is known."""
        if name is None:
            return None
        known = self._canonical.get(name)
        if known is not None and known != name:
            return self._canonical.get(known, known)
        if name in self._hosts or ":" in name or name.replace(".", "").isdecimal():
            return name
        return self._short.get(name.partition(".")[0]) or name
