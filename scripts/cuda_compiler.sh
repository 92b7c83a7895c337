#!/usr/bin/env bash
# Finds a CUDA 13 compiler and prints its nvcc as the last line of stdout: the one in /usr/local/cuda or PATH, or else
# NVIDIA's wheels from the Python package index, unpacked (200 MB kept) in $TUTTI_CACHE (default: $XDG_CACHE_HOME/tutti
# or ~/.cache/tutti). Nothing is installed; a GPU is not needed.
#
# Exit codes: 0 the path was printed; 69 there is none and no package registry can be reached; 1 anything else.
# shellcheck source=scripts/lib.sh
source "$(dirname "$0")/lib.sh"

readonly WHEELS=(nvidia-cuda-nvcc==13.0.88 nvidia-cuda-crt==13.0.88 nvidia-nvvm==13.0.88 nvidia-cuda-runtime==13.0.96
  nvidia-cuda-cccl==13.0.85 nvidia-cublas==13.0.2.14)
readonly UNAVAILABLE=69

if [[ -x /usr/local/cuda/bin/nvcc ]]; then
  echo /usr/local/cuda/bin/nvcc
  exit 0
fi
if command -v nvcc; then exit 0; fi

CACHE="${TUTTI_CACHE:-${XDG_CACHE_HOME:-${HOME:?neither TUTTI_CACHE nor HOME is set}/.cache}/tutti}"
mkdir -p "$CACHE"
CACHE="$(cd "$CACHE" && pwd)"
TOOLKIT="$CACHE/cuda-13.0"
exec {lock}>"$CACHE/.cuda_compiler.lock"
flock --wait 1200 "$lock" || die "another cuda_compiler.sh holds $CACHE/.cuda_compiler.lock for 20 minutes"

if [[ ! -e "$TOOLKIT" ]]; then
  PARTIAL="$(mktemp -d "$CACHE/.cuda_compiler.XXXXXX")"
  trap 'rm -rf "$PARTIAL"' EXIT
  say cuda "no nvcc here: downloading NVIDIA's compiler and headers (525 MB) with pip"
  if ! timeout 1000 python3 -m pip download --no-deps --only-binary :all: --no-cache-dir --disable-pip-version-check \
    --no-input --timeout 20 --retries 1 --dest "$PARTIAL" "${WHEELS[@]}" >"$PARTIAL/pip.log" 2>&1; then
    say cuda "no package registry gave ${WHEELS[*]}: $(grep -i error "$PARTIAL/pip.log" | tail -n 1 | cut -c 1-200)"
    exit "$UNAVAILABLE"
  fi
  say cuda "unpacking"
  for wheel in "$PARTIAL"/*.whl; do python3 -m zipfile -e "$wheel" "$PARTIAL/wheels"; done
  # cuBLASLt is opened at run time; only its headers are compiled against.
  rm -f "$PARTIAL"/wheels/nvidia/cu13/lib/libcublas* "$PARTIAL"/wheels/nvidia/cu13/lib/libnvblas*
  chmod -R u+rwX,go+rX "$PARTIAL/wheels"
  find "$PARTIAL/wheels/nvidia/cu13/bin" "$PARTIAL/wheels/nvidia/cu13/nvvm/bin" -type f -exec chmod 755 {} +
  ln -s lib "$PARTIAL/wheels/nvidia/cu13/lib64"  # where nvcc looks
  mv "$PARTIAL/wheels/nvidia/cu13" "$TOOLKIT"
  say cuda "kept in $TOOLKIT"
fi
printf '%s\n' "$TOOLKIT/bin/nvcc"
