#!/usr/bin/env python3
"""tutti beside llama.cpp on this machine's CPU, alternating, in one run.

    bench/cpu_peers.py --build build --peer LLAMA_CPP/build/bin --model 1b-q8_0.gguf [--model ...] --json OUT.json
    bench/cpu_peers.py ... --tests server                     32 requests of 128 in / 64 out, 8 at once, streaming
    bench/cpu_peers.py ... --tests start                      from the start of a server's process until it is ready

Every round runs ours, then the peer's (the next round the other way round), on the same file with the same number of
threads. With --add the rounds go on where those in the JSON file of the same commit ended. ppN is a prompt of N tokens, tgN N tokens of one sequence, batchN N sequences over one shared prompt of 128
tokens, 16 tokens each. Read bandwidth is measured right before each of our tests (the best of many short reads), and
before and after it (a few GiB with all of their time); a share is that of the weights' bytes in it. The peer is started
with its own defaults beside what is printed as its command. TUTTI_CPU_ISA, where it is set, is said in the result: for a
comparison without tile registers, with a peer that was built without them.
"""
import argparse
import json
import os
import platform
import shlex
import statistics
import subprocess
import sys
import time

from serving_client import serve_and_measure, start_and_stop


def run(command, timeout=600):
    done = subprocess.run(command, capture_output=True, text=True, timeout=timeout)
    if done.returncode != 0:
        sys.exit(f"{shlex.join(command)}\nended with {done.returncode}:\n{done.stdout[-2000:]}{done.stderr[-2000:]}")
    return done.stdout


def first_line(*command):
    return subprocess.run(command, capture_output=True, text=True).stdout.strip().split("\n")[0]


def processor():
    with open("/proc/cpuinfo", encoding="utf-8") as info:
        for line in info:
            if line.startswith("model name"):
                return line.split(":", 1)[1].strip()
    return platform.machine()


def ours(a, model, tests):
    """One round: {test: (tokens a second, GB/s of weights or None, GB/s read at best, GB/s sustained)}, and what the run says of itself."""
    command = [f"{a.build}/bench/bench_model", model, "--threads", str(a.threads), "--tests", ",".join(tests)]
    report = json.loads(run(command))
    figures = {}
    for r in report["results"]:
        weights = r["tokens_s"] * report["weight_bytes_of_token"] / 1e9 if r["test"].startswith("tg") else None
        figures[r["test"]] = (r["tokens_s"], weights, r["read_gb_s"], r["sustained_read_gb_s"])
    return figures, report


def peers(a, model, tests):
    """The peer's tokens a second by test."""
    figures = {}
    single = {t[:2]: t[2:] for t in tests if t[:2] in ("pp", "tg")}
    if single:
        out = run([f"{a.peer}/llama-bench", "-m", model, "-t", str(a.threads), "-p", single.get("pp", "0"), "-n",
                   single.get("tg", "0"), "-r", "1", "-o", "json"])
        for r in json.loads(out):
            figures[f"pp{r['n_prompt']}" if r["n_prompt"] else f"tg{r['n_gen']}"] = r["avg_ts"]
    batches = [t[5:] for t in tests if t.startswith("batch")]
    if batches:
        out = run([f"{a.peer}/llama-batched-bench", "-m", model, "-t", str(a.threads), "-tb", str(a.threads), "-c", "8192",
                   "-npp", "128", "-ntg", "16", "-npl", ",".join(batches), "-pps", "--output-format", "jsonl"])
        for line in out.splitlines():
            if line.startswith("{"):
                r = json.loads(line)
                figures[f"batch{r['pl']}"] = r["speed_tg"]
    return figures


def summary(values, digits=2):
    return {"median": round(statistics.median(values), digits), "range": [round(min(values), digits), round(max(values), digits)]}


def one_round(a, model, tests, number, values):
    """Adds to values: {test: {name: [a figure a round]}}. Returns the level of our kernels."""
    level = ""
    for side in ("tutti", "peer") if number % 2 == 0 else ("peer", "tutti"):
        if side == "peer":
            for test, speed in peers(a, model, tests).items():
                values[test]["peer"].append(round(speed, 2))
            continue
        figures, report = ours(a, model, tests)
        level = report["level"]
        for test, (speed, weights, read, sustained) in figures.items():
            values[test]["tutti"].append(round(speed, 2))
            values[test]["read"].append(round(read, 2))
            values[test]["sustained"].append(round(sustained, 2))
            if weights is not None:
                values[test]["share"].append(round(weights / read, 3))
                values[test]["share_of_sustained"].append(round(weights / sustained, 3))
    return level


def row_of(a, model, test, level, values):
    row = {"model": os.path.basename(model), "threads": a.threads, "test": test, "level": level, "rounds": len(values["peer"]),
           "tutti_tokens_s": summary(values["tutti"]), "peer_tokens_s": summary(values["peer"]),
           "ratio": round(statistics.median(values["tutti"]) / statistics.median(values["peer"]), 3),
           "read_gb_s": summary(values["read"]), "sustained_read_gb_s": summary(values["sustained"]), "values": values}
    share = ""
    if values["share"]:
        row["share_of_read_bandwidth"] = summary(values["share"], 3)
        row["share_of_sustained_read"] = summary(values["share_of_sustained"], 3)
        share = f", {row['share_of_read_bandwidth']['median']:.0%} of {row['read_gb_s']['median']:.1f} GB/s, {row['share_of_sustained_read']['median']:.0%} of what is sustained"
    print(f"{row['model']:28} {test:8} {a.threads} threads, {row['rounds']} rounds: {row['tutti_tokens_s']['median']:8.1f} tokens/s, peer "
          f"{row['peer_tokens_s']['median']:8.1f}: {row['ratio']:.2f}x{share}", flush=True)
    return row


NAMES = ("tutti", "peer", "read", "sustained", "share", "share_of_sustained")


def compare_tests(a, tests):
    """Rounds over all models; what is there is stored after each. A round is not begun when the time is over."""
    begin = time.monotonic()
    values = {model: {test: values_so_far(a, model, test, NAMES) for test in tests} for model in a.model}
    for number in range(a.rounds):
        if number > 0 and time.monotonic() - begin > a.seconds:
            break
        for model in a.model:
            level = one_round(a, model, tests, len(values[model][tests[0]]["peer"]), values[model])
            for test in tests:
                store(a, row_of(a, model, test, level, values[model][test]))


def server_command(a, side, model, port):
    if side == "tutti":
        return [f"{a.build}/tutti", "serve", model, "--port", str(port), "--cpu-threads", str(a.threads), "--max-model-len", "512",
                "--served-model-name", "m", "--disable-log-stats"]
    return [f"{a.peer}/llama-server", "-m", model, "--host", "127.0.0.1", "--port", str(port), "-t", str(a.threads), "-tb",
            str(a.threads), "--parallel", "8", "-c", "4096"]


SERVER_TESTS = {"server": ("server 32 x 128 in 64 out, 8 at once", serve_and_measure), "start": ("start until ready", start_and_stop)}


def compare_servers(a, model, test):
    name, measure = SERVER_TESTS[test]
    rounds = values_so_far(a, model, name, ("tutti", "peer"))
    for _ in range(a.rounds):
        number = len(rounds["peer"])
        for side in ("tutti", "peer") if number % 2 == 0 else ("peer", "tutti"):
            measured = measure(side, lambda port: server_command(a, side, model, port), seed=number)
            rounds[side].append({key: round(value, 3) for key, value in measured.items()})
            print(side, json.dumps(rounds[side][-1]), flush=True)
        row = {"model": os.path.basename(model), "threads": a.threads, "test": name, "rounds": len(rounds["peer"]), "values": rounds}
        for side in ("tutti", "peer"):
            row[side] = {key: summary([r[key] for r in rounds[side]]) for key in rounds[side][0]}
        row["ratio"] = {key: round(value["median"] / row["peer"][key]["median"], 3) for key, value in row["tutti"].items()}
        print(f"{row['model']} {name}: of the peer's {row['ratio']}", flush=True)
        store(a, row)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", default="build", help="our build folder")
    parser.add_argument("--peer", required=True, help="the folder with llama-bench, llama-batched-bench and llama-server")
    parser.add_argument("--peer-version", default="", help="said in the result")
    parser.add_argument("--model", action="append", required=True, help="a GGUF file; may be repeated")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--tests", default="pp512,tg128,batch8,batch32")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=3600, help="no round is begun later than this")
    parser.add_argument("--json", help="written here; rows of other models, threads and tests in it are kept")
    parser.add_argument("--add", action="store_true", help="go on with the rounds in that file, where they are of this commit")
    a = parser.parse_args()

    tests = a.tests.split(",")
    if tests[0] in SERVER_TESTS:
        for model in a.model:
            compare_servers(a, model, tests[0])
    else:
        compare_tests(a, tests)


def stored(a):
    if a.json and os.path.exists(a.json):
        with open(a.json, encoding="utf-8") as file:
            return json.load(file)
    return {"what": "tutti beside llama.cpp on one CPU, alternating; tokens/s", "results": []}


def commit():
    return first_line("git", "rev-parse", "--short", "HEAD")


def values_so_far(a, model, test, names):
    """{name: [a figure a round]}, empty unless --add finds some."""
    for row in stored(a)["results"] if a.add else ():
        if (row["model"], row["threads"], row["test"], row["commit"]) == (os.path.basename(model), a.threads, test, commit()):
            return row["values"]
    return {name: [] for name in names}


def store(a, row):
    if not a.json:
        return
    level = f"TUTTI_CPU_ISA={os.environ['TUTTI_CPU_ISA']} " if os.environ.get("TUTTI_CPU_ISA") else ""
    row.update(commit=commit(),
               command=f"{level}bench/cpu_peers.py --build build --peer LLAMA_CPP/build/bin --model {row['model']} --threads {a.threads} "
                       f"--tests {a.tests} --rounds {row['rounds']}")
    report = stored(a)
    report.update(machine=f"{processor()}, {os.cpu_count()} processors, Linux {platform.release()}", peer=f"llama.cpp {a.peer_version}")

    def key(r):
        return r["model"], r["threads"], r["test"]

    report["results"] = [r for r in report["results"] if key(r) != key(row)] + [row]
    with open(a.json, "w", encoding="utf-8") as file:
        json.dump(report, file, indent=1)
        file.write("\n")


if __name__ == "__main__":
    main()
