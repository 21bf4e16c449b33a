#!/usr/bin/env bash
# Removes the releases of releases.tsv in reverse order. CRDs that other components share stay, with their objects,
# unless --delete-crds is given. Namespaces stay.
set -euo pipefail

die() {
  printf 'uninstall.sh: %s\n' "$1" >&2
  exit 1
}

delete_crds=false
for argument in "$@"; do
  case "$argument" in
    --delete-crds) delete_crds=true ;;
    -h | --help)
      printf 'Usage: uninstall.sh [--delete-crds]\n  --delete-crds  also remove shared CRDs and every object of their kinds\n'
      exit 0
      ;;
    *) die "unknown argument '$argument'; see uninstall.sh --help" ;;
  esac
done

cd "$(dirname "${BASH_SOURCE[0]}")"
command -v helm >/dev/null || die "helm is needed and was not found"

rows=()
while IFS= read -r row; do
  rows=("$row" "${rows[@]+"${rows[@]}"}")
done < <(tail -n +2 releases.tsv)

for row in "${rows[@]+"${rows[@]}"}"; do
  IFS=$'\t' read -r _ name namespace _ _ _ timeout_s _ _ crds <<<"$row"
  if [[ $crds == keep && $delete_crds == false ]]; then
    printf '%s: kept, it holds shared CRDs\n' "$name"
    continue
  fi
  helm uninstall "$name" --namespace "$namespace" --ignore-not-found --wait --timeout "${timeout_s}s" ||
    die "$name could not be removed; mend it and run uninstall.sh again"
  printf '%s: removed\n' "$name"
done
