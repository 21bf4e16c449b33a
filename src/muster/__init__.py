"""Muster keeps GPU Kubernetes clusters fit for work: configure, certify, operate, recertify."""

__version__ = "0.1.0.dev0"
