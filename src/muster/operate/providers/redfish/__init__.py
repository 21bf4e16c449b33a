"""Provider `redfish`: BMCs that speak the DMTF's schema."""
