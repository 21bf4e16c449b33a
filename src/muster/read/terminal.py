"""What a terminal leaves around an output that was copied from it: prompts in front, a last prompt and farewells."""

from __future__ import annotations

import re

_USER = r"[A-Za-z0-9_.-]{1,64}@"
PROMPT = (
    r"(?:\([A-Za-z0-9_.-]{1,40}\) )?"
    rf"(?:\[{_USER}[^\s\]]{{1,120}}(?: [^\s\]]{{1,120}})?\]|{_USER}[^\s#$%>]{{1,120}})\s?[#$%>]"
)
"""`root@host:~#`, `[root@host ~]#`, `(base) user@host:/data$`: the start of a pattern."""
_CLOSING = re.compile(
    rf"(?:{PROMPT}\s{{0,4}}(?:exit|logout)?|exit|logout|Connection to \S{{1,200}} closed\.?"
    r"|Script done\b.{0,80})"
)
_COLOUR = re.compile(r"\x1b(?:\[[0-9;?]{0,16}[A-Za-z]|\][^\x07]{0,200}\x07)")
_MOST_LINES = 8


def without_end(text: str) -> str:
    """The text without the prompt and the farewells at its end, so that the last line is one of the output."""
    for _ in range(_MOST_LINES):
        head, line_break, last = text.rstrip().rpartition("\n")
        if not line_break or len(last) > 400 or _CLOSING.fullmatch(_COLOUR.sub("", last).strip()) is None:
            return text
        text = head + "\n"
    return text
