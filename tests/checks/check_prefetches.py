#!/usr/bin/env python3
"""Kernels that stream weights ask memory for what they will read: the compiler has not dropped their prefetches.

    check_prefetches.py OBJDUMP LIBRARY

GCC takes a function that only prefetches for one without effect and drops calls of it, unless it was inlined before.
"""
import re
import subprocess
import sys

# One row of weights in blocks, of one panel and of several in turn, and plain weights, at the levels with AVX-512.
STREAMS = re.compile(r"quant_tile_product<tutti::cpu::Avx512<(?:true|false)>, tutti::cpu::Q\w+, 1, \d>|"
                     r"plain_panel<tutti::cpu::Avx512<(?:true|false)>, tutti::cpu::PlainBF16>")


def main():
    objdump, library = sys.argv[1:]
    listing = subprocess.run([objdump, "-dC", "--no-show-raw-insn", library], capture_output=True, text=True, check=True).stdout
    found, lacking = 0, []
    for function in re.split(r"\n(?=[0-9a-f]+ <)", listing):
        name = function.split("\n", 1)[0]
        if STREAMS.search(name):
            found += 1
            if "prefetch" not in function:
                lacking.append(STREAMS.search(name).group(0))
    if not found:
        sys.exit(f"{library}: none of the kernels that stream weights was found")
    for name in sorted(set(lacking)):
        print(f"{name}: no prefetch in it")
    if not lacking:
        print(f"{found} kernels prefetch")
    sys.exit(1 if lacking else 0)


if __name__ == "__main__":
    main()
