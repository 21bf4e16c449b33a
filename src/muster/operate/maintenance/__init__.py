"""Planned maintenance: what declared windows and announced events mean for a node, and how they go on."""

from muster.operate.maintenance.deferral import Deferral, deferral_of
from muster.operate.maintenance.node import NodeMaintenance, maintenance_of

__all__ = ["Deferral", "NodeMaintenance", "deferral_of", "maintenance_of"]
