#!/usr/bin/env bash
# Installs what the tests need, builds, and runs everything that CI runs.
#
#   scripts/test.sh                 all stages
#   scripts/test.sh --fast          the unit label of the release build only
#   scripts/test.sh STAGE...        some of: release asan tsan cuda
#
# Each stage has a budget of minutes on two cores; the table at the end shows what it took.
source "$(dirname "$0")/lib.sh"

STAGES=(release asan tsan cuda)
declare -A BUDGET=([packages]=4 [release]=15 [asan]=20 [tsan]=8 [cuda]=10)
TSAN_TESTS=(base_test comm_test engine_test cluster_test server_test)
FUZZ_SECONDS="${FUZZ_SECONDS:-60}"
REPORT=()
FAILED=()

timed() {
  local stage="$1" start=$SECONDS status=ok
  shift
  "$@" || status=FAILED
  [[ "$status" == ok ]] || FAILED+=("$stage")
  REPORT+=("$(printf '%-9s %5d s of %4d s  %s' "$stage" $((SECONDS - start)) $((BUDGET[$stage] * 60)) "$status")")
}

packages() {
  need_packages "${BUILD_PACKAGES[@]}" "${TEST_PACKAGES[@]}"
  if ((FULL)); then need_packages "${SANITIZER_PACKAGES[@]}"; fi
}

release() {
  build release || return 1
  (cd "$ROOT" && ctest --preset full)
}

# Unit tests under address and undefined-behaviour sanitizers; then every fuzzer from its seeds.
asan() {
  CMAKE_ARGS=(-DTUTTI_FUZZ_SECONDS="$FUZZ_SECONDS")
  build asan unit_tests fuzz_tests || return 1
  CMAKE_ARGS=()
  (cd "$ROOT" && ctest --preset asan -L 'unit|fuzz' -j "$(nproc)" --no-tests=error)
}

tsan() {
  build tsan "${TSAN_TESTS[@]}" || return 1
  (cd "$ROOT" && ctest --preset tsan -R "^($(IFS='|'; echo "${TSAN_TESTS[*]}"))\$" --no-tests=error)
}

# Compiles the CUDA kernels and links everything that runs on them. That needs the compiler, not a GPU.
cuda() {
  local nvcc status=0
  nvcc="$("$ROOT/scripts/cuda_compiler.sh" | tail -n 1)" || status=$?
  if ((status == 69)) && [[ "${CI:-}" != true ]]; then
    say cuda "not compiled: no nvcc in PATH or /usr/local/cuda, and none to download"
    return 0
  fi
  ((status == 0)) || return 1
  CMAKE_ARGS=(-DCMAKE_CUDA_COMPILER="$nvcc")
  build cuda tutti golden_models ops_conformance bench_ops_cuda bench_worker weights_test || return 1
  CMAKE_ARGS=()
}

FULL=1
if [[ "${1:-}" == --fast ]]; then
  FULL=0
  timed packages packages
  build release
  cd "$ROOT" && exec ctest --preset unit
fi
(($#)) && STAGES=("$@")
timed packages packages
for stage in "${STAGES[@]}"; do
  [[ -n "${BUDGET[$stage]:-}" ]] || die "no stage $stage; there are: ${!BUDGET[*]}"
  say stage "$stage"
  timed "$stage" "$stage"
done
printf '\n%s\n' "${REPORT[@]}"
if ((${#FAILED[@]})); then die "failed: ${FAILED[*]}"; fi
say done "all stages passed"
