#!/usr/bin/env bash
# Waits until every Deployment of a namespace is available and no new one has appeared for a while: a chart may return
# before its operator has created what matters. Usage: gate.sh NAMESPACE TIMEOUT_S [failed]
# With `failed` there is nothing to wait for: the release itself was not deployed.
set -euo pipefail

namespace=$1 timeout_s=$2
settle_s=30
[[ ${3:-} != failed ]] || exit 0
deadline=$((SECONDS + timeout_s))

exec </dev/null
seen=
while true; do
  left_s=$((deadline - SECONDS))
  if ((left_s <= 0)); then
    printf 'gate.sh: not every Deployment in %s is available after %d s:\n' "$namespace" "$timeout_s" >&2
    kubectl get deployments --namespace "$namespace" >&2 || true
    exit 1
  fi
  found=$(kubectl get deployments --namespace "$namespace" --output name | sort) || found=
  if [[ -n $found ]] && kubectl wait deployment --all --namespace "$namespace" --for=condition=Available \
    --timeout="${left_s}s" >/dev/null; then
    # The same Deployments as before the pause, and all of them available.
    [[ $found != "$seen" ]] || exit 0
    seen=$found
  else
    seen=
  fi
  left_s=$((deadline - SECONDS))
  pause_s=$((left_s < settle_s ? left_s : settle_s))
  ((pause_s <= 0)) || sleep "$pause_s"
done
