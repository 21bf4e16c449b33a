"""The package as one file that any Python 3.10 or newer runs: `python muster-workloads.pyz all-reduce --ranks 2`."""

from __future__ import annotations

import zipfile
from pathlib import Path

_MAIN = b"""import sys

from muster.workloads.__main__ import main

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
"""
_EPOCH = (1980, 1, 1, 0, 0, 0)
"""The first moment that a zip file knows: equal sources give equal bytes, whenever the archive is made."""
SHEBANG = b"#!/usr/bin/env python3\n"


def build_pyz(path: Path) -> Path:
    """Writes the archive to `path` and returns it. Equal sources give equal bytes."""
    package = Path(__file__).parent
    contents = {"__main__.py": _MAIN, "muster/__init__.py": b'"""The part of Muster that runs on its own."""\n'}
    for source in sorted(package.rglob("*.py")):
        contents[f"muster/workloads/{source.relative_to(package).as_posix()}"] = source.read_bytes()
    part = path.with_name(path.name + ".part")
    with part.open("wb") as file:
        file.write(SHEBANG)
        with zipfile.ZipFile(file, "w") as archive:
            for name in sorted(contents):
                entry = zipfile.ZipInfo(name, _EPOCH)
                entry.compress_type = zipfile.ZIP_DEFLATED
                entry.external_attr = 0o644 << 16
                archive.writestr(entry, contents[name])
    part.chmod(0o755)
    part.replace(path)
    return path
