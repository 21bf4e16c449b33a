"""The resource models of `muster.dev/v1alpha1`: the one place where configure, certify and operate meet.

Pure values (msgspec structs, frozen). The CRD YAML in `deploy/crds/` is generated from them.
"""
