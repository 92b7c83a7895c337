#!/usr/bin/env python3
"""Compares results of bench_ops and fails on a regression.

    bench/compare.py BASELINE.json CURRENT.json [CURRENT.json ...] [--noise 0.10] [--by share|time]

Several current files are runs of the same benchmark: each case's best run counts. By default a case is judged by its
share of the limits that were measured in its own run, so that a slower or busier machine is no regression; --by time
compares microseconds and wants the same machine. Exit codes: 0 no regression, 1 regressions, 2 unusable input.
"""
import argparse
import json
import sys


def unusable(message):
    print(f"compare.py: {message}", file=sys.stderr)
    sys.exit(2)


def load(path):
    try:
        with open(path, encoding="utf-8") as file:
            report = json.load(file)
        results = {r["name"]: r for r in report["results"]}
        for name, result in results.items():
            if not (result["best_us"] > 0 and result["share"] >= 0):
                unusable(f"{path}: case {name!r} has no positive time or share")
        return {"level": report["level"], "threads": report["threads"]}, results
    except OSError as error:
        unusable(f"cannot read {path}: {error.strerror}")
    except (json.JSONDecodeError, KeyError, TypeError) as error:
        unusable(f"{path} is not a result of bench_ops: {error!r}")


def best_of(runs):
    """The fastest result of each case, and its highest share."""
    merged = {}
    for results in runs:
        for name, result in results.items():
            known = merged.setdefault(name, dict(result))
            known["best_us"] = min(known["best_us"], result["best_us"])
            known["share"] = max(known["share"], result["share"])
    return merged


def speed_ratio(old, new, by):
    """How much faster the new result is; 1 is the same. Cases without a share have only their time."""
    if by == "share" and old["share"] > 0 and new["share"] > 0:
        return new["share"] / old["share"]
    return old["best_us"] / new["best_us"]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("baseline")
    parser.add_argument("current", nargs="+")
    parser.add_argument("--noise", type=float, default=0.10, help="relative loss that is still noise (default 0.10)")
    parser.add_argument("--by", choices=("share", "time"), default="share")
    args = parser.parse_args()
    if not 0 <= args.noise < 1:
        unusable(f"--noise is a fraction from 0 to 1, found {args.noise}")

    setup, baseline = load(args.baseline)
    runs = []
    for path in args.current:
        current_setup, results = load(path)
        if current_setup != setup:
            unusable(f"{path} was measured at {current_setup}, {args.baseline} at {setup}: measure at the same level and threads")
        runs.append(results)
    current = best_of(runs)

    regressions = 0
    for name, old in baseline.items():
        if name not in current:
            print(f"{name:40} not measured")
            continue
        new = current[name]
        ratio = speed_ratio(old, new, args.by)
        slower = ratio < 1 - args.noise
        regressions += slower
        print(f"{name:40} {old['best_us']:12.1f} us {new['best_us']:12.1f} us {ratio:6.2f}x{'  SLOWER' if slower else ''}")
    for name in sorted(current.keys() - baseline.keys()):
        print(f"{name:40} new: {current[name]['best_us']:.1f} us")
    if not baseline.keys() & current.keys():
        unusable("the files have no case in common")
    print(f"{regressions} of {len(baseline)} cases lost more than {args.noise:.0%}")
    sys.exit(1 if regressions else 0)


if __name__ == "__main__":
    main()
