#!/usr/bin/env python3
"""What the kernels of a decode step take, each alone, by the hardware's counters (ncu), the costliest first.

    bench/gpu_kernels.py --build build-cuda [--shape llama-3-8b] [--quantization fp8] [--batches 1,32] > kernels.json

bench_worker decodes with random weights; once without ncu, so that kernels are chosen, then with it over three steps. Under ncu no
kernel overlaps another, which programmatic dependent launch has them do otherwise. `tb_per_s` is what the memory gave; its limit for a
plain sum is 4.20 on an H200.
"""
import argparse
import collections
import csv
import json
import os
import pathlib
import re
import statistics
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[1]
# Few enough for one pass: for a second one ncu would have to keep and bring back what a kernel writes.
METRICS = {"gpu__time_duration.sum": "us", "dram__bytes_read.sum": "mb_read", "dram__throughput.avg.pct_of_peak_sustained_elapsed": "dram_percent"}
SCALE = {"us": 1e-3, "mb_read": 1e-6}  # from nanoseconds and bytes
STEPS = 3
# Rehearsals and the prompts' steps come before the steps in question, of which there are enough.
SKIPPED, SEEN = 4500, 175 * STEPS


def short(name):
    name = re.sub(r"\(anonymous namespace\)::|<unnamed>::|tutti::cuda::|^void |\((int|bool)\)", "", name)
    return re.sub(r"\((?!anon).*$", "", name)[:110]


def kernels_of(text):
    rows = csv.DictReader(text[text.index('"ID"'):].splitlines())
    launches = collections.defaultdict(dict)
    for row in rows:
        launch = launches[row["ID"]]
        launch["kernel"], launch["grid"] = short(row["Kernel Name"]), row["Grid Size"].replace(" ", "")
        field = METRICS[row["Metric Name"]]
        launch[field] = float(row["Metric Value"].replace(",", "")) * SCALE.get(field, 1)
    groups = collections.defaultdict(list)
    for launch in launches.values():
        groups[launch["kernel"], launch["grid"]].append(launch)
    table = []
    for (kernel, grid), all_ in groups.items():
        median = {field: statistics.median(launch[field] for launch in all_) for field in METRICS.values()}
        table.append({"kernel": kernel, "grid": grid, "a_step": round(len(all_) / STEPS, 1), **{field: round(value, 2) for field, value in median.items()},
                      "tb_per_s": round(median["mb_read"] / median["us"], 2), "us_a_step": round(median["us"] * len(all_) / STEPS, 1)})
    return sorted(table, key=lambda row: -row["us_a_step"])


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", default="build-cuda")
    parser.add_argument("--shape", default="llama-3-8b")
    parser.add_argument("--quantization", default="")
    parser.add_argument("--batches", default="1,32")
    parser.add_argument("--ncu", default="ncu")
    parser.add_argument("--commit", default="")
    args = parser.parse_args()
    commit = args.commit or subprocess.run(["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True).stdout.strip()
    results = []
    with tempfile.TemporaryDirectory() as folder:
        environment = dict(os.environ, TUTTI_HOME=folder)
        model = f"{folder}/model"
        subprocess.run([sys.executable, ROOT / "scripts/make_random_model.py", model, "--shape", args.shape], check=True, stdout=subprocess.DEVNULL)
        for batch in args.batches.split(","):
            worker = [f"{args.build}/bench/bench_worker", model, "--load-format", "dummy", "--device", "cuda", "--prompts", "0", "--batches", batch,
                      "--max-num-seqs", batch, "--steps", "72"] + (["--quantization", args.quantization] if args.quantization else [])
            subprocess.run(worker, env=environment, check=True, stdout=subprocess.DEVNULL)
            ncu = [args.ncu, "--csv", "--print-units", "base", "--clock-control", "none", "--cache-control", "none", "--graph-profiling", "node",
                   "--metrics", ",".join(METRICS), "--launch-skip", str(SKIPPED), "--launch-count", str(SEEN)]
            done = subprocess.run([*ncu, *worker], env=environment, capture_output=True, text=True)
            if '"ID"' not in done.stdout:
                sys.exit(f"ncu gave no table: {done.stdout[-2000:]}{done.stderr[-2000:]}")
            results.append({"batch": int(batch), "kernels": kernels_of(done.stdout)})
    gpu = subprocess.run(["nvidia-smi", "--query-gpu=name,driver_version", "--format=csv,noheader"], capture_output=True, text=True).stdout.split("\n")[0]
    json.dump({"what": "kernels of a decode step, each alone, medians of three steps, context about 512", "commit": commit, "gpu": gpu, "shape": args.shape,
               "quantization": args.quantization or "none",
               "command": "bench/gpu_kernels.py " + " ".join(os.path.basename(a) if a.startswith("/") else a for a in sys.argv[1:]),
               "results": results}, sys.stdout, indent=1)
    print()


if __name__ == "__main__":
    main()
