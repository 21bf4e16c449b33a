#!/usr/bin/env bash
# Runs `helmfile sync` until it succeeds, with growing pauses; Helmfile itself tries a release once. What is deployed
# already is synced again, which changes nothing. Arguments go to Helmfile, for example: ./sync.sh --selector name=nfd
set -euo pipefail

tries=5

die() {
  printf 'sync.sh: %s\n' "$1" >&2
  exit 1
}

cd "$(dirname "${BASH_SOURCE[0]}")"
exec </dev/null
for program in helmfile helm kubectl sha256sum; do
  command -v "$program" >/dev/null || die "$program is needed and was not found"
done
[[ $(helm version --short) != v3* ]] || die "Helm 4 is needed; found $(helm version --short)"
./preflight.sh

attempt=1
until helmfile --file helmfile.yaml "$@" sync; do
  ((attempt < tries)) || die "it failed $attempt times; mend what the last message names and run sync.sh again"
  pause_s=$((5 * attempt * attempt))
  printf 'sync.sh: attempt %d failed, next one in %d s\n' "$attempt" "$pause_s" >&2
  sleep "$pause_s"
  attempt=$((attempt + 1))
done
printf 'All releases are deployed.\n'
