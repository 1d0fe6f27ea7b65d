#!/usr/bin/env bash
# Makes sure that the Kubernetes programs for development are there, and prints their folder.
#
#   etcd kube-apiserver kube-controller-manager kubectl
#
# With --node also what a node takes that runs pods, for `make e2e`: kubelet kube-scheduler
#
# Where each comes from, the first that has it:
#   1. KUBEBUILDER_ASSETS, when it is set and holds all of them;
#   2. bin/k8s/<versions>/ of this clone;
#   3. the cache that all clones of a user share: PAWL_BIN_CACHE, by default
#      ${XDG_CACHE_HOME:-$HOME/.cache}/pawl ("off" turns it off);
#   4. setup-envtest's download (PAWL_ENVTEST=off skips it), which has no controller manager,
#      kubelet or scheduler;
#   5. a build from the Go modules pinned in go.mod beside this script.
#
# Progress goes to standard error, the folder to standard output. Two runs at once are
# safe: the second waits, then finds everything there.
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
root=$(cd "$here/../.." && pwd)
programs=(etcd kubectl kube-apiserver kube-controller-manager)
[[ ${1:-} != --node ]] || programs+=(kubelet kube-scheduler)

say() { printf '%s\n' "kubernetes: $*" >&2; }

complete() { # DIR: does it hold every program?
  local p
  for p in "${programs[@]}"; do [[ -x $1/$p ]] || return 1; done
}

if [[ -n ${KUBEBUILDER_ASSETS:-} ]]; then
  if complete "$KUBEBUILDER_ASSETS"; then
    say "using KUBEBUILDER_ASSETS=$KUBEBUILDER_ASSETS"
    echo "$KUBEBUILDER_ASSETS"
    exit 0
  fi
  say "KUBEBUILDER_ASSETS=$KUBEBUILDER_ASSETS lacks one of: ${programs[*]}; not using it"
fi

pinned() { # MODULE: the version that go.mod pins
  awk -v m="$1" '$1 == m && $2 ~ /^v/ { print $2; exit } $1 == "require" && $2 == m { print $3; exit }' "$here/go.mod"
}
kube=$(pinned k8s.io/kubernetes)
etcd=$(pinned go.etcd.io/etcd/server/v3)
versions="$kube-etcd-$etcd"
out=$root/bin/k8s/$versions

cache=${PAWL_BIN_CACHE:-${XDG_CACHE_HOME:-${HOME:-/nonexistent}/.cache}/pawl}
if [[ $cache == off || $cache == /nonexistent/* ]]; then
  cache=
else
  cache=$cache/k8s/$versions-$(go env GOOS)-$(go env GOARCH)
fi

link() { # FROM TO: a hard link where possible, else a copy; never half a file under TO
  local part=$2.part.$$
  rm -f "$part"
  mkdir -p "$(dirname "$2")"
  ln "$1" "$part" 2>/dev/null || cp "$1" "$part"
  chmod +x "$part"
  mv -f "$part" "$2"
}

finish() {
  ln -sfn "$versions" "$root/bin/k8s/current"
  echo "$out"
}

mkdir -p "$out"
if complete "$out"; then
  finish
  exit 0
fi

# One builder at a time, across clones too where they share a cache: the Go build cache is
# shared anyway, and two builds at once would only do the same work twice.
lockdir=${cache:-$out}
if ! mkdir -p "$lockdir" 2>/dev/null; then
  say "can't write $lockdir; building without a shared cache"
  cache= lockdir=$out
fi
if command -v flock >/dev/null; then
  exec 9>"$lockdir/.lock"
  if ! flock -n 9; then
    say "another build is running; waiting for it"
    flock 9
  fi
fi

missing() { # prints the programs that are not in $out yet
  local p
  for p in "${programs[@]}"; do [[ -x $out/$p ]] || echo "$p"; done
}

from_cache() {
  [[ -n $cache ]] || return 0
  local p
  for p in $(missing); do
    if [[ -x $cache/$p ]]; then
      link "$cache/$p" "$out/$p"
      say "$p: from $cache"
    fi
  done
}

# setup-envtest carries the same minor release for etcd, kube-apiserver and kubectl. It is
# asked with a short limit, because offline it would only wait for a name that never resolves.
from_envtest() {
  [[ ${PAWL_ENVTEST:-on} != off ]] || return 0
  local minor runtime tool dir p
  minor=$(sed -E 's/^v([0-9]+\.[0-9]+)\..*/\1/' <<<"$kube")
  runtime=$(awk '$1 == "sigs.k8s.io/controller-runtime" { print $2; exit }' "$root/go.mod")
  tool=$root/bin/setup-envtest
  if [[ ! -x $tool ]]; then
    GOBIN=$root/bin GOFLAGS='' timeout 60 \
      go install "sigs.k8s.io/controller-runtime/tools/setup-envtest@$(cut -d. -f1,2 <<<"$runtime")" \
      >/dev/null 2>&1 || { say "setup-envtest can't be installed; building instead"; return 0; }
  fi
  if ! timeout 15 "$tool" list "$minor.x" ${PAWL_ENVTEST_INDEX:+--index "$PAWL_ENVTEST_INDEX"} >/dev/null 2>&1; then
    say "setup-envtest's downloads can't be reached; building instead"
    return 0
  fi
  say "downloading $minor.x with setup-envtest"
  dir=$(timeout 600 "$tool" use "$minor.x" --bin-dir "$root/bin/envtest" -p path \
    ${PAWL_ENVTEST_INDEX:+--index "$PAWL_ENVTEST_INDEX"} 2>/dev/null) || { say "the download failed; building instead"; return 0; }
  for p in $(missing); do
    if [[ -x $dir/$p ]]; then
      link "$dir/$p" "$out/$p"
      say "$p: downloaded"
    fi
  done
}

package_of() {
  case $1 in
    etcd) echo go.etcd.io/etcd/server/v3 ;;
    *) echo "k8s.io/kubernetes/cmd/$1" ;;
  esac
}

progress() { # PROGRAM TOTAL: counts the packages that `go build -v` names
  local n=0 line shown=$SECONDS tty=
  [[ -t 2 ]] && tty=1
  while IFS= read -r line; do
    # What is not an import path is an error message and has to be seen.
    if [[ $line == *' '* || $line == '#'* ]]; then
      printf '%s\n' "$line" >&2
      continue
    fi
    n=$((n + 1))
    if [[ -n $tty ]]; then
      printf '\rkubernetes: %s: compiled %d packages (it has %d, some are compiled already) ' "$1" "$n" "$2" >&2
    elif ((SECONDS - shown >= 30)); then
      say "$1: compiled $n packages (it has $2, some are compiled already)"
      shown=$SECONDS
    fi
  done
  [[ -z $tty ]] || printf '\r\033[K' >&2
}

build() { # PROGRAM
  local package part start=$SECONDS total
  package=$(package_of "$1")
  part=$out/$1.part.$$
  say "$1: building $package (all together take 6 to 15 minutes on two cores, once)"
  total=$(cd "$here" && GOFLAGS=-mod=readonly CGO_ENABLED=0 go list -deps "$package" | wc -l)
  (cd "$here" && CGO_ENABLED=0 GOFLAGS=-mod=readonly nice -n 5 go build -v -p "${PAWL_BUILD_JOBS:-2}" \
    -buildvcs=false -ldflags "-s -w \
      -X k8s.io/component-base/version.gitVersion=$kube \
      -X k8s.io/component-base/version.gitMajor=1 \
      -X k8s.io/component-base/version.gitMinor=$(cut -d. -f2 <<<"$kube") \
      -X k8s.io/client-go/pkg/version.gitVersion=$kube" \
    -o "$part" "$package" 2>&1) | progress "$1" "$total"
  mv -f "$part" "$out/$1"
  say "$1: built in $((SECONDS - start)) s, $(du -h "$out/$1" | cut -f1)"
  [[ -z $cache ]] || link "$out/$1" "$cache/$1"
}

trap 'rm -f "$out"/*.part.$$' EXIT
from_cache
complete "$out" || from_envtest
for program in $(missing); do build "$program"; done
finish
