#!/usr/bin/env bash
# Brings the CRDs of a chart to the version of the chart; Helm itself installs them once and never changes them.
# Usage: crds.sh CHART VERSION [REPOSITORY]
set -euo pipefail

chart=$1 version=$2 repository=${3:-}
source=()
[[ -z $repository ]] || source=(--repo "$repository")

exec </dev/null
crds=$(helm show crds "$chart" --version "$version" "${source[@]+"${source[@]}"}")
# Charts that keep their CRDs among the templates show none here; Helm upgrades those itself.
if [[ $crds == *CustomResourceDefinition* ]]; then
  kubectl apply --server-side --force-conflicts --field-manager=muster-bundle -f - <<<"$crds"
fi
