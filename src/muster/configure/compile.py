"""Compile the YAML sources of the catalogue into `data/catalogue.json`: `python -m muster.configure.compile`."""

from __future__ import annotations

import msgspec

from muster.configure.catalogue import data_folder, read_sources


def compiled() -> bytes:
    """The bytes that `data/catalogue.json` must have."""
    return msgspec.json.format(msgspec.json.encode(read_sources(data_folder()), order="sorted"), indent=1) + b"\n"


def main() -> None:
    (data_folder() / "catalogue.json").write_bytes(compiled())


if __name__ == "__main__":
    main()
