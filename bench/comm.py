#!/usr/bin/env python3
"""All-reduce between two ranks, ours beside Open MPI's, over the same path and in the same run.

    bench/comm.py --build build > bench/results/comm.json                          shared memory
    bench/comm_netns.sh bench/comm.py --build build > bench/results/comm_tcp.json  TCP between two namespaces

The two alternate; each round gives a median, and the result holds the median and the range of the rounds. Between
namespaces the bytes that the veth counted must be at least the payload, or the run is void: libraries that match hosts
by name would otherwise go past it through shared memory.
"""

import argparse
import json
import os
import platform
import shlex
import statistics
import subprocess
import sys
import tempfile

ROUNDS = 5


def run_json(command):
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    lines = [line for line in done.stdout.splitlines() if line.startswith("{")]
    if done.returncode != 0 or not lines:
        sys.exit(f"{shlex.join(command)}\nended with {done.returncode}:\n{done.stdout}{done.stderr}")
    return json.loads(lines[-1])


def tx_bytes(netns, interface):
    path = f"/sys/class/net/{interface}/statistics/tx_bytes"
    out = subprocess.run(["ip", "netns", "exec", netns, "cat", path], capture_output=True, text=True, check=True)
    return int(out.stdout)


class SharedMemory:
    name = "shm"
    mpi_path = "--mca btl vader,self"

    def ours(self, build, sizes):
        return [f"{build}/tutti", "bench", "comm", "--json", "--transport", "shm", "--sizes", ",".join(sizes)]

    def mpi(self, build, sizes):
        return ["mpirun", "--allow-run-as-root", "--bind-to", "none", "-np", "2", *shlex.split(self.mpi_path),
                f"{build}/bench/bench_comm_mpi", *sizes]

    def measured(self, command):
        return run_json(command)


class Namespaces:
    name = "tcp between two network namespaces"
    mpi_path = "--mca btl self,tcp"

    def __init__(self):
        self.netns = [os.environ["NETNS_A"], os.environ["NETNS_B"]]
        self.addresses = [os.environ["ADDRESS_A"], os.environ["ADDRESS_B"]]
        self.veth = os.environ["VETH"]
        # What mpirun starts in the place of ssh: its daemon, in the other namespace and under another host name.
        self.folder = tempfile.TemporaryDirectory(prefix="tutti-mpi-")
        self.agent = os.path.join(self.folder.name, "agent")
        with open(self.agent, "w") as file:
            file.write(f'#!/bin/sh\nshift\nexec nsenter --net=/run/netns/{self.netns[1]} unshare --uts '
                       'sh -c "hostname node-b; $*"\n')
        os.chmod(self.agent, 0o755)

    def ours(self, build, sizes):
        return [f"{build}/tutti", "bench", "comm", "--json", "--transport", "tcp", "--netns", ",".join(self.netns), "--addresses",
                ",".join(self.addresses), "--sizes", ",".join(sizes)]

    def mpi(self, build, sizes):
        hosts = ",".join(f"{address}:1" for address in self.addresses)
        mpirun = ["mpirun", "--allow-run-as-root", "--bind-to", "none", "-np", "2", "-H", hosts, "--mca",
                  "plm_rsh_agent", self.agent, *shlex.split(self.mpi_path), "--mca", "btl_tcp_if_include", self.veth,
                  "--mca", "oob_tcp_if_include", self.veth, f"{build}/bench/bench_comm_mpi", *sizes]
        return ["nsenter", f"--net=/run/netns/{self.netns[0]}", "unshare", "--uts", "sh", "-c",
                "hostname node-a; " + shlex.join(mpirun)]

    def measured(self, command):
        before = [tx_bytes(n, self.veth) for n in self.netns]
        result = run_json(command)
        for netns, start in zip(self.netns, before):
            moved = tx_bytes(netns, self.veth) - start
            if moved < result["payload_bytes"]:
                sys.exit(f"{netns}: the veth carried {moved} bytes of a payload of {result['payload_bytes']}: "
                         "the ranks did not talk over it")
        return result


def summary(rounds, size):
    medians = [next(r["p50_us"] for r in one["results"] if r["bytes"] == size) for one in rounds]
    tails = [next(r["p99_us"] for r in one["results"] if r["bytes"] == size) for one in rounds]
    return {"p50_us": round(statistics.median(medians), 2), "p50_range_us": [min(medians), max(medians)],
            "p99_us": round(statistics.median(tails), 2)}


def commit():
    out = subprocess.run(["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True)
    return out.stdout.strip()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", default="build")
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--sizes", default="1024,8192,65536,1048576,4194304,16777216,67108864")
    parser.add_argument("--realtime", action="store_true", help="run both under SCHED_FIFO, on a machine that others use")
    args = parser.parse_args()

    path = Namespaces() if "NETNS_A" in os.environ else SharedMemory()
    build = os.path.abspath(args.build)
    sizes = args.sizes.split(",")
    prefix = ["chrt", "-f", "5"] if args.realtime else []
    rounds = {"tutti": [], "open_mpi": []}
    for _ in range(args.rounds):
        rounds["tutti"].append(path.measured(prefix + path.ours(build, sizes)))
        rounds["open_mpi"].append(path.measured(prefix + path.mpi(build, sizes)))

    results = []
    for size in map(int, sizes):
        row = {"bytes": size, **{who: summary(rounds[who], size) for who in rounds}}
        row["ratio"] = round(row["tutti"]["p50_us"] / row["open_mpi"]["p50_us"], 3)
        results.append(row)
    json.dump({"what": "all-reduce of float32 between two ranks", "path": path.name, "open_mpi": path.mpi_path,
               "veth_bytes_checked": isinstance(path, Namespaces), "rounds": args.rounds, "commit": commit(),
               "machine": f"{platform.machine()}, {os.cpu_count()} processors, Linux {platform.release()}",
               "command": shlex.join(sys.argv), "results": results}, sys.stdout, indent=1)
    print()


if __name__ == "__main__":
    main()
