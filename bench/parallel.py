#!/usr/bin/env python3
"""One model cut over ranks against one process with the same cores, and against peers over the same link.

    bench/parallel.py --model M.gguf --parts shm,links,prefill,memory,pipeline --json bench/results/parallel.json

Parts: `shm` TP=2 with one thread a rank on this machine; `links` TP=2 over two network namespaces at each link's rate,
also with --comm-dtype int8 at the slowest; `prefill` a prompt of 512 tokens at no limit; `memory` the pages a rank
holds; `pipeline` PP=2 at 8 streams against one stage on half of the cores; `llama.cpp` and `distributed-llama` over
the same namespaces (--llama-cpp FOLDER of its programs; --distributed-llama PROGRAM MODEL TOKENIZER).
Rows of other models and parts in the JSON file are kept.

All servers of a part run side by side and are asked in turns, so that a slow minute hits each alike; the result holds
the median and the range of the rounds. The bytes that the veth counted must be at least what has to cross. Needs root.
"""

import argparse
import concurrent.futures
import http.client
import json
import os
import pathlib
import platform
import random
import re
import shlex
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
from two_nodes import LINKS, TwoNodes  # noqa: E402

DECODED = 48      # tokens of one measurement
PROMPT = 512      # tokens of a prefill measurement
STREAMS = 8
ANSWERS = 2       # of each stream
PORTS = iter(range(24000, 29000, 150))


class UnixConnection(http.client.HTTPConnection):
    def __init__(self, path, timeout):
        super().__init__("localhost", timeout=timeout)
        self.path = path

    def connect(self):
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(self.timeout)
        self.sock.connect(self.path)


class Server:
    """`tutti serve` with its API on a Unix socket, which is reached from any namespace; and its worker, if any."""

    def __init__(self, bench, flags, nodes=None, cores=None):
        self.folder = tempfile.TemporaryDirectory(prefix="tutti-bench-")
        self.socket = f"{self.folder.name}/api"
        port = next(PORTS)
        serve = [bench.tutti, "serve", bench.args.model, "--uds", self.socket, "--master-port", port, "--max-model-len", 2048,
                 "--kv-cache-memory-bytes", "512M", "--no-enable-prefix-caching", "--disable-log-stats", *flags]
        environment = {**os.environ, "TUTTI_HOME": self.folder.name, "TUTTI_CLUSTER_TOKEN": "bench-" + "0" * 40}
        self.processes = []
        if cores:
            serve = ["taskset", "-c", cores, *serve]
        if nodes:
            serve = nodes.command(0, [*serve, "--nnodes", 2, "--master-addr", nodes.addresses[0]])
            worker = nodes.command(1, [bench.tutti, "worker", "--master-ip", nodes.addresses[0], "--master-port", port])
            self.start(worker, {**environment, "TUTTI_HOME": f"{self.folder.name}/worker"})
        self.command = shlex.join(map(str, serve))
        self.log = self.start(serve, environment)
        self.wait_ready()

    def start(self, command, environment):
        log = open(f"{self.folder.name}/log{len(self.processes)}", "w+")
        self.processes.append(subprocess.Popen(list(map(str, command)), env=environment, stdin=subprocess.DEVNULL,
                                               stdout=log, stderr=log))
        return log

    def wait_ready(self, timeout=180):
        deadline = time.monotonic() + timeout
        while time.monotonic() < deadline and self.processes[-1].poll() is None:
            text = pathlib.Path(self.log.name).read_text()
            if "Application startup complete" in text:
                return
            time.sleep(0.1)
        sys.exit(f"not ready: {self.command}\n" + pathlib.Path(self.log.name).read_text())

    def close(self):
        for process in reversed(self.processes):
            process.send_signal(signal.SIGTERM)
        for process in self.processes:
            try:
                process.wait(20)
            except subprocess.TimeoutExpired:
                process.kill()
        self.folder.cleanup()

    def ask(self, prompt_tokens, max_tokens):
        """Seconds to the first token, and from it to the last one."""
        connection = UnixConnection(self.socket, 120)
        prompt = [random.randrange(1000, 30000) for _ in range(prompt_tokens)]
        body = {"prompt": prompt, "max_tokens": max_tokens, "temperature": 0, "ignore_eos": True, "stream": True,
                "return_token_ids": True}  # an event for each token, also where its text is held back
        begin = time.monotonic()
        connection.request("POST", "/v1/completions", json.dumps(body), {"Content-Type": "application/json"})
        response = connection.getresponse()
        times, last = [], ""
        for line in response:
            if line.startswith(b"data: {"):
                times.append(time.monotonic())
                last = line.decode(errors="replace")
        connection.close()
        if response.status != 200 or '"error"' in last or not times:
            sys.exit(f"{self.command}: {response.status} {last}\n" + pathlib.Path(self.log.name).read_text())
        return times[0] - begin, times[-1] - times[0]

    def decode(self):
        return (DECODED - 1) / self.ask(8, DECODED)[1]

    def prefill(self):
        return PROMPT / self.ask(PROMPT, 1)[0]

    def streams(self):
        """Tokens a second under a load of several streams, each of which asks again when it has its answer."""
        def stream(_):
            for _ in range(ANSWERS):
                self.ask(64, DECODED)
        with concurrent.futures.ThreadPoolExecutor(STREAMS) as pool:
            begin = time.monotonic()
            list(pool.map(stream, range(STREAMS)))
            return STREAMS * ANSWERS * DECODED / (time.monotonic() - begin)

    def metrics(self):
        connection = UnixConnection(self.socket, 10)
        connection.request("GET", "/metrics")
        lines = connection.getresponse().read().decode().splitlines()
        return {line.split("{")[0].split(" ")[0]: float(line.rsplit(" ", 1)[1]) for line in lines if line and line[0] != "#"}

    def rank_pss(self):
        """Bytes of each rank's process, shared pages counted by share."""
        pids = subprocess.run(["pgrep", "-P", str(self.processes[-1].pid)], capture_output=True, text=True).stdout.split()
        found = []
        for pid in pids:
            text = pathlib.Path(f"/proc/{pid}/smaps_rollup").read_text()
            found.append(int(re.search(r"^Pss: +(\d+)", text, re.M).group(1)) * 1024)
        return found


class Bench:
    def __init__(self, args):
        self.args = args
        self.tutti = os.path.abspath(f"{args.build}/tutti")
        self.rows = []

    def turns(self, measured, **about):
        """Asks each of {name: function} once a round; the first is what the others are compared with."""
        rounds = {name: [] for name in measured}
        for _ in range(self.args.rounds):
            for name, function in measured.items():
                rounds[name].append(function())
        base = next(iter(measured))
        for name, values in rounds.items():
            ratios = [v / b for v, b in zip(values, rounds[base])]
            self.rows.append({**about, "who": name, "tokens_per_s": round(statistics.median(values), 2),
                              "range": [round(min(values), 2), round(max(values), 2)],
                              f"of_{base}": round(statistics.median(ratios), 3)})
            print(self.rows[-1], file=sys.stderr, flush=True)

    def with_servers(self, described, body):
        servers = {}
        try:
            for name, how in described.items():
                servers[name] = Server(self, *how)
            for server in servers.values():
                server.ask(8, 8)  # pages, caches, kernels chosen
            body(servers)
        finally:
            for server in servers.values():
                server.close()

    def shm(self):
        described = {"one process, 2 threads": (["--cpu-threads", 2], None), "TP=2 shm": (["-tp", 2, "--cpu-threads", 1], None)}
        self.with_servers(described, lambda s: self.turns({name: server.decode for name, server in s.items()}, part="shm decode"))

    def on_wire(self, nodes, server, measure):
        """The measurement, void unless both ends sent what has to cross: a byte for each hidden element of a layer."""
        def run():
            before = nodes.sent_bytes()
            result = measure()
            moved = [now - then for now, then in zip(nodes.sent_bytes(), before)]
            if min(moved) < self.args.least_bytes * DECODED:
                sys.exit(f"{server.command}: the veth carried {moved} bytes: the ranks did not talk over it")
            self.moved = min(moved)
            return result
        return run

    def links(self):
        with TwoNodes() as nodes:
            tp2 = ["-tp", 2, "--cpu-threads", 1]
            described = {"one process, 2 threads": (["--cpu-threads", 2], None), "TP=2": (tp2, nodes),
                         "TP=2 int8": ([*tp2, "--comm-dtype", "int8"], nodes)}

            def body(servers):
                for link in self.args.links:
                    nodes.set_link(link)
                    measured = {"one process, 2 threads": servers["one process, 2 threads"].decode}
                    for name in ("TP=2", "TP=2 int8"):
                        measured[name] = self.on_wire(nodes, servers[name], servers[name].decode)
                    self.turns(measured, part="decode over two namespaces", link=link)
                for name in ("TP=2", "TP=2 int8"):
                    self.on_wire(nodes, servers[name], servers[name].decode)()
                    self.rows.append({"part": "bytes on the veth", "who": name, "per_token_and_direction": self.moved // DECODED})
            self.with_servers(described, body)

    def prefill(self):
        with TwoNodes() as nodes:
            tp2 = ["-tp", 2, "--cpu-threads", 1]
            described = {"one process, 2 threads": (["--cpu-threads", 2], None), "TP=2 shm": (tp2, None), "TP=2": (tp2, nodes),
                         "TP=2 int8": ([*tp2, "--comm-dtype", "int8"], nodes)}

            def body(servers):
                measured = {name: server.prefill for name, server in servers.items()}
                for name in ("TP=2", "TP=2 int8"):
                    measured[name] = self.on_wire(nodes, servers[name], servers[name].prefill)
                self.turns(measured, part=f"prefill {PROMPT}", link="none")
            self.with_servers(described, body)

    def memory(self):
        """After loading, and after an answer: caches and scratch memory are in use then, of one size at any TP."""
        for when in ("loaded", "answered"):
            pss = {}
            for tp in (1, 2):
                server = Server(self, ["-tp", tp, "--cpu-threads", 1])
                try:
                    if when == "answered":
                        server.ask(8, 8)
                    pss[tp] = max(server.rank_pss())
                finally:
                    server.close()
            self.rows.append({"part": "Pss of the largest rank", "when": when, "tp1_bytes": pss[1], "tp2_bytes": pss[2],
                              "ratio": round(pss[2] / pss[1], 3)})

    def pipeline(self):
        # Half of the cores are also half for what else a server does: its API and its engine.
        described = {"PP=1, half of the cores": (["--cpu-threads", 1], None, f"0-{max(os.cpu_count() // 2, 1) - 1}"),
                     "PP=2, all cores": (["-pp", 2, "--cpu-threads", 1], None)}

        def body(servers):
            before = servers["PP=2, all cores"].metrics()
            self.turns({name: server.streams for name, server in servers.items()}, part=f"{STREAMS} streams")
            after = servers["PP=2, all cores"].metrics()
            grown = {name: after[name] - before[name] for name in ("tutti:bubble_seconds_total", "tutti:step_seconds_total")}
            self.rows.append({"part": "pipeline bubble", "share": round(grown["tutti:bubble_seconds_total"] /
                                                                        grown["tutti:step_seconds_total"], 3)})
        self.with_servers(described, body)

    def llama_cpp(self):
        """RPC, layer split, its server in both namespaces; one client run is one measurement."""
        folder = self.args.llama_cpp
        with TwoNodes() as nodes:
            port = next(PORTS)
            servers = [subprocess.Popen(nodes.command(n, [f"{folder}/{self.args.llama_rpc_server}", "-H", nodes.addresses[n], "-p",
                                                          port, "-t", 1, "-c"]), stdout=subprocess.DEVNULL,
                                        stderr=subprocess.DEVNULL) for n in (0, 1)]
            client = nodes.command(0, [f"{folder}/llama-bench", "-m", self.args.model, "--rpc",
                                       ",".join(f"{a}:{port}" for a in nodes.addresses), "-ngl", 99, *shlex.split(self.args.llama_split), "-ts", "1/1",
                                       "-t", 1, "-r", 1, "-p", 0, "-n", DECODED, "-o", "json"])
            time.sleep(1)

            def run():
                done = subprocess.run(client, capture_output=True, text=True, timeout=300)
                if done.returncode != 0:
                    sys.exit(f"{shlex.join(client)}\n{done.stdout}{done.stderr}")
                return json.loads(done.stdout)[0]["avg_ts"]
            self.beside(nodes, "llama.cpp RPC " + self.args.llama_split, run)
            for server in servers:
                server.terminate()
                server.wait()

    def distributed_llama(self):
        program, model, tokenizer = self.args.distributed_llama
        with TwoNodes() as nodes:
            def run():
                port = next(PORTS)
                worker = subprocess.Popen(nodes.command(1, [program, "worker", "--port", port, "--nthreads", 1]),
                                          stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
                time.sleep(0.5)
                client = nodes.command(0, [program, "inference", "--model", model, "--tokenizer", tokenizer, "--buffer-float-type",
                                           "q80", "--max-seq-len", 1024, "--steps", 16 + DECODED, "--temperature", 0, "--prompt",
                                           "a" * 15, "--nthreads", 1, "--workers", f"{nodes.addresses[1]}:{port}"])
                done = subprocess.run(client, capture_output=True, text=True, errors="replace", timeout=300)
                worker.terminate()
                worker.wait()
                found = re.findall(r"tokens/s: ([\d.]+)", done.stdout)
                if len(found) != 2:
                    sys.exit(f"{shlex.join(client)}\n{done.stdout[-2000:]}{done.stderr[-2000:]}")
                return float(found[1])
            self.beside(nodes, "distributed-llama", run)

    def beside(self, nodes, peer, run):
        """The peer and ours over the same link in turns."""
        tp2 = ["-tp", 2, "--cpu-threads", 1]

        def body(servers):
            for link in self.args.links:
                nodes.set_link(link)
                measured = {peer: run, "TP=2": self.on_wire(nodes, servers["TP=2"], servers["TP=2"].decode),
                            "TP=2 int8": self.on_wire(nodes, servers["TP=2 int8"], servers["TP=2 int8"].decode)}
                self.turns(measured, part=f"decode beside {peer}", link=link)
            nodes.set_link("none")
        self.with_servers({"TP=2": (tp2, nodes), "TP=2 int8": ([*tp2, "--comm-dtype", "int8"], nodes)}, body)


def commit():
    return subprocess.run(["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True).stdout.strip()


def processor():
    found = re.search(r"model name\s*: (.*)", pathlib.Path("/proc/cpuinfo").read_text())
    return found.group(1) if found else platform.machine()


def shown_command():
    """As somebody else would type it: paths by their last part."""
    level = f"TUTTI_CPU_ISA={os.environ['TUTTI_CPU_ISA']} " if os.environ.get("TUTTI_CPU_ISA") else ""
    return level + shlex.join(os.path.basename(a) if a.startswith("/") else a for a in ["bench/parallel.py", *sys.argv[1:]])


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", default="build")
    parser.add_argument("--model", required=True)
    parser.add_argument("--parts", default="shm,links,prefill,memory,pipeline")
    parser.add_argument("--links", default=",".join(LINKS), type=lambda text: text.split(","))
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--least-bytes", type=int, default=16 * 2048, help="that a token must put on the wire: layers x hidden size")
    parser.add_argument("--llama-cpp", metavar="FOLDER")
    parser.add_argument("--llama-rpc-server", default="ggml-rpc-server", help="the program's name in that folder")
    parser.add_argument("--llama-split", default="-sm layer", help="llama-bench's flags for how it cuts the model")
    parser.add_argument("--json", required=True)
    parser.add_argument("--distributed-llama", nargs=3, metavar=("PROGRAM", "MODEL", "TOKENIZER"))
    args = parser.parse_args()
    bench = Bench(args)
    parts = {"shm": bench.shm, "links": bench.links, "prefill": bench.prefill, "memory": bench.memory, "pipeline": bench.pipeline,
             "llama.cpp": bench.llama_cpp, "distributed-llama": bench.distributed_llama}
    random.seed(1)
    for part in args.parts.split(","):
        bench.rows = []
        parts[part]()
        store(args, part, bench.rows)


def store(args, part, rows):
    report = {"what": "a model cut over two ranks", "results": []}
    if os.path.exists(args.json):
        report = json.loads(pathlib.Path(args.json).read_text())
    name = f"{part} {args.llama_split}" if part == "llama.cpp" else part
    result = {"model": os.path.basename(args.model), "part": name, "rounds": args.rounds, "commit": commit(),
              "machine": f"{processor()}, {os.cpu_count()} processors, Linux {platform.release()}", "command": shown_command(), "rows": rows}

    def key(r):
        return r["model"], r["part"]

    report["results"] = [r for r in report["results"] if key(r) != key(result)] + [result]
    pathlib.Path(args.json).write_text(json.dumps(report, indent=1) + "\n")


if __name__ == "__main__":
    main()
