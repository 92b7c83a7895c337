#!/usr/bin/env python3
"""The ops' conformance cases that run on a GPU, each under compute-sanitizer: which are clean, what was found in which kernel.

    bench/gpu_sanitize.py --build build-cuda --out FOLDER [--tools memcheck,racecheck] > sanitize.json

Cases run side by side on the first GPU that is visible; tool "none" is a plain run. Under the others products do not choose their
kernels by time: each kernel that can runs, and cases of many numbers of tokens are cut into shares. A case that does not end in time
is named; so is one for which no time was left. racecheck looks at all kernels, also those of cuBLASLt, as it fails where some are left
out ("failed to handle a hardware exception"), memcheck at those of this repository. Reports are sorted by whose kernel they are in.
"""

import argparse
import collections
import concurrent.futures
import json
import os
import pathlib
import platform
import re
import signal
import subprocess
import sys
import time

OWN = re.compile(r"tutti::|\.cuh?:\d+")
REPORT = re.compile(r"^========= *(Error|Warning|Invalid|Program hit|Race|Uninitialized|Barrier|Unused|Leaked)")
# Cases that go through token_counts() (tests/conformance/ops/product.h), and their shares.
OF_TOKENS = re.compile(r"LinearConformance\.(Linear|GateUpSilu)/|FusedConformance\.(LinearOfNorm|LinearAdd|GateUpSiluOfNorm|NormAhead|BatchInvariant)/|"
                       r"Fp8Conformance\.(ScaleOfEachRow|OneScale|ScaleOfEachBlock|WeightOnly)/")
SHARES = ["1,2,3", "5,8,9", "16", "17", "33", "64", "100", "257"]
ORDER = ["clean", "skipped", "not run for want of time", "did not end", "findings"]  # a case is what its worst share is
WHERE = re.compile(r"(?:at|in|by) (?:void )?([A-Za-z_~][^\n]*?)(?:\+0x[0-9a-f]+)?(?: in (\S+\.cuh?:\d+))?$", re.M)


def reports_of(text):
    """The sanitizer's reports as blocks of its lines."""
    blocks, block = [], None
    for line in text.splitlines():
        if not line.startswith("========="):
            continue
        if REPORT.match(line):
            block = []
            blocks.append(block)
        elif line.strip("= ") == "" or "SUMMARY" in line:
            block = None
        if block is not None:
            block.append(line)
    return ["\n".join(block) for block in blocks]


def place(report):
    """The first place a report names, without what differs from launch to launch."""
    found = WHERE.search(report)
    return " ".join(part for part in found.groups() if part)[:200] if found else report.splitlines()[0][:200]


class Sanitize:
    def __init__(self, args):
        self.args = args
        self.program = os.path.abspath(f"{args.build}/tests/conformance/ops/ops_conformance")
        self.only = {"memcheck": ["--kernel-name", "kns=tutti"]}  # in the mangled name, as all are in that namespace
        self.begin = time.monotonic()
        self.rows = []
        # Each kernel that a product can take runs once, in place of some hundred timed runs.
        self.untimed = dict(os.environ, TUTTI_CONFORMANCE_UNTIMED="1")

    def cases(self):
        text = subprocess.run([self.program, "--gtest_list_tests", f"--gtest_filter={self.args.filter}"], capture_output=True,
                              text=True, check=True).stdout
        suite, names = "", []
        for line in text.splitlines():
            if not line.startswith(" "):
                suite = line.split("#")[0].strip()
            elif suite.endswith("."):
                names.append(suite + line.split("#")[0].strip())
        # Both types are the same kernels' sources. The longest last, so that most are done when time ends.
        return sorted(names, key=lambda name: (not name.lower().endswith("_bf16"), "Linear" in name or "GateUp" in name, "Fp8Conf" in name))

    def run(self, tool, case, tokens):
        row = {"tool": tool, "case": case, **({"tokens": tokens} if tokens else {})}
        left = self.args.limit - (time.monotonic() - self.begin)
        if left < 5:
            return {**row, "result": "not run for want of time"}
        log = self.args.out / f"{tool}_{re.sub('[^A-Za-z0-9_]', '_', f'{case} {tokens}')}.log"
        sanitizer = [] if tool == "none" else [self.args.sanitizer, "--tool", tool, "--print-limit", "200", *self.only.get(tool, [])]
        begin = time.monotonic()
        with open(log, "w") as out:
            process = subprocess.Popen([*sanitizer, self.program, f"--gtest_filter={case}"], stdout=out, stderr=out, start_new_session=True,
                                       env=None if tool == "none" else {**self.untimed, **({"TUTTI_CONFORMANCE_TOKENS": tokens} if tokens else {})})
            try:
                code = process.wait(min(left, self.args.most))
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)  # the sanitizer and the program that it started
                process.wait()
                code = None
        text = log.read_text(errors="replace")
        reports = reports_of(text)
        places = collections.Counter(("own: " if OWN.search(r) else "library: ") + place(r) for r in reports)
        row.update(seconds=round(time.monotonic() - begin, 1), own=sum(1 for r in reports if OWN.search(r)), reports=len(reports))
        if places:
            row["places"] = dict(places.most_common(8))
        summary = re.findall(r"^=+ (?:[A-Z]+ )?SUMMARY: (.*)", text, re.M)
        if summary:
            row["summary"] = summary[-1]
        if code is None:
            row["result"] = "did not end"
        elif "[  SKIPPED ]" in text:
            row["result"] = "skipped"
        elif "[  PASSED  ] 1 test" not in text or (tool != "none" and not summary):
            row["result"] = f"failed ({code})"
        else:
            row["result"] = "findings" if row["own"] else "clean"
        return row

    def all(self):
        jobs = [(tool, case, tokens) for case in self.cases() for tool in self.args.tools
                for tokens in (SHARES if tool != "none" and OF_TOKENS.search(case) else [None])]
        with concurrent.futures.ThreadPoolExecutor(self.args.at_once) as pool:
            for row in pool.map(lambda job: self.run(*job), jobs):
                self.rows.append(row)
                print(row, file=sys.stderr, flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", default="build-cuda")
    parser.add_argument("--out", type=pathlib.Path, default=pathlib.Path("sanitize_results"))
    parser.add_argument("--tools", default="none,memcheck,racecheck", type=lambda text: text.split(","))
    parser.add_argument("--filter", default="*cuda*", help="of gtest")
    parser.add_argument("--sanitizer", default="compute-sanitizer")
    parser.add_argument("--at-once", type=int, default=8)
    parser.add_argument("--most", type=float, default=150, help="seconds for one case")
    parser.add_argument("--limit", type=float, default=600, help="seconds for everything")
    parser.add_argument("--commit", default="")
    args = parser.parse_args()
    args.out.mkdir(parents=True, exist_ok=True)
    sanitize = Sanitize(args)
    sanitize.all()
    commit = args.commit or subprocess.run(["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True).stdout.strip()
    worst = {}
    for row in sanitize.rows:
        key = row["tool"], row["case"]
        worst[key] = max(worst.get(key, "clean"), row["result"], key=lambda result: ORDER.index(result) if result in ORDER else len(ORDER))
    table = collections.Counter((tool, result) for (tool, _), result in worst.items())
    json.dump({"what": "conformance cases of the ops on a GPU under compute-sanitizer", "commit": commit,
               "machine": f"{platform.machine()}, {os.cpu_count()} processors, Linux {platform.release()}",
               "command": "bench/gpu_sanitize.py " + " ".join(os.path.basename(a) if a.startswith("/") else a for a in sys.argv[1:]),
               "results": {f"{tool}, {result}": count for (tool, result), count in sorted(table.items())},
               "cases": sanitize.rows}, sys.stdout, indent=1)
    print()
    return 1 if any(row["result"].startswith(("failed", "findings")) for row in sanitize.rows) else 0


if __name__ == "__main__":
    sys.exit(main())
