#!/bin/bash
# Builds the image with buildah alone: no daemon, no registry, a base made of Debian's packages.
#   deploy/build_without_engine.sh FOLDER      FOLDER holds base, storage and result
# Needs root, and: apt-get install --no-install-recommends buildah crun mmdebstrap fuse-overlayfs
# Prints where the image's root is mounted; with that as IKEBANA_TEST_ROOT the cluster's test
# takes its containers from the image (make test-cluster).
set -euo pipefail
project=$(cd "$(dirname "$0")/.." && pwd)
mkdir -p "$1"
folder=$(cd "$1" && pwd)
store=(--root "$folder/store" --runroot "$folder/run" --storage-driver overlay)

if ! buildah "${store[@]}" inspect --type image localhost/base:1 >/dev/null 2>&1; then
  mmdebstrap --variant=minbase --include=ca-certificates bookworm "$folder/base.tar" >&2
  made=$(buildah "${store[@]}" from scratch)
  buildah "${store[@]}" add "$made" "$folder/base.tar" / >&2
  buildah "${store[@]}" commit --rm "$made" localhost/base:1 >&2
fi

# Certificates of this machine, for one that reaches package registries through a proxy.
certificates=/etc/ssl/certs/ca-certificates.crt
buildah "${store[@]}" bud --isolation chroot --pull=never --build-arg BASE=localhost/base:1 \
  --volume "$certificates:/run/ca.crt:ro" --build-arg PIP_CERT=/run/ca.crt \
  --ignorefile "$project/deploy/Dockerfile.dockerignore" --file "$project/deploy/Dockerfile" \
  --tag localhost/ikebana:dev "$project" >&2
buildah "${store[@]}" mount "$(buildah "${store[@]}" from --pull=never localhost/ikebana:dev)"
