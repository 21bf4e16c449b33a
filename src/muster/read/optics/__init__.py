"""Optical modules and cables: `mlxlink`, `ethtool -m`, `mlxcables`; the link tests and firmware lists beside them.

The texts are recognised and read together with those of the ports (`read/fabric_ports`): one link, one report.
"""
