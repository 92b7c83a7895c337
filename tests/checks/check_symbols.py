#!/usr/bin/env python3
"""Checks that no program or library under a folder asks for a newer symbol of the C library than given (2.35 is that of
Ubuntu 22.04), nor of the compiler's libraries than Ubuntu 22.04 has. And that each finds what it needs in the folder or among
the libraries that every system has.

    check_symbols.py FOLDER 2.35
"""
import pathlib
import re
import subprocess
import sys

COMPILERS = {"GLIBCXX": "3.4.30", "CXXABI": "1.3.13", "GCC": "12.0.0"}
SYSTEM = re.compile(r"^(ld-linux|libc|libm|libmvec|libdl|librt|libpthread|libresolv|libstdc\+\+|libgcc_s)[.-]")


def version(text):
    return tuple(int(part) for part in text.split("."))


def main():
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    folder, most = pathlib.Path(sys.argv[1]), {"GLIBC": sys.argv[2], **COMPILERS}
    files = [f for f in sorted(folder.rglob("*")) if f.is_file() and f.read_bytes()[:4] == b"\x7fELF"]
    if not files:
        sys.exit(f"no programs under {folder}")
    names, problems = {f.name for f in files}, []
    for file in files:
        dump = subprocess.run(["objdump", "-p", "-T", str(file)], capture_output=True, text=True, check=True).stdout
        for name, limit in most.items():
            for symbol in sorted(set(re.findall(rf"\b{name}_(\d[.\d]*)", dump)), key=version):
                if version(symbol) > version(limit):
                    problems.append(f"{file}: needs {name}_{symbol}, expected at most {limit}")
        for needed in re.findall(r"NEEDED\s+(\S+)", dump):
            if needed not in names and not SYSTEM.match(needed):
                problems.append(f"{file}: needs {needed}, which is not beside it")
    if problems:
        sys.exit("\n".join(problems))
    print(f"{len(files)} files need at most GLIBC {sys.argv[2]} and what lies beside them")


if __name__ == "__main__":
    main()
