"""How sure this package is of a sample, and which of its tools wrote a text."""

from __future__ import annotations

import re

from muster.read.source import text_lines

KIND = "dcgm-diag"
JSON_ROOTS = ("DCGM Diagnostic", "DCGM GPU Diagnostic")
ALL_INACTIVE, NO_NVLINK = "all links are inactive", "not have or support nvlink"
"""What `nvidia-smi nvlink` says in place of a list of links, in lower case."""
_DIAG_SIGNS = (
    "| Diagnostic                | Result",
    "Successfully ran diagnostic",
    "Unable to complete diagnostic",
    "|-----  Metadata",
    "-----  Deployment  ---",
)
_SMI_GPU_LINE = re.compile(r"^\s{0,8}GPU \d{1,4}: ", re.MULTILINE)
_SMI_LINK_LINE = re.compile(r"^\s{1,16}Link \d{1,3}: (?:\d|<|N/A|Active|Inactive)", re.MULTILINE)


def score(sample: bytes) -> float:
    """1 for the table or JSON of `dcgmi diag` and for a list of NVLink states."""
    text = "\n".join(text_lines(sample, 2000))
    return 1.0 if is_diag_json(text) or is_nvlink_list(text) or is_diag_table(text) else 0.0


def is_diag_table(text: str) -> bool:
    return any(sign in text for sign in _DIAG_SIGNS)


def is_diag_json(text: str) -> bool:
    """The text holds such a document, perhaps behind a line of the tool."""
    start = text.find("{")
    return 0 <= start < 4096 and (any(root in text for root in JSON_ROOTS) or '"test_categories"' in text)


def is_nvlink_list(text: str) -> bool:
    """The list of `dcgmi nvlink -s` or of `nvidia-smi nvlink --status`."""
    if "NvLink Link Status" in text or ("gpuId" in text and "Not Supported=_" in text):
        return True
    if _SMI_GPU_LINE.search(text) is None:
        return False
    lowered = text.lower()
    return _SMI_LINK_LINE.search(text) is not None or ALL_INACTIVE in lowered or NO_NVLINK in lowered
