"""The one place that imports PyTorch, when a program needs it."""

from __future__ import annotations

import importlib
import importlib.util
from typing import Any

from muster.workloads.rank import RankFailure


def load_torch() -> Any:
    """The module `torch`. Raises `RankFailure` (`harness`) where there is none."""
    try:
        return importlib.import_module("torch")
    except ImportError as error:
        raise RankFailure(
            "harness",
            f"PyTorch cannot be imported ({error}): use an image with PyTorch, or install muster-gpu[workloads]",
        ) from error


def has_torch() -> bool:
    """Whether PyTorch is installed; does not import it."""
    return importlib.util.find_spec("torch") is not None


def usual_device() -> str:
    """`cuda` where PyTorch sees a GPU, `cpu` elsewhere. Imports PyTorch."""
    return "cuda" if load_torch().cuda.is_available() else "cpu"


def torch_versions(device: str) -> dict[str, str]:
    """Versions of PyTorch and, on GPUs, of CUDA and NCCL and the name of the GPU."""
    torch = load_torch()
    found = {"torch": str(torch.__version__)}
    if device == "cuda":
        found["cuda"] = str(torch.version.cuda or torch.version.hip or "")
        found["gpu"] = str(torch.cuda.get_device_name())
        try:
            found["nccl"] = ".".join(str(each) for each in torch.cuda.nccl.version())
        except (RuntimeError, AttributeError, TypeError):
            found["nccl"] = "unknown"
    return found
