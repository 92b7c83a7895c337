#!/usr/bin/env python3
"""Joins what scripts/multi_gpu.sh measured into one JSON object and prints a table.

    bench/multi_gpu_report.py FOLDER --command "scripts/multi_gpu.sh" > result.json

FOLDER holds one file of `tutti bench comm --json` or comm_torch.py a way: gpu.json, cuda_ipc.json, nccl.json, torch.json, ..., with a line
for each run, of which the medians are taken. A way whose
file is missing or empty is named as not measured; it is never left out in silence.
"""

import argparse
import json
import os
import pathlib
import platform
import statistics
import subprocess
import sys

WAYS = ["gpu", "cuda_ipc", "nccl", "torch", "mps", "nodes", "nodes_torch"]


def read(path):
    if not path.exists():
        return None
    runs = [json.loads(line) for line in path.read_text().splitlines() if line.startswith("{")]
    for row, *others in zip(*(run["results"] for run in runs)):
        for key, of_all in (("p50_us", statistics.median), ("min_us", min), ("p99_us", max)):
            row[key] = of_all([row[key], *(other[key] for other in others)])
    return runs[0] if runs else None


def text_of(command):
    try:
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return "unknown"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("--command", default="scripts/multi_gpu.sh")
    parser.add_argument("--commit", default="")
    args = parser.parse_args()
    found = {way: read(args.folder / f"{way}.json") for way in WAYS}
    measured = {way: data for way, data in found.items() if data}
    rows = {}
    for way, data in measured.items():
        for row in data["results"]:
            key = (row["collective"], row["bytes"])
            rows.setdefault(key, {})[way] = {"p50_us": round(row["p50_us"], 2), "min_us": round(row["min_us"], 2),
                                             "p99_us": round(row["p99_us"], 2)}
    results = [{"collective": c, "bytes": b, **by_way} for (c, b), by_way in rows.items()]
    print("  ".join(["collective".ljust(14), "bytes".rjust(10)] + [way.rjust(10) for way in measured]), file=sys.stderr)
    for row in results:
        cells = [f"{row[way]['p50_us']:10.2f}" if way in row else " " * 10 for way in measured]
        print("  ".join([row["collective"].ljust(14), str(row["bytes"]).rjust(10), *cells]), file=sys.stderr)
    json.dump({"what": "collectives of BF16 between GPUs in captured graphs, microseconds a call, medians of nine replays",
               "ways": {way: {key: data[key] for key in ("library", "transport", "ranks")} for way, data in measured.items()},
               "not_measured": [way for way in WAYS if way not in measured],
               "gpus": text_of(["nvidia-smi", "--query-gpu=name,driver_version", "--format=csv,noheader"]).splitlines(),
               "machine": f"{platform.machine()}, {os.cpu_count()} processors, Linux {platform.release()}",
               "commit": args.commit or text_of(["git", "rev-parse", "--short", "HEAD"]), "command": args.command, "results": results},
              sys.stdout, indent=1)
    print()


if __name__ == "__main__":
    main()
