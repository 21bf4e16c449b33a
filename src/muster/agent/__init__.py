"""The node agent: monitors, fault assembly, publishing."""
