"""Asks NVML which MIG device belongs to which GPU and writes it as a JSON object: `mig_child.py`.

NVML can hang, so it is asked in a process that can be killed. Exit code 1: the reason is in standard output instead.
"""

from __future__ import annotations

import json
import sys


def parents() -> dict[str, str]:
    """UUID of each MIG device -> UUID of its GPU. Raises pynvml.NVMLError, ImportError."""
    import pynvml  # type: ignore[import-untyped,import-not-found,unused-ignore] # an extra, without types

    found: dict[str, str] = {}
    pynvml.nvmlInit()
    for index in range(pynvml.nvmlDeviceGetCount()):
        try:
            gpu = pynvml.nvmlDeviceGetHandleByIndex(index)
            places = pynvml.nvmlDeviceGetMaxMigDeviceCount(gpu)
            uuid = _text(pynvml.nvmlDeviceGetUUID(gpu))
        except pynvml.NVMLError:
            # A GPU that cannot do MIG, or one that is lost: the others still tell.
            continue
        for place in range(places):
            try:
                mig = pynvml.nvmlDeviceGetMigDeviceHandleByIndex(gpu, place)
                found[_text(pynvml.nvmlDeviceGetUUID(mig))] = uuid
            except pynvml.NVMLError:
                continue
    return found


def _text(value: str | bytes) -> str:
    return value.decode() if isinstance(value, bytes) else value


def main() -> int:
    try:
        found = parents()
    except Exception as error:  # whatever it is, the agent tells it
        sys.stdout.write(f"{type(error).__name__}: {error}"[:400].replace("\n", " ") + "\n")
        return 1
    json.dump(found, sys.stdout)
    return 0


if __name__ == "__main__":
    sys.exit(main())
