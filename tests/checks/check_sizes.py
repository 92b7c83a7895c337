#!/usr/bin/env python3
"""No source file has more than 500 lines (tables of data in *.inc and generated fixtures excepted)."""
import pathlib
import sys

LIMIT = 500
FOLDERS = ["apps", "bench", "cmake", "python", "scripts", "src", "tests"]
SUFFIXES = {".h", ".cc", ".cu", ".cuh", ".py", ".sh", ".cmake", ".proto"}


def main():
    root = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else ".").resolve()
    paths = [p for folder in FOLDERS for p in sorted((root / folder).rglob("*")) if p.suffix in SUFFIXES and p.is_file()]
    if not paths:
        sys.exit(f"no sources under {root}")
    long = [(len(p.read_text().splitlines()), p) for p in paths]
    long = [(n, p) for n, p in long if n > LIMIT]
    for n, p in sorted(long, reverse=True):
        print(f"{p.relative_to(root)}: {n} lines, at most {LIMIT}")
    if not long:
        print(f"{len(paths)} files have at most {LIMIT} lines")
    sys.exit(1 if long else 0)


if __name__ == "__main__":
    main()
