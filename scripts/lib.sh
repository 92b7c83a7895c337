# What the scripts share: where things are, how lines look, how packages come in. Source it; it sets strict mode.
# shellcheck shell=bash
set -euo pipefail

ROOT="$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)"
BUILD_PACKAGES=(g++ cmake ninja-build ccache pkg-config libboost1.81-dev libgrpc++-dev protobuf-compiler-grpc
  protobuf-compiler libprotobuf-dev libspdlog-dev libfmt-dev nlohmann-json3-dev libcli11-dev prometheus-cpp-dev
  libpcre2-dev libyaml-cpp-dev libssl-dev)
TEST_PACKAGES=(libgtest-dev libgmock-dev libbenchmark-dev libucx-dev python3 python3-venv python3-pip iproute2 iptables curl procps)
SANITIZER_PACKAGES=(clang-16 libclang-rt-16-dev llvm-16)

# A second clone, or the same one elsewhere, finds what was compiled before.
export CCACHE_BASEDIR="$ROOT" CCACHE_NOHASHDIR=1

say() { printf '%s %-9s %s\n' "$(date +%H:%M:%S)" "$1" "${*:2}" >&2; }
die() {
  say error "$*"
  exit 1
}

# Installs what is missing of the Debian packages named. Needs root or sudo only when something is missing.
need_packages() {
  local missing=() package
  for package in "$@"; do
    [[ "$(dpkg-query -W -f='${db:Status-Status}' "$package" 2>/dev/null)" == installed ]] || missing+=("$package")
  done
  ((${#missing[@]})) || return 0
  local sudo=()
  if ((EUID != 0)); then
    command -v sudo >/dev/null || die "missing packages and neither root nor sudo: apt-get install ${missing[*]}"
    sudo=(sudo)
  fi
  say packages "installing ${#missing[@]}: ${missing[*]}"
  local log
  log="$(mktemp)"
  if ! { "${sudo[@]}" apt-get update -qq &&
    "${sudo[@]}" env DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends -qq "${missing[@]}"; } >"$log" 2>&1; then
    tail -n 20 "$log" >&2
    rm -f "$log"
    die "could not install ${missing[*]}"
  fi
  rm -f "$log"
}

# build PRESET [TARGET...]: configures (with CMAKE_ARGS) and builds; the log is shown only when something fails.
CMAKE_ARGS=()
build() {
  local preset="$1" dir log
  shift
  dir="$ROOT/build"
  [[ "$preset" == release ]] || dir="$ROOT/build-$preset"
  mkdir -p "$dir"
  log="$dir/build.log"
  say build "$preset (log: ${log#"$ROOT"/})"
  if ! (cd "$ROOT" && cmake --preset "$preset" "${CMAKE_ARGS[@]}" && cmake --build --preset "$preset" ${1:+--target "$@"}) >"$log" 2>&1; then
    grep -E 'error|Error|FAILED' "$log" | head -n 40 >&2 || true
    tail -n 20 "$log" >&2
    die "the build of preset $preset failed"
  fi
  grep -E '^-- (tutti|  )' "$log" >&2 || die "the configure summary is missing in $log"
}
