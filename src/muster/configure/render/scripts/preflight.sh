#!/usr/bin/env bash
# What has to hold before the first release: the bundle is whole, the cluster answers, nothing is in the way. Makes the
# namespaces. deploy.sh and sync.sh start with it.
set -euo pipefail

die() {
  printf 'preflight.sh: %s\n' "$1" >&2
  exit 1
}

cd "$(dirname "${BASH_SOURCE[0]}")"
exec </dev/null
sha256sum --check --quiet checksums.txt || die "files of the bundle were changed; build it again"

if [[ -s missing.txt ]]; then
  printf 'preflight.sh: these manifests were not supplied:\n' >&2
  sed 's/^/  /' missing.txt >&2
  die "build the bundle again with --manifest NAME=FILE for each, or turn the component off with --set NAME:enabled=false"
fi

kubectl version >/dev/null 2>&1 || die "the cluster does not answer; check KUBECONFIG and the current context"

while IFS= read -r namespace <&3; do
  phase=$(kubectl get namespace "$namespace" --ignore-not-found --output 'jsonpath={.status.phase}') ||
    die "cannot look at the namespace $namespace; check the rights of this account"
  [[ $phase != Terminating ]] ||
    die "the namespace $namespace is being removed; wait until it is gone ('kubectl get namespace $namespace'), then run again"
done 3<namespaces.txt

if [[ ${1:-} == --look ]]; then
  exit 0
fi

if [[ -s namespaces.yaml ]]; then
  kubectl apply --server-side --force-conflicts --field-manager=muster-bundle -f namespaces.yaml >/dev/null ||
    die "the namespaces cannot be made; the message above says why"
fi

while IFS=$'\t' read -r namespace name keys <&3; do
  found=$(kubectl get secret "$name" --namespace "$namespace" --ignore-not-found \
    --output 'go-template={{range $key, $value := .data}}{{$key}},{{end}}') ||
    die "cannot look at the secret $namespace/$name; check the rights of this account"
  IFS=, read -r -a wanted <<<"$keys"
  for key in "${wanted[@]}"; do
    [[ ",$found" == *",$key,"* ]] ||
      die "the secret $namespace/$name with the keys $keys is needed; create it and run again"
  done
done 3<secrets.tsv
