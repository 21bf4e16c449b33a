"""Providers `aws`, `gcp`, `azure`, `oci`: reboot, power-cycle and replace through the cloud's API."""
