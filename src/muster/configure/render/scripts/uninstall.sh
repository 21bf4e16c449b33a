#!/usr/bin/env bash
# Removes the releases of releases.tsv in reverse order. CRDs that other components share stay, with their objects,
# unless --delete-crds is given. Namespaces stay. Stops before it removes a controller that something still waits for.
set -euo pipefail

die() {
  printf 'uninstall.sh: %s\n' "$1" >&2
  exit 1
}

delete_crds=false delete_objects=false
for argument in "$@"; do
  case "$argument" in
    --delete-crds) delete_crds=true ;;
    --delete-objects) delete_objects=true ;;
    -h | --help)
      printf 'Usage: uninstall.sh [--delete-objects] [--delete-crds]\n'
      printf '  --delete-objects  delete objects that only a release of this bundle can finalize, before that release\n'
      printf '  --delete-crds     also remove shared CRDs and every object of their kinds\n'
      exit 0
      ;;
    *) die "unknown argument '$argument'; see uninstall.sh --help" ;;
  esac
done

cd "$(dirname "${BASH_SOURCE[0]}")"
exec </dev/null
for program in helm kubectl; do
  command -v "$program" >/dev/null || die "$program is needed and was not found"
done
kubectl version >/dev/null 2>&1 || die "the cluster does not answer; check KUBECONFIG and the current context"

# Objects with finalizers of one kind, one a line. Without its controller such an object can never go away.
finalized() {
  local crd=$1 there
  there=$(kubectl get customresourcedefinition "$crd" --ignore-not-found --output name) || return 1
  [[ -n $there ]] || return 0
  kubectl get "$crd" --all-namespaces --output \
    'go-template={{range .items}}{{if .metadata.finalizers}}{{with .metadata.namespace}}{{.}}/{{end}}{{.metadata.name}}{{"\n"}}{{end}}{{end}}'
}

clear_objects() {
  local name=$1 provides=$2 timeout_s=$3 crd waiting
  local crds=()
  [[ $provides == - ]] || IFS=, read -r -a crds <<<"$provides"
  for crd in "${crds[@]+"${crds[@]}"}"; do
    waiting=$(finalized "$crd") || die "cannot list $crd; check the rights of this account"
    [[ -n $waiting ]] || continue
    if [[ $delete_objects == false ]]; then
      printf '%s:\n%s\n' "$crd" "$waiting" | head -n 20 >&2
      die "only $name can finalize these objects; delete them first or run uninstall.sh --delete-objects"
    fi
    kubectl delete "$crd" --all --all-namespaces --timeout="${timeout_s}s" ||
      die "objects of $crd do not go away; look at their finalizers and at the logs of $name, then run again"
  done
}

rows=()
while IFS= read -r row; do
  rows=("$row" "${rows[@]+"${rows[@]}"}")
done < <(tail -n +2 releases.tsv)

for row in "${rows[@]+"${rows[@]}"}"; do
  IFS=$'\t' read -r _ name namespace _ _ _ timeout_s _ _ crds provides _ <<<"$row"
  if [[ $crds == keep && $delete_crds == false ]]; then
    printf '%s: kept, it holds shared CRDs\n' "$name"
    continue
  fi
  if ! helm status "$name" --namespace "$namespace" >/dev/null 2>&1; then
    printf '%s: not there\n' "$name"
    continue
  fi
  clear_objects "$name" "$provides" "$timeout_s"
  helm uninstall "$name" --namespace "$namespace" --ignore-not-found --wait --timeout "${timeout_s}s" >/dev/null ||
    die "$name could not be removed; mend it and run uninstall.sh again"
  printf '%s: removed\n' "$name"
done
