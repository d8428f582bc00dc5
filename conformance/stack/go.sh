#!/bin/bash
# Prints the folder of a Go that can build the real servers: go.sh FOLDER
#
# From 1.21 on Go fetches the version that a lock names by itself. An older one, such as Debian 12's, fetches it here,
# as the module that it is, checked as every module is, into FOLDER.
set -euo pipefail

version=1.27.3
folder=$1

if [[ $(go version) =~ go1\.([0-9]+) ]] && (( BASH_REMATCH[1] >= 21 )); then
  dirname "$(command -v go)"
  exit
fi

if [[ ! -x $folder/bin/go ]]; then
  echo "  Go $version …" >&2
  module=golang.org/toolchain@v0.0.1-go$version.$(go env GOOS)-$(go env GOARCH)
  fetched=$(cd / && GO111MODULE=on GOFLAGS=-mod=mod go mod download -json "$module" | sed -n 's/^\t"Dir": "\(.*\)",\?$/\1/p')
  rm -rf "$folder.part"
  cp -r --no-preserve=mode,ownership "$fetched" "$folder.part"
  # A module's archive keeps no modes, and no go.mod but its own.
  chmod +x "$folder.part"/bin/* "$folder.part"/pkg/tool/*/*
  find "$folder.part" -name _go.mod -execdir mv {} go.mod \;
  mv -T "$folder.part" "$folder"
fi
echo "$folder/bin"
