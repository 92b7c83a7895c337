#!/usr/bin/env python3
"""A server with a full KV cache for some minutes: requests of mixed lengths, more than fit, so that some are preempted.

Says how full the cache was, how many preemptions there were, and how the memory of the GPU and of the processes grew after
the first part of the run. Fails when a request fails, when nothing was preempted, or when memory grew by more than 2%.

  bench/near_full_kv.py MODEL --build build-cuda --seconds 300 --json FILE [-- FLAGS OF SERVE]
"""
import argparse
import http.client
import json
import pathlib
import platform
import random
import re
import statistics
import subprocess
import sys
import threading
import time

from serving_client import free_port, wait_ready

MOST_GROWTH = 0.02


class Client(threading.Thread):
    """Sends one request after the other until it is told to stop."""

    def __init__(self, port, seed, options, stop):
        super().__init__(daemon=True)
        self.port, self.random, self.options, self.stop = port, random.Random(seed), options, stop
        self.done, self.tokens, self.errors = 0, 0, []

    def run(self):
        while not self.stop.is_set():
            prompt = [self.random.randrange(self.options.vocabulary) for _ in range(self.random.randint(8, self.options.longest_prompt))]
            count = self.random.randint(8, self.options.longest_answer)
            body = {"prompt": prompt, "max_tokens": count, "temperature": 0, "ignore_eos": True}
            connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=300)
            try:
                connection.request("POST", "/v1/completions", json.dumps(body), {"Content-Type": "application/json"})
                answer = connection.getresponse()
                text = answer.read().decode(errors="replace")
                if answer.status != 200 or json.loads(text)["usage"]["completion_tokens"] != count:
                    self.errors.append(f"{answer.status}: {text[:200]}")
                self.done, self.tokens = self.done + 1, self.tokens + count
            except (OSError, http.client.HTTPException, ValueError) as error:
                self.errors.append(repr(error))
            finally:
                connection.close()


def tree(pid):
    """A process and its descendants."""
    found = [pid]
    for folder in pathlib.Path(f"/proc/{pid}/task").iterdir():
        for child in (folder / "children").read_text().split():
            found += tree(int(child))
    return found


def resident_mib(pids):
    return sum(int(re.search(r"VmRSS:\s+(\d+)", pathlib.Path(f"/proc/{pid}/status").read_text()).group(1)) for pid in pids) / 1024


def ask_gpu(*query):
    return subprocess.run(["nvidia-smi", *query, "--format=csv,noheader,nounits"], capture_output=True, text=True).stdout


def gpu_mib(pids):
    """(MiB that the processes hold on GPUs; False = the driver does not tell processes apart, so all that is used on the first)."""
    lines = [line.split(", ") for line in ask_gpu("--query-compute-apps=pid,used_memory").splitlines()]
    own = [float(used) for pid, used in lines if pid in set(map(str, pids)) and used.isdecimal()]
    return (sum(own), True) if own else (float(ask_gpu("--query-gpu=memory.used", "-i", "0").split()[0]), False)


def metric(port, name):
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=20)
    connection.request("GET", "/metrics")
    text = connection.getresponse().read().decode()
    connection.close()
    return float(re.search(rf"^tutti:{name}{{[^}}]*}} (\S+)", text, re.M).group(1))


def watch(port, pid, clients, options):
    samples, begin = [], time.monotonic()
    while time.monotonic() - begin < options.seconds:
        time.sleep(2)
        pids = tree(pid)
        used, own = gpu_mib(pids)
        samples.append({"at": time.monotonic() - begin, "kv": metric(port, "kv_cache_usage_perc"), "gpu": used, "gpu_own": own,
                        "rss": resident_mib(pids)})
        if any(c.errors for c in clients):
            break
    return samples


def growth(samples, key, settled):
    early = statistics.median(s[key] for s in samples if settled <= s["at"] < settled + 20)
    late = statistics.median(s[key] for s in samples[-10:])
    return early, late, late / early - 1


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("model")
    parser.add_argument("--build", default="build-cuda")
    parser.add_argument("--seconds", type=int, default=300)
    parser.add_argument("--clients", type=int, default=96)
    parser.add_argument("--longest-prompt", type=int, default=2000)
    parser.add_argument("--longest-answer", type=int, default=600)
    parser.add_argument("--vocabulary", type=int, default=250)
    parser.add_argument("--json")
    parser.add_argument("--log", default="near_full_kv.log")
    own = sys.argv[1:sys.argv.index("--")] if "--" in sys.argv else sys.argv[1:]
    options = parser.parse_args(own)
    flags = sys.argv[len(own) + 2:]
    port = free_port()
    command = [f"{options.build}/tutti", "serve", options.model, "--port", str(port), *flags]
    with open(options.log, "w+", encoding="utf-8") as log:
        server = subprocess.Popen(command, stdout=log, stderr=log)
        try:
            wait_ready(server, port, log)
            stop = threading.Event()
            clients = [Client(port, seed, options, stop) for seed in range(options.clients)]
            for client in clients:
                client.start()
            samples = watch(port, server.pid, clients, options)
            preemptions = metric(port, "num_preemptions_total")
            stop.set()
            for client in clients:
                client.join(120)
        finally:
            server.terminate()
            server.wait(60)
    settled = min(120, options.seconds * 0.4)
    gpu, rss = growth(samples, "gpu", settled), growth(samples, "rss", settled)
    busy = [s["kv"] for s in samples if s["at"] > 10]
    errors = [e for c in clients for e in c.errors]
    result = {"what": "a server near its full KV cache", "machine": platform.platform(), "command": " ".join(sys.argv), "server": " ".join(command),
              "seconds": samples[-1]["at"], "clients": options.clients, "requests": sum(c.done for c in clients),
              "output_tokens": sum(c.tokens for c in clients), "preemptions": preemptions, "errors": len(errors), "kv_usage_median": statistics.median(busy),
              "kv_usage_most": max(busy), "gpu_mib_of": "the server's processes" if all(s["gpu_own"] for s in samples) else "all on the GPU",
              "gpu_mib_early": gpu[0], "gpu_mib_end": gpu[1], "gpu_growth": gpu[2],
              "rss_mib_early": rss[0], "rss_mib_end": rss[1], "rss_growth": rss[2]}
    missed = [what for what, bad in (("errors", errors), ("no preemption", preemptions == 0), ("GPU memory grew", gpu[2] > MOST_GROWTH),
                                     ("host memory grew", rss[2] > MOST_GROWTH)) if bad]
    result["missed"] = missed
    text = json.dumps(result, indent=1)
    print(text, *errors[:3], sep="\n")
    if options.json:
        pathlib.Path(options.json).write_text(text + "\n")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
