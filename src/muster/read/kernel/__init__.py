"""Kernel and Fabric Manager logs: `KernelLogParser` for lines as they come, `to_sightings` for fault assembly."""

from muster.read.kernel.finding import Detection, Finding
from muster.read.kernel.parser import KernelLogParser
from muster.read.kernel.sightings import to_sightings

__all__ = ["Detection", "Finding", "KernelLogParser", "to_sightings"]
