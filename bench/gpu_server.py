"""A `tutti serve` on the ranks of one machine or of two namespaces with a GPU each, asked over a Unix socket, which is reached
from any namespace; and the comparison of two layouts' answers. Only the standard library."""

import http.client
import json
import math
import os
import pathlib
import random
import re
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time

READY = "Application startup complete"
TOKEN = "tutti1-0011aabb-00112233445566778899aabbccddeeff"
PORTS = iter(random.sample(range(20000, 32000, 150), 80))  # in another order for each script, as two may run side by side
SMALLEST_GAP = 0.1  # of the two best logits: below it rounding may choose the other
# Of the logits' deviation, for the same prompt on another layout in BF16. Another order of summing gives some hundredths, a
# wrong cut 1.4.
LARGEST_ERROR = 0.1


class Failed(Exception):
    pass


class UnixConnection(http.client.HTTPConnection):
    def __init__(self, path, timeout):
        super().__init__("localhost", timeout=timeout)
        self.path = path

    def connect(self):
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(self.timeout)
        self.sock.connect(self.path)


def leave_nothing():
    """From now on a SIGTERM, as `timeout` sends it, ends this script and all that it has started."""
    def ended(*_):
        for process in Process.started:
            if process.process.poll() is None:
                process.process.kill()  # its ranks die with it
        sys.exit("ended by a signal")
    signal.signal(signal.SIGTERM, ended)


def children_of(pid):
    try:
        return [int(c) for task in pathlib.Path(f"/proc/{pid}/task").iterdir() for c in (task / "children").read_text().split()]
    except OSError:
        return []


class Process:
    """A tutti process with its log in a file."""

    started = []

    def __init__(self, command, log, environment):
        self.log_path = pathlib.Path(log)
        self.command = list(map(str, command))
        with open(self.log_path, "w") as out:
            self.process = subprocess.Popen(self.command, env=environment, stdin=subprocess.DEVNULL, stdout=out, stderr=out)
        Process.started.append(self)

    @property
    def pid(self):
        return self.process.pid

    def log(self):
        return self.log_path.read_text(errors="replace")

    def wait_for(self, pattern, timeout):
        deadline = time.monotonic() + timeout
        while True:
            ended = self.process.poll() is not None
            if found := re.search(pattern, self.log()):
                return found
            if ended or time.monotonic() > deadline:
                raise Failed(f"no /{pattern}/ within {timeout} s (exit code {self.process.poll()}): {self.log()[-1500:]}")
            time.sleep(0.05)

    def wait_exit(self, timeout):
        try:
            return self.process.wait(timeout)
        except subprocess.TimeoutExpired:
            raise Failed(f"still runs after {timeout} s: {self.log()[-1500:]}") from None

    def end(self, timeout=20):
        """Asks it to end; True when it did."""
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
            try:
                self.process.wait(timeout)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()
                return False
        return True


class Server:
    """`flags` follow `tutti serve MODEL`. `nodes`: rank 1 is on the second node, with a worker that `worker` is or becomes."""

    def __init__(self, tutti, model, flags, out, name, nodes=None, worker=None, environment=None, ready=120):
        self.folder = tempfile.TemporaryDirectory(prefix="tutti-gpus-")
        self.socket = f"{self.folder.name}/api"
        self.name, self.worker, self.owns_worker = name, worker, False
        base = {**os.environ, "TUTTI_HOME": f"{self.folder.name}/home", "TUTTI_CLUSTER_TOKEN": TOKEN, **(environment or {})}
        port = worker.port if worker else next(PORTS)
        serve = [tutti, "serve", model, "--uds", self.socket, "--master-port", port, "--disable-log-stats", *flags]
        begin = time.monotonic()
        if nodes:
            serve = nodes.command(0, [*serve, "--nnodes", 2, "--master-addr", nodes.addresses[0]])
            base["CUDA_VISIBLE_DEVICES"] = "0"
            if not worker:
                join = [tutti, "worker", "--master-ip", nodes.addresses[0], "--master-port", port, "--port", 0]
                self.worker = Process(nodes.command(1, join), out / f"{name}.worker.log",
                                      {**base, "CUDA_VISIBLE_DEVICES": "1", "TUTTI_HOME": f"{self.folder.name}/worker"})
                self.worker.port, self.worker.folder, self.owns_worker = port, self.folder, True
        self.head = Process(serve, out / f"{name}.log", base)
        try:
            self.head.wait_for(READY, ready)
        except Failed:
            self.close()
            raise
        self.ready_s = time.monotonic() - begin

    def close(self, keep_worker=False):
        ended = self.head.end()
        if self.worker and not keep_worker:
            ended = self.worker.end() and ended
        return ended

    def connection(self, body, timeout):
        connection = UnixConnection(self.socket, timeout)
        connection.request("POST", "/v1/completions", json.dumps(body), {"Content-Type": "application/json"})
        return connection

    def complete(self, prompt, max_tokens, timeout=60, **fields):
        body = {"prompt": prompt, "max_tokens": max_tokens, "temperature": 0, "ignore_eos": True, "return_token_ids": True, **fields}
        connection = self.connection(body, timeout)
        response = connection.getresponse()
        text = response.read().decode(errors="replace")
        connection.close()
        if response.status != 200:
            raise Failed(f"{self.name} answered {response.status}: {text[:500]}")
        return json.loads(text)["choices"][0]

    def stream(self, prompt, max_tokens, timeout=60):
        """(seconds since the request, event) as they come."""
        begin = time.monotonic()
        connection = self.connection({"prompt": prompt, "max_tokens": max_tokens, "temperature": 0, "ignore_eos": True, "stream": True}, timeout)
        for line in connection.getresponse():
            if line.startswith(b"data: {"):
                yield time.monotonic() - begin, json.loads(line[6:])
        connection.close()

    def answer(self, prompts, max_tokens):
        """Tokens that the ranks chose, and what the model thinks of the prompts' own tokens."""
        answers = []
        for prompt in prompts:
            chosen = self.complete(prompt, max_tokens)["token_ids"]
            scored = self.complete(prompt, 1, prompt_logprobs=1)["prompt_logprobs"]
            answers.append({"tokens": chosen, "scores": [entry[str(token)]["logprob"] for token, entry in zip(prompt[1:], scored[1:])]})
        return answers

    def gaps(self, prompts, max_tokens):
        """How far each token of an answer leads."""
        all_gaps = []
        for prompt in prompts:
            told = self.complete(prompt, max_tokens, logprobs=2, return_tokens_as_token_ids=True)["logprobs"]["top_logprobs"]
            best = [sorted(entry.values(), reverse=True) for entry in told]
            all_gaps.append([values[0] - values[1] for values in best])
        return all_gaps


def random_prompts(count, length, vocabulary, seed=1):
    numbers = random.Random(seed)
    return [[numbers.randrange(3, vocabulary) for _ in range(length)] for _ in range(count)]


def compare(reference, gaps, answers):
    """Tokens are judged up to the first whose lead is so small that rounding may have chosen it; the scores all. Raises Failed."""
    judged, same, total, errors, scores = 0, 0, 0, [], []
    for i, (expected, got) in enumerate(zip(reference, answers)):
        certain = next((t for t, gap in enumerate(gaps[i]) if gap < SMALLEST_GAP), len(gaps[i]))
        differs = next((t for t, (a, b) in enumerate(zip(expected["tokens"], got["tokens"])) if a != b), len(expected["tokens"]))
        if differs < certain:
            raise Failed(f"prompt {i}: token {differs} differs, which led by {gaps[i][differs]:.3f}")
        judged, same, total = judged + certain, same + differs, total + len(expected["tokens"])
        errors += [a - b for a, b in zip(expected["scores"], got["scores"])]
        scores += expected["scores"]
    error = math.sqrt(sum(e * e for e in errors) / len(errors)) / statistics.pstdev(scores)
    if judged == 0:
        raise Failed("no token of the answers is certain enough to be compared")
    if not error < LARGEST_ERROR:
        raise Failed(f"the scores of the prompts' tokens differ by {error:.3f} of their deviation, at most {LARGEST_ERROR} is rounding")
    return {"judged_tokens": judged, "same_tokens": same, "tokens": total, "score_error": round(error, 5)}
