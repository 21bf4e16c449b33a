#!/usr/bin/env bash
# Installs the releases of releases.tsv one after the other. Stops at the first failure; run it again to go on where
# it stopped. A release that this very bundle has already deployed is left alone unless --all is given.
set -euo pipefail

die() {
  printf 'deploy.sh: %s\n' "$1" >&2
  exit 1
}

all=false
for argument in "$@"; do
  case "$argument" in
    --all) all=true ;;
    -h | --help)
      printf 'Usage: deploy.sh [--all]\n  --all  deploy releases again that this bundle has deployed already\n'
      exit 0
      ;;
    *) die "unknown argument '$argument'; see deploy.sh --help" ;;
  esac
done

cd "$(dirname "${BASH_SOURCE[0]}")"
# The tables are read from descriptor 3, and no program may read what is meant for the loops.
exec </dev/null
for program in helm kubectl sha256sum; do
  command -v "$program" >/dev/null || die "$program is needed and was not found"
done
sha256sum --check --quiet checksums.txt || die "files of the bundle were changed; build it again"
mark="muster bundle $(sha256sum checksums.txt | cut -d ' ' -f 1)"

if [[ -s missing.txt ]]; then
  printf 'deploy.sh: these manifests were not supplied:\n' >&2
  sed 's/^/  /' missing.txt >&2
  die "build the bundle again with --manifest NAME=FILE for each, or turn the component off with --set NAME:enabled=false"
fi

kubectl apply --server-side --field-manager=muster-bundle -f namespaces.yaml

while IFS=$'\t' read -r namespace name keys <&3; do
  kubectl get secret "$name" --namespace "$namespace" >/dev/null 2>&1 ||
    die "the secret $namespace/$name with the keys $keys is needed; create it and run again"
done 3<secrets.tsv

deployed() {
  local name=$1 namespace=$2 state
  state=$(helm status "$name" --namespace "$namespace" --output json 2>/dev/null | tr -d '\n ') || return 1
  [[ $state == *'"status":"deployed"'* && $state == *"\"description\":\"${mark// /}\""* ]]
}

replace_crds() {
  local chart=$1 version=$2
  shift 2
  local crds
  crds=$(helm show crds "$chart" --version "$version" "$@") || return 1
  # Charts that keep their CRDs among the templates show none here; Helm upgrades those itself.
  if [[ $crds == *CustomResourceDefinition* ]]; then
    kubectl apply --server-side --force-conflicts --field-manager=muster-bundle -f - <<<"$crds"
  fi
}

install() {
  local folder=$1 name=$2 namespace=$3 chart=$4 repository=$5 version=$6 timeout_s=$7 gate=$8 crds=$9
  local source=() pinned=()
  [[ $repository == - ]] || source=(--repo "$repository")
  [[ $version == - ]] || pinned=(--version "$version")
  if [[ $crds != install && $version != - ]]; then
    replace_crds "$chart" "$version" "${source[@]+"${source[@]}"}" || return 1
  fi
  local target=$chart
  # A bare folder name would be looked up in a repository.
  [[ $version != - ]] || target="./$chart"
  helm upgrade --install "$name" "$target" "${source[@]+"${source[@]}"}" "${pinned[@]+"${pinned[@]}"}" \
    --namespace "$namespace" --values "$folder/values.yaml" --wait --timeout "${timeout_s}s" \
    --description "$mark" || return 1
  if [[ $gate == deployments-available ]]; then
    kubectl wait deployment --all --namespace "$namespace" --for=condition=Available --timeout="${timeout_s}s"
  fi
}

while IFS=$'\t' read -r folder name namespace chart repository version timeout_s retries gate crds <&3; do
  [[ $folder != folder ]] || continue
  if [[ $all == false ]] && deployed "$name" "$namespace"; then
    printf '%s: already deployed by this bundle\n' "$name"
    continue
  fi
  attempt=1
  until install "$folder" "$name" "$namespace" "$chart" "$repository" "$version" "$timeout_s" "$gate" "$crds"; do
    ((attempt < retries)) || die "$name failed $attempt times; mend it and run deploy.sh again to go on here"
    pause_s=$((5 * attempt * attempt))
    ((pause_s <= 120)) || pause_s=120
    printf '%s: attempt %d failed, next one in %d s\n' "$name" "$attempt" "$pause_s" >&2
    sleep "$pause_s"
    attempt=$((attempt + 1))
  done
  printf '%s: deployed\n' "$name"
done 3<releases.tsv
printf 'All releases are deployed.\n'
