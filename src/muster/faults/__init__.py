"""The fault catalogue (data) and the assembly of sightings into faults. Pure."""
