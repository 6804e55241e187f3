#!/bin/sh
# Radserve on an NVIDIA GPU against itself on the CPU and against ONNX Runtime in a plain C++ loop: agreement,
# throughput by batch and concurrency, mixed shapes, memory over 10,000 runs; one table on standard output.
#
#   bench/gpu.sh [--quick]
#
# Needs node, the built project (npm ci && npm run build && npm run setup:gpu) and CUDA 13 with cuDNN 9.
# Ends with 3 where there is no GPU, with 2 where something else is missing, with 1 where CPU and GPU disagree.
set -eu
root=$(cd "$(dirname "$0")/.." && pwd)
release="$root/build/Release"

gpu=$(nvidia-smi --query-gpu=name,driver_version,memory.total --format=csv,noheader 2>/dev/null | head -n 1) || gpu=
if [ -z "$gpu" ]; then
  echo "There is no NVIDIA GPU here (nvidia-smi names none): nothing was measured."
  exit 3
fi
for file in "$release/addon.node" "$release/raw_ort" "$root/dist/bench/gpu.js"; do
  [ -e "$file" ] && continue
  echo "$file is missing: run npm ci && npm run build." >&2
  exit 2
done
if [ ! -e "$release/libonnxruntime_providers_cuda.so" ]; then
  echo "The CUDA execution provider is not in $release: run npm run setup:gpu." >&2
  exit 2
fi

echo "$gpu"
node "$root/dist/bench/gpu.js" --raw "$release/raw_ort" "$@"
