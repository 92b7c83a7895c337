#!/usr/bin/env bash
# Builds the program and leaves it at build/tutti. It only calls the preset: scripts/build.sh [PRESET]
source "$(dirname "$0")/lib.sh"
need_packages "${BUILD_PACKAGES[@]}" "${TEST_PACKAGES[@]}"
build "${1:-release}"
