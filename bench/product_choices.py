#!/usr/bin/env python3
"""A decode step under every combination of kernels of its products, and as timing chooses them.

    bench/product_choices.py --build build-cuda [--tokens 56,64] [--dtype bf16|fp8] [--rounds 2] > choices.json

Each combination of tiles and the library for q, k and v, output, gate and up, down, and head is given to bench_ops_cuda as a file
of choices; the order of combinations is turned round from round to round. A combination that the program no longer offers (few
tokens always take tiles) has the time of the one that it takes instead.
"""
import argparse
import itertools
import json
import os
import pathlib
import subprocess
import sys
import tempfile

PRODUCTS = {(6144, 4096): "qkv", (4096, 4096): "out", (28672, 4096): "gate_up", (4096, 14336): "down", (128256, 4096): "head"}
KERNELS = {2: "tiles", 3: "library"}  # numbers of the file (src/ops/cuda/product_choice.h)
ROWS, COLUMNS, TOKENS, NORM, ROPE, LEFT = 3, 4, 5, 8, 9, 10  # places in a key


def name_of(key):
    return PRODUCTS.get((key[ROWS], key[COLUMNS]))


def with_choice(base, tokens, choice):
    """The file's text in which products of these numbers of tokens take `choice`, with and without a norm and the like."""
    kept = [row for row in base["products"] if not (name_of(row[0]) and row[0][TOKENS] in tokens)]
    keys = set()
    for key, _ in base["products"]:
        name = name_of(key)
        if name is None or key[TOKENS] not in tokens:
            continue
        for norm, rope, left in itertools.product((0, 1), (0, 1) if name == "qkv" else (0,), (0, 1) if name in ("out", "down") else (0,)):
            other = list(key)
            other[NORM], other[ROPE], other[LEFT] = norm, rope, left
            keys.add(tuple(other))
    return json.dumps({**base, "products": kept + [[list(key), choice[name_of(key)]] for key in sorted(keys)]})


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", default="build-cuda")
    parser.add_argument("--tokens", default="56,64")
    parser.add_argument("--dtype", default="bf16")
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--commit", default="")
    args = parser.parse_args()
    tokens = [int(t) for t in args.tokens.split(",")]
    commit = args.commit or subprocess.run(["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True).stdout.strip()
    with tempfile.TemporaryDirectory() as folder:
        file, report = pathlib.Path(folder) / "choices.json", pathlib.Path(folder) / "report.json"

        def step_ms():
            subprocess.run([f"{args.build}/bench/bench_ops_cuda", "--shape", "llama-3-8b", "--parts", "decode", "--batches", args.tokens, "--dtype",
                            args.dtype, "--context", "512", "--choices", file, "--json", report], stdout=subprocess.DEVNULL, check=True)
            return {row["batch"]: round(row["ms"], 3) for row in json.loads(report.read_text())["decode"]}

        timed = [step_ms()]
        base = json.loads(file.read_text())
        for _ in range(1, args.rounds):
            file.unlink()
            timed.append(step_ms())
        combinations = list(itertools.product(KERNELS, repeat=len(PRODUCTS)))
        found = {combination: [] for combination in combinations}
        for round_ in range(args.rounds):
            for combination in combinations[:: -1 if round_ % 2 else 1]:
                file.write_text(with_choice(base, tokens, dict(zip(PRODUCTS.values(), combination))))
                found[combination].append(step_ms())
    results = []
    for count in tokens:
        rows = [{**{name: KERNELS[k] for name, k in zip(PRODUCTS.values(), combination)}, "ms": [times[count] for times in all_]}
                for combination, all_ in found.items()]
        results.append({"tokens": count, "as_timing_chooses_ms": [times[count] for times in timed], "combinations": sorted(rows, key=lambda row: min(row["ms"]))})
    json.dump({"what": "a decode step of Llama-3-8B's shape, 512 tokens of context, as a graph, by the kernels of its products; rounds in ms", "commit": commit,
               "command": "bench/product_choices.py " + " ".join(os.path.basename(a) if a.startswith("/") else a for a in sys.argv[1:]),
               "dtype": args.dtype, "results": results}, sys.stdout, indent=1)
    print()


if __name__ == "__main__":
    main()
