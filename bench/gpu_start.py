#!/usr/bin/env python3
"""From the start of `tutti serve` on one GPU to the first token of its first request, weights read from files in memory.

    bench/gpu_start.py --build build-cuda [--jobs small,8b,70b-fp8] [--folder /dev/shm] [--starts 2] > start.json

For each job scripts/make_random_model.py writes a model to a folder of its own under --folder; where there is too little room,
root gets a tmpfs there (70 GB need that much memory, beside some for the server). Files of a tmpfs stand for files that the page
cache holds. The first start of a job knows of no kernel choices, later ones do. The API is asked every few milliseconds; once it
is ready a request is streamed. The server's progress is read from a terminal, where it is drawn twice a second. `small` says what
a start takes without weights, and brings program and libraries into the page cache. `--device cpu --jobs small` is a dry run.
"""

import argparse
import contextlib
import http.client
import json
import os
import pathlib
import platform
import pty
import re
import shutil
import subprocess
import sys
import tempfile
import threading
import time

ROOT = pathlib.Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT / "bench"), str(ROOT / "scripts")]
from gpu_server import PORTS, Failed, Process, leave_nothing  # noqa: E402
from make_random_model import SHAPES, bytes_of, tensors_of  # noqa: E402

# name -> shape, weights, seconds that a start may take
JOBS = {"small": ("small", "bf16", None), "small-fp8": ("small", "fp8", None), "8b": ("llama-3-8b", "bf16", 6),
        "8b-fp8": ("llama-3-8b", "fp8", None), "70b-fp8": ("llama-2-70b", "fp8", 20)}
SPARE_BYTES = 64 << 20  # tokenizer, index, headers, what the server keeps
TOKENS = 8
ENDS_S = 10  # a server has to


class Start(Process):
    """A tutti process on a terminal of ours. `lines`: (seconds since its start, text)."""

    def __init__(self, command, environment):
        ours, theirs = pty.openpty()
        self.lines, self.begin = [], time.monotonic()
        self.process = subprocess.Popen(list(map(str, command)), env=environment, stdin=subprocess.DEVNULL, stdout=theirs, stderr=theirs)
        os.close(theirs)
        Process.started.append(self)
        self.reader = threading.Thread(target=self.read, args=(ours,), daemon=True)
        self.reader.start()

    def seconds(self):
        return time.monotonic() - self.begin

    def read(self, terminal):
        rest = ""
        with contextlib.suppress(OSError):  # nobody has the other end any more
            while data := os.read(terminal, 1 << 16):
                *whole, rest = re.split(r"[\r\n]+|\033\[K", rest + data.decode(errors="replace"))
                self.lines += [(self.seconds(), line) for line in whole if line]
        os.close(terminal)

    def log(self):
        return "\n".join(line for _, line in list(self.lines))

    def wait_ready(self, port, deadline):
        while self.process.poll() is None and time.monotonic() < deadline:
            with contextlib.suppress(OSError, http.client.HTTPException):
                with contextlib.closing(http.client.HTTPConnection("127.0.0.1", port, timeout=1)) as connection:
                    connection.request("GET", "/health")
                    if connection.getresponse().status == 200:
                        return self.seconds()
            time.sleep(0.003)
        self.reader.join(1)
        raise Failed(f"not ready after {self.seconds():.1f} s (exit code {self.process.poll()}): {self.log()[-1500:]}")

    def first_token(self, port, deadline):
        """Seconds until it came; all tokens must."""
        body = {"prompt": "Once upon a time", "max_tokens": TOKENS, "temperature": 0, "ignore_eos": True, "stream": True, "return_token_ids": True}
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=max(1, deadline - time.monotonic()))
        connection.request("POST", "/v1/completions", json.dumps(body), {"Content-Type": "application/json"})
        response = connection.getresponse()
        first, ids, text = None, [], ""
        for line in response:
            text = line.decode(errors="replace")
            if response.status == 200 and text.startswith("data: {") and (event := json.loads(text[6:])).get("choices"):
                ids += event["choices"][0].get("token_ids") or []
                first = first or (self.seconds() if ids else None)
        if response.status != 200 or len(ids) != TOKENS:
            raise Failed(f"answered {response.status} with {len(ids)} of {TOKENS} tokens: {text[:500]}")
        return first

    def told(self):
        """What the server says of its start; how far it has read, once ranks have been loading for two seconds."""
        stages, read = {}, []
        for seconds, line in list(self.lines):
            if bar := re.search(r"weights +\[.*% +([\d.]+) ([MG])B of ", line):
                read.append((seconds, float(bar[1]) / (1 if bar[2] == "G" else 1e3)))
            elif fact := re.match(r" *[\d.]+ s +(\S+)", line):
                stages.setdefault("weights read" if read and fact[1] == "start" else fact[1], round(seconds, 2))
        log = re.sub(r"\s+", " ", self.log())
        found = {name: re.search(pattern, log) for name, pattern in (
            ("loaded", r"weights (\S+ \wB on \d+ ranks? in [\d.]+ s)"), ("ranks", r"slowest ranks: (.*?) [\d.]+ s memory"),
            ("memory", r"memory ([\d.]+ GiB a .*?) Available KV"), ("ready", r"startup complete\. ([\d.]+ s of work)"))}
        told = {"stages_s": stages, **{name: match[1] for name, match in found.items() if match}}
        if read and (seconds := read[-1][0] - read[0][0]) > 0.4:
            told["read_gb_per_s"] = round((read[-1][1] - read[0][1]) / seconds, 2)
            told["read_gb"] = [f"{gb:.1f} at {at:.2f} s" for at, gb in (read[0], read[-1])]
        return told


class Starts:
    def __init__(self, args):
        self.args, self.end = args, time.monotonic() + args.limit
        self.tutti = os.path.abspath(f"{args.build}/tutti")
        self.rows, self.failures = [], []

    def row(self, name, **found):
        self.rows.append({"job": name, **found})
        print(self.rows[-1], file=sys.stderr, flush=True)

    @contextlib.contextmanager
    def room(self, size):
        """A folder for that many bytes, gone afterwards."""
        folder, mounted = tempfile.mkdtemp(prefix="tutti-start-", dir=self.args.folder), False
        try:
            stats = os.statvfs(folder)
            if stats.f_bavail * stats.f_frsize < size:
                if os.geteuid() != 0:
                    raise Failed(f"{self.args.folder} has no room for {size / 1e9:.1f} GB: --folder says where else")
                subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size},mode=0700", "tutti", folder], check=True, timeout=10)
                mounted = True
            yield pathlib.Path(folder)
        finally:
            if mounted:
                subprocess.run(["umount", "-l", folder], timeout=20)
            shutil.rmtree(folder, ignore_errors=True)

    def write(self, name, folder, size):
        shape, weights, _ = JOBS[name]
        begin = time.monotonic()
        script = [sys.executable, ROOT / "scripts" / "make_random_model.py", folder / "model", "--shape", shape, "--weights", weights]
        writer = Process(script, folder / "writer.log", os.environ)
        try:
            if writer.wait_exit(max(1, min(120, self.end - begin))) != 0:
                raise Failed(f"the model was not written (exit code {writer.process.poll()}): {writer.log()[-1000:]}")
        finally:
            writer.end(1)
        seconds, files = time.monotonic() - begin, len(list((folder / "model").glob("*.safetensors")))
        self.row(name, kind="files", gb=round(size / 1e9, 2), files=files, seconds=round(seconds, 1), gb_per_s=round(size / 1e9 / seconds, 2))

    def start(self, name, folder, number):
        port, bar = next(PORTS), JOBS[name][2]
        flags = ["--device", self.args.device, "--disable-log-stats", "--port", port, "--master-port", port + 1, *self.args.serve_flags,
                 *([] if self.args.device == "cuda" else ["--kv-cache-memory-bytes", "256M"])]
        server = Start([self.tutti, "serve", folder / "model", *flags], dict(os.environ, TUTTI_HOME=str(folder / "home")))
        try:
            deadline = min(self.end, server.begin + 90)
            ready = server.wait_ready(port, deadline)
            try:
                first = server.first_token(port, deadline)
            except (OSError, http.client.HTTPException) as reason:
                raise Failed(f"no first token: {reason!r}: {server.log()[-1500:]}") from None
            ended = time.monotonic()
            clean = server.end(ENDS_S)
            server.reader.join(2)
            self.row(name, kind="start", number=number, kernel_choices="known" if number > 1 else "not known", exec_to_ready_s=round(ready, 2),
                     exec_to_first_token_s=round(first, 2), **({"bar_s": bar, "within_bar": first <= bar} if bar else {}),
                     ended_in_s=round(time.monotonic() - ended, 1), ended_by_itself=clean, **server.told())
        finally:
            server.end(ENDS_S)

    def run(self, names):
        for name in names:
            shape, weights, _ = JOBS[name]
            size = sum(bytes_of(*tensor[:2]) for tensor in tensors_of(shape, SHAPES[shape][3], weights == "fp8").values())
            try:
                with self.room(size + SPARE_BYTES) as folder:
                    self.write(name, folder, size)
                    for number in range(1, self.args.starts + 1):
                        self.start(name, folder, number)
            except (Failed, OSError, KeyError, ValueError, http.client.HTTPException, subprocess.SubprocessError) as reason:
                self.failures.append(f"{name}: {reason}")
                print(f"FAILED {self.failures[-1]}", file=sys.stderr, flush=True)


def memory():
    told = dict(line.split(":") for line in pathlib.Path("/proc/meminfo").read_text().splitlines())
    return {key: told[key].strip() for key in ("MemTotal", "MemAvailable")}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", default="build-cuda")
    parser.add_argument("--jobs", default="small,8b,70b-fp8", type=lambda text: text.split(","), help=f"of {', '.join(JOBS)}")
    parser.add_argument("--folder", default="/dev/shm", help="where models are written, and removed again")
    parser.add_argument("--starts", type=int, default=2)
    parser.add_argument("--serve-flags", default=[], type=str.split, help="more flags for the server: --serve-flags='--max-num-seqs 128'")
    parser.add_argument("--device", default="cuda", choices=["cuda", "cpu"])
    parser.add_argument("--limit", type=float, default=240, help="seconds for everything")
    parser.add_argument("--commit", default="")
    args = parser.parse_args()
    if unknown := set(args.jobs) - set(JOBS):
        parser.error(f"--jobs {','.join(sorted(unknown))}: expected {', '.join(JOBS)}")
    leave_nothing()
    gpus = subprocess.run(["nvidia-smi", "--query-gpu=name,driver_version", "--format=csv,noheader"], capture_output=True, timeout=30,
                          text=True).stdout.splitlines() if args.device == "cuda" else []
    before, starts = memory(), Starts(args)
    starts.run(args.jobs)
    commit = args.commit or subprocess.run(["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True).stdout.strip()
    json.dump({"what": "seconds from exec of tutti serve to the first streamed token; random weights from files in memory", "gpus": gpus,
               "machine": f"{platform.machine()}, {os.cpu_count()} processors, Linux {platform.release()}", "memory": [before, memory()],
               "commit": commit, "command": "bench/gpu_start.py " + " ".join(os.path.basename(a) if a.startswith("/") else a for a in sys.argv[1:]),
               "failures": starts.failures, "results": starts.rows}, sys.stdout, indent=1)
    print()
    return 1 if starts.failures else 0


if __name__ == "__main__":
    sys.exit(main())
