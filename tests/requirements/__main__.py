"""`python -m tests.requirements docs/requirements.md` makes the page anew."""

from __future__ import annotations

import sys
from pathlib import Path

from tests.requirements.marks import collect
from tests.requirements.page import PAGE, render
from tests.requirements.rows import load

if __name__ == "__main__":
    target = Path(sys.argv[1] if len(sys.argv) > 1 else PAGE)
    target.write_text(render(load(), collect()), encoding="utf-8")
