#!/usr/bin/env python3
"""The same answers from one GPU, from two of one host and from two as two nodes; and what happens when one of them is lost.

    bench/gpu_nodes.py --build build-cuda --out FOLDER [--parts host,nodes,losses] [--shapes small,llama-3-8b] > nodes.json

Parts: `host` TP=2 and PP=2 of one host, and (first shape) TP=2 with NCCL alone and with peer-to-peer access off, each of which
must say what it costs. `nodes` the same over two namespaces joined by a veth pair, one GPU visible in each, `tutti serve` in one and `tutti
worker` in the other, NCCL over sockets: the veth must have carried the payload. `losses` (first shape) the link cut in
mid-answer, a rank killed: the stream must end with an error that names the rank, and the same worker join the next cluster.
`--device cpu` is a dry run of all of it. `nodes` and `losses` need root and iproute2.
"""

import argparse
import contextlib
import json
import os
import pathlib
import platform
import re
import signal
import subprocess
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
from gpu_server import Failed, Server, children_of, compare, leave_nothing, random_prompts  # noqa: E402
from two_nodes import TwoNodes  # noqa: E402

LAYOUTS = {"tp2": ["-tp", 2], "pp2": ["-pp", 2]}
COSTS = "all goes through NCCL \\(small all-reduces take 2 to 3 times as long\\)"
TOKENS = 24
PROMPTS, PROMPT_TOKENS = 12, 24
NOTICED_S = 10  # a lost rank ends the streams within that


class Acceptance:
    def __init__(self, args):
        self.args = args
        self.tutti = os.path.abspath(f"{args.build}/tutti")
        self.out = args.out
        self.rows, self.failures, self.references = [], [], {}

    def row(self, part, **found):
        self.rows.append({"part": part, **found})
        print(self.rows[-1], file=sys.stderr, flush=True)

    def fail(self, part, why):
        self.failures.append(f"{part}: {why}")
        print(f"FAILED {self.failures[-1]}", file=sys.stderr, flush=True)

    def model(self, shape):
        folder = self.out / f"model-{shape}"
        if not folder.exists():
            script = pathlib.Path(__file__).resolve().parents[1] / "scripts" / "make_random_model.py"
            subprocess.run([sys.executable, script, folder, "--shape", shape], check=True, stdout=subprocess.DEVNULL)
        return folder, json.loads((folder / "config.json").read_text())

    def server(self, shape, name, flags, nodes=None, worker=None, environment=None):
        folder, _ = self.model(shape)
        few = ["--max-num-seqs", 8, "--max-num-batched-tokens", 2048, "--max-model-len", 2048, "--kv-cache-memory-bytes", "1G"]
        return Server(self.tutti, folder, ["--load-format", "dummy", "--device", self.args.device, *few, *flags], self.out,
                      f"{shape}_{name}", nodes, worker, environment, ready=45 if shape == "small" else 100)

    def payload(self, config, layout, rows):
        """The least that node 0 must send for so many rows, in bytes."""
        hidden, layers = config["hidden_size"], config["num_hidden_layers"]
        if layout == "pp2":
            return rows * hidden * 2
        # GPUs: a sum of BF16 for each half of a layer and for the embedding. CPUs: half of the inputs and of the outputs.
        return rows * hidden * (2 * (2 * layers + 1) if self.args.device == "cuda" else 2 * layers)

    def reference(self, shape):
        """Prompts, one rank's answers to them, and how far each token of those leads."""
        if shape not in self.references:
            _, config = self.model(shape)
            prompts = random_prompts(PROMPTS, PROMPT_TOKENS, config["vocab_size"])
            alone = self.server(shape, "tp1", [], environment={"CUDA_VISIBLE_DEVICES": "0"})
            self.references[shape] = prompts, alone.answer(prompts, TOKENS), alone.gaps(prompts, TOKENS)
            self.row("one rank", shape=shape, ready_s=round(alone.ready_s, 1), tpot_ms=self.tpot(alone, prompts[0]))
            alone.close()
        return self.references[shape]

    def tpot(self, server, prompt):
        times = [at for at, _ in server.stream(prompt, 2 * TOKENS)]
        return round(1e3 * (times[-1] - times[0]) / (len(times) - 1), 2)

    def judge(self, part, shape, server, nodes=None, least=0):
        prompts, reference, gaps = self.reference(shape)
        before = nodes.sent_bytes() if nodes else [0]
        answers = server.answer(prompts, TOKENS)
        found = {"ready_s": round(server.ready_s, 1), **compare(reference, gaps, answers)}
        if nodes:
            found.update(veth_bytes=nodes.sent_bytes()[0] - before[0], least_bytes=least)
            if found["veth_bytes"] < least:
                self.fail(part, f"the veth carried {found['veth_bytes']} bytes of at least {least}: the ranks did not talk over it")
        self.row(part, shape=shape, **found, tpot_ms=self.tpot(server, prompts[0]))

    def attempt(self, part, shape, name, flags, check, environment=None, nodes=None, least=0):
        server = None
        try:
            self.reference(shape)
            server = self.server(shape, name, flags, nodes, environment=environment)
            self.judge(part, shape, server, nodes, least)
            check(part, server)
        except (Failed, OSError) as reason:
            self.fail(f"{part}, {shape}", reason)
        if server and not server.close():
            self.fail(f"{part}, {shape}", "the processes did not end when asked to")

    def host(self, shape):
        for layout, flags in LAYOUTS.items():
            self.attempt(f"{layout} on one host", shape, f"host_{layout}", flags, lambda part, server: None)
        if shape != self.args.shapes[0]:
            return
        self.attempt("tp2 on one host, NCCL alone", shape, "host_nccl", ["-tp", 2, "--disable-custom-all-reduce"],
                     lambda part, server: self.expect_line(part, server, f"--disable-custom-all-reduce: {COSTS}"))
        self.attempt("tp2 on one host, peer-to-peer off", shape, "host_p2p_off", ["-tp", 2],
                     lambda part, server: self.expect_line(part, server, f"NCCL_P2P_DISABLE=1: {COSTS}"),
                     environment={"NCCL_P2P_DISABLE": "1"})

    def nodes(self, wire, shape):
        _, config = self.model(shape)
        for layout, flags in LAYOUTS.items():
            least = self.payload(config, layout, PROMPTS * (PROMPT_TOKENS + TOKENS - 1))
            self.attempt(f"{layout} over two nodes", shape, layout, flags, self.check_log, nodes=wire, least=least)

    def expect_line(self, part, server, pattern):
        if self.args.device == "cuda" and not re.search(pattern, server.head.log()):
            self.fail(part, f"no line /{pattern}/ in the log")

    def check_log(self, part, server):
        self.expect_line(part, server, r"warning .*GPU traffic between the nodes goes over TCP sockets")
        slowest = re.search(r"slowest ranks: (.*)", server.head.log())
        if not slowest:
            self.fail(part, "the log does not name the slowest rank of each phase of the start")
        else:
            self.row("start", of=part, slowest_ranks=slowest.group(1))

    def lose(self, server, part, action):
        """A long answer; `action` while it runs. What the stream ends with, and after how long."""
        begun, error, ended = None, None, None
        prompt = random_prompts(1, PROMPT_TOKENS, 250)[0]
        for at, event in server.stream(prompt, 1900, timeout=60):
            if begun is None and at > 1.0:
                action()
                begun = time.monotonic()
            if "error" in event:
                error, ended = event["error"]["message"], time.monotonic()
        if begun is None:
            return self.fail(part, "the answer had ended before anything was lost")
        if error is None:
            return self.fail(part, "the stream ended without an error")
        seconds = ended - begun
        self.row(part, stream_ended_after_s=round(seconds, 2), error=error)
        if seconds > NOTICED_S:
            self.fail(part, f"noticed after {seconds:.1f} s")
        if not re.search(r"rank 1 \(", error):
            self.fail(part, f"the error does not name rank 1: {error}")
        try:
            code = server.head.wait_exit(20)
            if code != 5:
                self.fail(part, f"the head ended with {code}, expected 5")
            server.worker.wait_for(r"waiting +for the head", 20)
            if left := children_of(server.worker.pid):
                self.fail(part, f"processes of ranks are left on the other node: {left}")
        except Failed as reason:
            self.fail(part, reason)

    def losses(self, nodes, shape):
        """One worker process through three clusters."""
        server = self.server(shape, "cut", ["-tp", 2], nodes)
        worker = server.worker
        cut_at = time.monotonic()

        def cut():
            nonlocal cut_at
            cut_at = time.monotonic()
            nodes.cut()

        self.lose(server, "link cut", cut)
        time.sleep(max(0.0, self.args.cut_seconds - (time.monotonic() - cut_at)))
        nodes.mend()
        server = self.server(shape, "killed", ["-tp", 2], nodes, worker)
        self.row("next cluster after the cut", ready_s=round(server.ready_s, 1))
        self.lose(server, "rank killed", lambda: os.kill(children_of(worker.pid)[0], signal.SIGKILL))
        server = self.server(shape, "after", ["-tp", 2], nodes, worker)
        server.complete([5, 6, 7], 8)
        self.row("next cluster after the kill", ready_s=round(server.ready_s, 1))
        server.close()

    def run(self):
        parts = []
        if "host" in self.args.parts:
            parts += [(f"host, {shape}", lambda _, shape=shape: self.host(shape)) for shape in self.args.shapes]
        if "nodes" in self.args.parts:
            parts += [(f"nodes, {shape}", lambda wire, shape=shape: self.nodes(wire, shape)) for shape in self.args.shapes]
        if "losses" in self.args.parts:
            parts.append(("losses", lambda wire: self.losses(wire, self.args.shapes[0])))
        with TwoNodes() if self.args.parts != ["host"] else contextlib.nullcontext() as wire:
            for part, body in parts:
                try:
                    body(wire)
                except (Failed, OSError, subprocess.CalledProcessError) as reason:
                    self.fail(part, reason)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", default="build-cuda")
    parser.add_argument("--out", type=pathlib.Path, default=pathlib.Path("multi_gpu_results"))
    parser.add_argument("--shapes", default="small,llama-3-8b", type=lambda text: text.split(","))
    parser.add_argument("--parts", default="host,nodes,losses", type=lambda text: text.split(","))
    parser.add_argument("--device", default="cuda", choices=["cuda", "cpu"])
    parser.add_argument("--cut-seconds", type=float, default=30)
    parser.add_argument("--commit", default="")
    args = parser.parse_args()
    args.out.mkdir(parents=True, exist_ok=True)
    leave_nothing()
    acceptance = Acceptance(args)
    acceptance.run()
    commit = args.commit or subprocess.run(["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True).stdout.strip()
    json.dump({"what": "one model on one GPU, on two of a host, and on two as two nodes (namespaces joined by a veth pair)", "device": args.device,
               "tokens": f"{PROMPTS} prompts of {PROMPT_TOKENS} random tokens, {TOKENS} out, greedy", "commit": commit,
               "machine": f"{platform.machine()}, {os.cpu_count()} processors, Linux {platform.release()}",
               "command": "bench/gpu_nodes.py " + " ".join(os.path.basename(a) if a.startswith("/") else a for a in sys.argv[1:]),
               "failures": acceptance.failures, "results": acceptance.rows}, sys.stdout, indent=1)
    print()
    return 1 if acceptance.failures else 0


if __name__ == "__main__":
    sys.exit(main())
