#!/bin/bash
# Builds one group of the real servers: build.sh GROUP LOCKS OUT
#
#   GROUP  containerd | critools | cni | runsc
#   LOCKS  the folder of go.mod/go.sum pairs
#   OUT    the folder to make; it appears only when everything in it is complete
#
# Go fetches the compiler that the locks name (GOTOOLCHAIN) and every module, checked against go.sum. The same inputs
# give the same bytes: no VCS stamp, no paths, no C compiler.
set -euo pipefail

group=$1 locks=$2 out=$3
part=$out.part.$$
trap 'rm -rf "$part"' EXIT

export GOTOOLCHAIN=${GOTOOLCHAIN_FOR_STACK:-go1.27.3} GOFLAGS=-buildvcs=false GOWORK=off CGO_ENABLED=0
cd "$locks/$group"
mkdir -p "$part"

# of MODULE: the version that the lock holds it at.
of() { awk -v module="$1" '$1 == module { print $2; exit } $1 == "require" && $2 == module { print $3; exit }' go.mod; }

# step WHAT COMMAND…: says what is built and how long it took.
step() {
  local what=$1 began=$SECONDS; shift
  printf '  %s … ' "$what" >&2
  "$@"
  printf '%s s\n' $((SECONDS - began)) >&2
}

case $group in
containerd)
  module=github.com/containerd/containerd/v2
  flags="-s -w -X $module/version.Version=$(of $module) -X $module/version.Package=$module"
  tags=urfave_cli_no_docs,osusergo,netgo,static_build
  step "containerd and ctr $(of $module)" go build -trimpath -tags $tags -ldflags "$flags" -o "$part/" $module/cmd/containerd $module/cmd/ctr
  step "containerd-shim-runc-v2 $(of $module)" go build -trimpath -tags $tags,no_grpc -ldflags "$flags" -o "$part/" $module/cmd/containerd-shim-runc-v2
  ;;
critools)
  module=sigs.k8s.io/cri-tools
  flags="-s -w -X $module/pkg/version.Version=$(of $module | tr -d v)"
  step "crictl $(of $module)" go build -trimpath -ldflags "$flags" -o "$part/" $module/cmd/crictl
  # A test binary: that is how critest is made.
  step "critest $(of $module)" go test -c -trimpath -ldflags "$flags" -o "$part/critest" $module/cmd/critest
  ;;
cni)
  module=github.com/containernetworking/plugins
  plugins=(main/bridge main/loopback ipam/host-local meta/portmap meta/firewall)
  step "CNI plugins $(of $module)" go build -trimpath -ldflags "-s -w -X $module/pkg/utils/buildversion.BuildVersion=$(of $module)" \
    -o "$part/" "${plugins[@]/#/$module/plugins/}"
  ;;
runsc)
  module=gvisor.dev/gvisor
  step "runsc $(of $module)" go build -trimpath -ldflags "-s -w" -o "$part/runsc" $module/runsc
  step "containerd-shim-runsc-v1" go build -trimpath -ldflags "-s -w" -o "$part/containerd-shim-runsc-v1" $module/shim
  ;;
*)
  echo "build.sh: no group $group; there are containerd, critools, cni, runsc." >&2
  exit 2
  ;;
esac

mv -T "$part" "$out"
