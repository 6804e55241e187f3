#!/bin/sh
# Radserve on an NVIDIA GPU against itself on the CPU and against ONNX Runtime in a plain C++ loop, with CUDA graphs and
# without: agreement, throughput by batch and concurrency, mixed shapes, windows, how busy the GPU is, memory, reloads, files
# to answers; PyTorch where python3 has it. Half a minute and eight minutes; on standard output, and last a line of pass or
# FAIL for each goal.
#
#   bench/gpu.sh [--quick]                  where the project is built, with npm run setup:gpu
#   sh FOLDER/native/gpu.sh [--quick]       on a bare machine, with what bench/gpu-pack.sh prepared: numbers first
#   sh FOLDER/node/gpu.sh [--quick]         then, on the same machine, the bench
#
# What was packed is unpacked into RADSERVE_GPU_FOLDER (/tmp/radserve-gpu).
# Needs CUDA 13 with cuDNN 9, also as packages of Python. Ends with 3 where there is no GPU, with 2 where something else
# is missing, with 1 where CPU and GPU disagree. RADSERVE_GPU_PROVIDER=cpu tries the steps on a machine without a GPU.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
unpacked=${RADSERVE_GPU_FOLDER:-/tmp/radserve-gpu}
provider=${RADSERVE_GPU_PROVIDER:-cuda}

if [ "$provider" = cuda ]; then
  gpu=$(nvidia-smi --query-gpu=name,driver_version,memory.total --format=csv,noheader 2>/dev/null | head -n 1) || gpu=
  if [ -z "$gpu" ]; then
    echo "There is no NVIDIA GPU here (nvidia-smi names none): nothing was measured."
    exit 3
  fi
  echo "$gpu"
fi

need() {
  [ -e "$1" ] && return
  echo "$1 is missing: $2." >&2
  exit 2
}

# unpack SUFFIXED TARGET: once.
unpack() {
  [ -e "$2" ] || { xz -d --stdout "$1" >"$2.new" && mv "$2.new" "$2"; }
}

# cuDNN and cuBLAS may be packages of Python: their folders are named to the loader.
python_libraries() {
  for python in python3 python; do
    command -v "$python" >/dev/null 2>&1 || continue
    "$python" -c 'import glob, site, sys
print(":".join(sorted(f for p in site.getsitepackages() + [site.getusersitepackages()] for f in glob.glob(p + "/nvidia/*/lib"))))'
    return
  done
}
LD_LIBRARY_PATH="${LD_LIBRARY_PATH:-}:$(python_libraries):/usr/local/cuda/lib64"
export LD_LIBRARY_PATH

check_numbers() {
  runs=30
  [ "${1:-}" = --quick ] && runs=5
  "$unpacked/gpu_check" "$here/graphs/graphs.txt" "$provider" "$runs"
  if [ "$provider" = cuda ] && command -v compute-sanitizer >/dev/null 2>&1; then
    # Every access of every kernel: some hundred times slower
    grep small_cnn.onnx "$here/graphs/graphs.txt" | head -n 1 | sed 's| 1x256x256.*||' >"$here/graphs/sanitizer.txt"
    compute-sanitizer --tool memcheck --error-exitcode 1 "$unpacked/gpu_check" "$here/graphs/sanitizer.txt" cuda 2
  else
    echo "compute-sanitizer was not run: it is not here, or there is no GPU."
  fi
}

if [ -e "$here/gpu_check" ]; then
  mkdir -p "$unpacked"
  for library in "$here"/*.xz; do unpack "$library" "$unpacked/$(basename "$library" .xz)"; done
  for program in gpu_check raw_ort; do
    cp "$here/$program" "$unpacked/$program"
    chmod 755 "$unpacked/$program"
  done
  check_numbers "$@"
  exit 0
fi

if [ -e "$here/radserve.tar.xz" ]; then
  need "$unpacked/raw_ort" "run native/gpu.sh on this machine first"
  root="$unpacked/radserve"
  if [ ! -e "$root/package.json" ]; then
    rm -rf "$root.new"
    mkdir -p "$root.new"
    xz -d --stdout "$here/radserve.tar.xz" | tar -x -C "$root.new"
    for file in "$unpacked"/libonnxruntime* "$unpacked/raw_ort"; do cp "$file" "$root.new/build/Release/"; done
    mv "$root.new" "$root"
  fi
  unpack "$here/node.xz" "$unpacked/node"
  chmod 755 "$unpacked/node"
  node="$unpacked/node"
else
  root=$(cd "$here/.." && pwd)
  node=node
  [ -e "$root/build/Release/raw_ort" ] || cmake --build "$root/build" --target raw_ort
fi

release="$root/build/Release"
for file in "$release/addon.node" "$release/raw_ort" "$root/dist/bench/gpu.js"; do
  need "$file" "run npm ci && npm run build"
done
[ "$provider" = cpu ] || need "$release/libonnxruntime_providers_cuda.so" "run npm run setup:gpu"
torch=$root/bench/gpu_torch.py
[ -e "$torch" ] && [ "$provider" = cuda ] && set -- --torch "$torch" "$@"
"$node" "$root/dist/bench/gpu.js" --raw "$release/raw_ort" --provider "$provider" "$@"
