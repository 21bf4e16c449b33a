"""Signatures over files that leave the cluster: DSSE envelopes, keys in PEM files, and sigstore without keys."""
