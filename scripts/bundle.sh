#!/usr/bin/env bash
# Makes a folder that runs where nothing is installed: the program with its CUDA kernels and every library it needs beside
# it, for Ubuntu 22.04, Debian 12 and Ubuntu 24.04. CUDA's own libraries (cuBLASLt, NCCL) are opened from the host.
#
#   scripts/bundle.sh [FOLDER]      default: bundle/tutti; CUDA_ARCHS="90a" for fewer GPUs (default: all, takes longer)
source "$(dirname "$0")/lib.sh"

OUT="$(realpath -m "${1:-$ROOT/bundle/tutti}")"
CUDA_ARCHS="${CUDA_ARCHS:-80;86;89;90a;100;120}"
MOST_GLIBC=2.35
MOST_MIB=60
# Of the C and C++ run time, which every system brings in its own version.
SYSTEM='^(linux-vdso|ld-linux|libc|libm|libmvec|libdl|librt|libpthread|libresolv|libstdc\+\+|libgcc_s)[.-]'

need_packages "${BUILD_PACKAGES[@]}" python3
CMAKE_ARGS=(-DTUTTI_CUDA_ARCHITECTURES="$CUDA_ARCHS" -DTUTTI_TESTS=OFF -DTUTTI_BENCH=OFF)
build cuda tutti

rm -rf "$OUT"
mkdir -p "$OUT/lib"
cp "$ROOT/build-cuda/tutti" "$ROOT/LICENSE" "$OUT/"
strip "$OUT/tutti"
while read -r name path; do
  [[ "$name" =~ $SYSTEM ]] || cp -L "$path" "$OUT/lib/$name"
done < <(ldd "$ROOT/build-cuda/tutti" | awk '$2 == "=>" {print $1, $3}')

python3 "$ROOT/tests/checks/check_symbols.py" "$OUT" "$MOST_GLIBC"
size="$(du -sm "$OUT" | cut -f1)"
((size < MOST_MIB)) || die "$OUT has $size MiB, expected less than $MOST_MIB"
"$OUT/tutti" --version >/dev/null || die "$OUT/tutti does not start"
tar -C "$(dirname "$OUT")" -czf "$OUT.tar.gz" "$(basename "$OUT")"
say bundle "$OUT: $size MiB, $(find "$OUT/lib" -type f | wc -l) libraries; $OUT.tar.gz"
