#!/usr/bin/env bash
# Installs the releases of releases.tsv one after the other. Stops at the first failure; run it again to go on where
# it stopped. A release that this very bundle has already deployed is left alone unless --all is given.
set -euo pipefail

die() {
  printf 'deploy.sh: %s\n' "$1" >&2
  exit 1
}

all=false look=false
for argument in "$@"; do
  case "$argument" in
    --all) all=true ;;
    --dry-run) look=true ;;
    -h | --help)
      printf 'Usage: deploy.sh [--all] [--dry-run]\n'
      printf '  --all      deploy releases again that this bundle has deployed already\n'
      printf '  --dry-run  change nothing; say which releases would be deployed\n'
      exit 0
      ;;
    *) die "unknown argument '$argument'; see deploy.sh --help" ;;
  esac
done

cd "$(dirname "${BASH_SOURCE[0]}")"
# The table is read from descriptor 3, and no program may read what is meant for the loop.
exec </dev/null
for program in helm kubectl sha256sum; do
  command -v "$program" >/dev/null || die "$program is needed and was not found"
done
if [[ $look == true ]]; then
  ./preflight.sh --look
else
  ./preflight.sh
fi
mark="muster bundle $(sha256sum checksums.txt | cut -d ' ' -f 1)"

# Helm 4 applies on the server: a field that somebody else has set stops it unless it is told to win. Helm 3 has no
# such flags.
apply=(--server-side=true --force-conflicts)
[[ $(helm version --short) != v3* ]] || apply=()

state_of() {
  helm history "$1" --namespace "$2" --max 1 --output json 2>/dev/null | tr -d '\n ' || true
}

install() {
  local folder=$1 name=$2 namespace=$3 chart=$4 repository=$5 version=$6 timeout_s=$7 gate=$8 crds=$9
  local until_ready=(--wait --wait-for-jobs)
  [[ ${10} == objects ]] || until_ready=()
  local source=() pinned=() address=
  if [[ $repository != - ]]; then
    source=(--repo "$repository") address=$repository
  fi
  [[ $version == - ]] || pinned=(--version "$version")
  if [[ $crds != install && $version != - ]]; then
    ./crds.sh "$chart" "$version" "$address" || return 1
  fi
  local target=$chart
  # A bare folder name would be looked up in a repository.
  [[ $version != - ]] || target="./$chart"
  helm upgrade --install "$name" "$target" "${source[@]+"${source[@]}"}" "${pinned[@]+"${pinned[@]}"}" \
    --namespace "$namespace" --values "$folder/values.yaml" --timeout "${timeout_s}s" \
    "${until_ready[@]+"${until_ready[@]}"}" "${apply[@]+"${apply[@]}"}" --history-max 10 --description "$mark" >/dev/null || return 1
  if [[ $gate == deployments-available ]]; then
    ./gate.sh "$namespace" "$timeout_s" || return 1
  fi
}

while IFS=$'\t' read -r folder name namespace chart repository version timeout_s retries gate crds _ wait <&3; do
  [[ $folder != folder ]] || continue
  state=$(state_of "$name" "$namespace")
  if [[ $all == false && $state == *'"status":"deployed"'* && $state == *"\"description\":\"${mark// /}\""* ]]; then
    printf '%s: already deployed by this bundle\n' "$name"
    # The gate may be what stopped the last run.
    [[ $look == true || $gate != deployments-available ]] || ./gate.sh "$namespace" "$timeout_s" ||
      die "$name is deployed, but not all of its Deployments are available; mend it and run deploy.sh again"
    continue
  fi
  if [[ $look == true ]]; then
    printf '%s: would be deployed in %s\n' "$name" "$namespace"
    continue
  fi
  if [[ $state == *'"status":"pending-'* || $state == *'"status":"uninstalling"'* ]]; then
    marks='status in (pending-install,pending-upgrade,pending-rollback,uninstalling)'
    die "another Helm works on $name, or one was killed; when none runs, take its mark away and run again: \
kubectl delete secret --namespace $namespace --selector 'owner=helm,name=$name,$marks'"
  fi
  attempt=1
  until install "$folder" "$name" "$namespace" "$chart" "$repository" "$version" "$timeout_s" "$gate" "$crds" \
    "$wait"; do
    ((attempt < retries)) || die "$name failed $attempt times; mend it and run deploy.sh again to go on here"
    pause_s=$((5 * attempt * attempt))
    ((pause_s <= 120)) || pause_s=120
    printf '%s: attempt %d failed, next one in %d s\n' "$name" "$attempt" "$pause_s" >&2
    sleep "$pause_s"
    attempt=$((attempt + 1))
  done
  printf '%s: deployed\n' "$name"
done 3<releases.tsv
if [[ $look == false ]]; then
  printf 'All releases are deployed.\n'
fi
