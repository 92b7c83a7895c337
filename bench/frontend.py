#!/usr/bin/env python3
"""The front end over an engine that returns at once, and a scheduler step with many requests: medians of five runs.

    bench/frontend.py --build build > bench/results/frontend.json
    bench/frontend.py --build build --soak 600 > bench/results/frontend_soak.json    1,000 streams, a token each 50 ms

Prints JSON and ends with 1 when a figure misses its bar: 20,000 streamed tokens/s; a scheduler step at 256 running and
1,000 waiting requests p99 under 200 us; in the soak no gap over 5 s and memory at the end within 2% of minute 2.
"""
import argparse
import json
import os
import platform
import shlex
import statistics
import subprocess
import sys

ROUNDS = 5


def run_json(command, timeout=900):
    done = subprocess.run(command, capture_output=True, text=True, timeout=timeout)
    lines = [line for line in done.stdout.splitlines() if line.startswith("{")]
    if done.returncode != 0 or not lines:
        sys.exit(f"{shlex.join(command)}\nended with {done.returncode}:\n{done.stdout}{done.stderr}")
    return json.loads(lines[-1])


def summary(runs, key):
    values = [run[key] for run in runs]
    return {"median": statistics.median(values), "least": min(values), "most": max(values)}


def throughput(build):
    frontend = [f"{build}/bench/bench_frontend", "--seconds", "4"]
    scheduler = [f"{build}/bench/bench_scheduler", "256", "1000", "3000"]
    runs = [(run_json(frontend), run_json(scheduler)) for _ in range(ROUNDS)]
    fronts, schedulers = [a for a, _ in runs], [b for _, b in runs]
    return {
        "rounds": ROUNDS,
        "frontend": {"command": shlex.join(frontend), "streams": fronts[0]["streams"],
                     **{key: summary(fronts, key) for key in ("tokens_per_s", "events_per_s", "ttft_p50_ms", "max_gap_ms")}},
        "scheduler": {"command": shlex.join(scheduler), **{key: summary(schedulers, key) for key in ("p50_us", "p99_us", "max_us")}},
    }


def soak(build, seconds):
    command = [f"{build}/bench/bench_frontend", "--streams", "1000", "--step-us", "50000", "--seconds", str(seconds)]
    run = run_json(command, timeout=seconds + 120)
    grown = run["rss_end_mib"] / run["rss_early_mib"] - 1
    return {"soak": {"command": shlex.join(command), **run, "rss_growth_percent": round(100 * grown, 2)}}


def misses(result):
    found = []
    if "frontend" in result and result["frontend"]["tokens_per_s"]["median"] < 20000:
        found.append("fewer than 20,000 tokens/s")
    if "scheduler" in result and result["scheduler"]["p99_us"]["median"] >= 200:
        found.append("scheduler p99 of 200 us or more")
    if "soak" in result and result["soak"]["max_gap_ms"] > 5000:
        found.append("a gap over 5 s")
    if "soak" in result and abs(result["soak"]["rss_growth_percent"]) > 2:
        found.append("memory changed by more than 2%")
    return found


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--build", default="build")
    parser.add_argument("--soak", type=int, metavar="SECONDS", help="a long run in place of the short ones")
    args = parser.parse_args()
    commit = subprocess.run(["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True).stdout.strip()
    result = {
        "what": "front end and scheduler over an engine that returns at once",
        "commit": commit,
        "machine": f"{platform.machine()}, {os.cpu_count()} processors, {platform.system()} {platform.release()}",
        "command": "bench/frontend.py" + (f" --build {args.build}") + (f" --soak {args.soak}" if args.soak else ""),
        **(soak(args.build, args.soak) if args.soak else throughput(args.build)),
    }
    result["missed"] = misses(result)
    print(json.dumps(result, indent=1))
    sys.exit(1 if result["missed"] else 0)


if __name__ == "__main__":
    main()
