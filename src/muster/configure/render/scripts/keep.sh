#!/usr/bin/env bash
# Stands before the removal of a release that holds shared CRDs: removing them removes every object of their kinds in
# the whole cluster. Usage: keep.sh NAME
set -euo pipefail

if [[ ${MUSTER_DELETE_CRDS:-} != yes ]]; then
  printf '%s holds CRDs that others share and stays; set MUSTER_DELETE_CRDS=yes to remove it all the same.\n' "$1" >&2
  exit 1
fi
