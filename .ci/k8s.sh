#!/usr/bin/env bash
# Installs a Kubernetes API server without nodes into .build/k8s: etcd from Debian, and kube-apiserver and
# kubectl from their source, which takes about six minutes of CPU time.
# Exit status 75: the packages are not available here. This is not an error of the code.
set -euo pipefail
cd "$(dirname "$0")/.."
version=1.34.2
home=$PWD/.build/k8s
want=$(sha256sum < .ci/k8s.sh)
[ "$(cat "$home/made-from" 2>/dev/null)" != "$want" ] || exit 0
missing() {
  echo "k8s: $1 is not available here" >&2
  exit 75
}

rm -rf "$home"
mkdir -p "$home/module"
.ci/debian.sh "$home/debian" etcd-server
ln -s debian/usr/bin/etcd "$home/etcd"

# The modules of Kubernetes require each other at v0.0.0. Replace them by the release.
cd "$home/module"
export GOFLAGS='-trimpath -mod=mod' CGO_ENABLED=0 GOBIN=$home GOWORK=off
go mod init k8s 2>/dev/null
go mod edit -require "k8s.io/kubernetes@v$version"
release=$(go mod download -json "k8s.io/kubernetes@v$version" | sed -n 's/.*"GoMod": "\(.*\)",/\1/p')
[ -n "$release" ] || missing "k8s.io/kubernetes $version"
sed -n "s|^\s*\(k8s.io/[a-z-]*\) => ./staging/.*|replace \1 => \1 v0.${version#1.}|p" "$release" >> go.mod
about=k8s.io/component-base/version.git
go list -deps k8s.io/kubernetes/cmd/kube-apiserver k8s.io/kubernetes/cmd/kubectl >/dev/null || missing "k8s.io/kubernetes $version"
go install -ldflags "-s -w -X ${about}Version=v$version -X ${about}Major=1 -X ${about}Minor=34" k8s.io/kubernetes/cmd/kube-apiserver k8s.io/kubernetes/cmd/kubectl
echo "$want" > "$home/made-from"
