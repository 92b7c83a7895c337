#!/usr/bin/env python3
"""Random models of known shapes on one GPU and on two, through `tutti serve` and `tutti bench serve`.

    bench/gpu_sweep.py --build build-cuda --out FOLDER [--jobs 8b,8b-fp8,70b,70b-fp8] > sweep.json

Each job starts a server for each layout and loads it with 1, 8, 32 and 128 requests at once (480 tokens in, 64 out), with
prompts of 2048 tokens one by one, and 70b on the fewest GPUs that hold it also with 1024 in, 256 out, 32 and 64 at once.
Servers of one GPU run side by side, one a GPU. A step's time is the median gap between two tokens of a request, and steady
decode is all that run at once over that. What a model that does not fit one GPU would take there is told from models of 20 and
40 of its layers. `--layouts` and `--batches` choose less. `--device cpu --jobs small` is a dry run.
"""

import argparse
import concurrent.futures
import json
import os
import pathlib
import platform
import re
import subprocess
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
from gpu_server import PORTS, READY, Failed, Process, leave_nothing  # noqa: E402

BATCHES = [1, 8, 32, 128]
INPUT, OUTPUT = 480, 64
LAYOUTS = {"tp1": ["-tp", 1], "tp2": ["-tp", 2], "pp2": ["-pp", 2]}


class Job:
    def __init__(self, shape, dtype, layout, layers=None, batches=None, article=()):
        self.shape, self.dtype, self.layout, self.layers = shape, dtype, layout, layers
        self.batches, self.article = batches or BATCHES, article  # article: (at once, requests)

    @property
    def name(self):
        return f"{self.shape}{f'-{self.layers}-layers' if self.layers else ''}_{self.dtype}_{self.layout}"


# Jobs in one list run at the same time, the first on GPU 0.
STAGES = {
    "small": [[Job("small", "bf16", "tp1", batches=[1, 2], article=[(2, 4)])], [Job("small", "bf16", "tp2", batches=[1, 2])]],
    "8b": [[Job("llama-3-8b", "bf16", "tp1"), Job("llama-2-70b", "bf16", "tp1", layers=20, batches=[1])],
           [Job("llama-3-8b", "bf16", "tp2")], [Job("llama-3-8b", "bf16", "pp2")]],
    "8b-fp8": [[Job("llama-3-8b", "fp8", "tp1"), Job("llama-2-70b", "bf16", "tp1", layers=40, batches=[1])],
               [Job("llama-3-8b", "fp8", "tp2")], [Job("llama-3-8b", "fp8", "pp2")]],
    "70b": [[Job("llama-2-70b", "bf16", "tp2", article=[(32, 32), (64, 64)])], [Job("llama-2-70b", "bf16", "pp2")]],
    "70b-fp8": [[Job("llama-2-70b", "fp8", "tp1", article=[(32, 64)])], [Job("llama-2-70b", "fp8", "tp2")],
                [Job("llama-2-70b", "fp8", "pp2", batches=[1, 32])]],
}


class Sweep:
    def __init__(self, args):
        self.args = args
        self.tutti = os.path.abspath(f"{args.build}/tutti")
        self.rows, self.failures = [], []
        self.end = time.monotonic() + args.limit

    def model(self, job):
        folder = self.args.out / f"model-{job.shape}-{job.layers or 'all'}"
        if not folder.exists():
            script = pathlib.Path(__file__).resolve().parents[1] / "scripts" / "make_random_model.py"
            layers = ["--layers", job.layers] if job.layers else []
            subprocess.run(list(map(str, [sys.executable, script, folder, "--shape", job.shape, *layers])), check=True,
                           stdout=subprocess.DEVNULL)
        return folder

    def row(self, job, **found):
        row = {"model": job.shape, **({"layers": job.layers} if job.layers else {}), "dtype": job.dtype, "layout": job.layout, **found}
        self.rows.append(row)
        print(row, file=sys.stderr, flush=True)

    def load(self, job, port, name, at_once, prompts, length, output):
        result = self.args.out / f"{job.name}_{name}.json"
        command = [self.tutti, "bench", "serve", "--port", port, "--num-prompts", prompts, "--max-concurrency", at_once,
                   "--random-input-len", length, "--random-output-len", output, "--ignore-eos", "--save-result", "--result-dir",
                   result.parent, "--result-filename", result.name, "--disable-tqdm", "--metric-percentiles", "50,99"]
        done = subprocess.run(list(map(str, command)), capture_output=True, text=True, timeout=max(1, self.end - time.monotonic()))
        if done.returncode != 0:
            raise Failed(f"{name}: {(done.stderr or done.stdout)[-500:]}")
        found = json.loads(result.read_text())
        if found["failed"] or found["completed"] != prompts:
            raise Failed(f"{name}: {found['completed']} of {prompts} requests were answered")
        return found

    def measure(self, job, port, ready_s, log):
        slowest = re.search(r"slowest ranks: (.*)", log)
        memory = re.search(r"memory +(.* a GPU: .*)", log)
        self.row(job, kind="start", ready_s=round(ready_s, 1), **({"slowest_ranks": slowest.group(1)} if slowest else {}),
                 **({"memory": memory.group(1)} if memory else {}))
        self.load(job, port, "warm", 2, 2, 64, 8)
        for batch in self.args.batches or job.batches:
            found = self.load(job, port, f"batch{batch}", batch, max(2, batch), INPUT, OUTPUT)
            step = found["median_itl_ms"]
            self.row(job, kind="decode", batch=batch, step_ms=round(step, 3), tpot_ms=round(found["median_tpot_ms"], 3),
                     tokens_per_s=round(batch / step * 1e3, 1), output_tokens_per_s=round(found["output_throughput"], 1))
        prompt = 512 if job.shape == "small" else self.args.prefill
        found = self.load(job, port, "prefill", 1, 4, prompt, 1)
        self.row(job, kind="prefill", tokens=prompt, ms=round(found["median_ttft_ms"], 1),
                 tokens_per_s=round(prompt / found["median_ttft_ms"] * 1e3))
        for at_once, requests in job.article:
            found = self.load(job, port, f"article{at_once}", at_once, requests, 1024, 256)
            self.row(job, kind="1024 in, 256 out", at_once=at_once, requests=requests, seconds=round(found["duration"], 2),
                     output_tokens_per_s=round(found["output_throughput"], 1), total_tokens_per_s=round(found["total_token_throughput"], 1),
                     ttft_ms=round(found["median_ttft_ms"], 1), p99_ttft_ms=round(found["p99_ttft_ms"], 1), tpot_ms=round(found["median_tpot_ms"], 2),
                     p99_tpot_ms=round(found["p99_tpot_ms"], 2), step_ms=round(found["median_itl_ms"], 3),
                     steady_decode_tokens_per_s=round(at_once / found["median_itl_ms"] * 1e3, 1))

    def run_job(self, job, gpu, devices):
        folder = self.model(job)
        port = next(PORTS)
        flags = ["--load-format", "dummy", "--device", self.args.device, "--max-model-len", 2048 if job.shape == "small" else self.args.max_model_len, "--max-num-seqs", 128,
                 "--max-num-batched-tokens", 8192, "--no-enable-prefix-caching", "--disable-log-stats", "--master-port", port + 1,
                 *LAYOUTS[job.layout], *(["--quantization", "fp8"] if job.dtype == "fp8" else []),
                 *([] if self.args.device == "cuda" else ["--kv-cache-memory-bytes", "256M"])]
        environment = dict(os.environ, TUTTI_HOME=str(self.args.out / "home"))
        if job.layout == "tp1":
            environment["CUDA_VISIBLE_DEVICES"] = devices[gpu]
        begin = time.monotonic()
        server = Process([self.tutti, "serve", folder, "--port", port, *flags], self.args.out / f"{job.name}.log", environment)
        try:
            server.wait_for(READY, min(240, self.end - begin))
            self.measure(job, port, time.monotonic() - begin, server.log())
        except (Failed, OSError, KeyError, subprocess.TimeoutExpired) as reason:
            self.failures.append(f"{job.name}: {reason}")
            print(f"FAILED {self.failures[-1]}", file=sys.stderr, flush=True)
        finally:
            server.end()

    def run(self, names):
        devices = (os.environ.get("CUDA_VISIBLE_DEVICES") or "0,1").split(",")
        for name in names:
            for stage in STAGES[name]:
                stage = [job for job in stage if job.layout in (self.args.layouts or LAYOUTS) and not (self.args.whole and job.layers)]
                if stage and time.monotonic() > self.end - 20:
                    self.failures.append(f"not run for want of time: {', '.join(job.name for job in stage)}")
                    continue
                with concurrent.futures.ThreadPoolExecutor(max(1, len(stage))) as pool:
                    list(pool.map(lambda numbered: self.run_job(numbered[1], numbered[0], devices), enumerate(stage)))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", default="build-cuda")
    parser.add_argument("--out", type=pathlib.Path, default=pathlib.Path("multi_gpu_results"))
    parser.add_argument("--jobs", default="8b,8b-fp8,70b,70b-fp8", type=lambda text: text.split(","))
    parser.add_argument("--layouts", default=[], type=lambda text: text.split(","), help="only these: tp1,tp2,pp2")
    parser.add_argument("--whole", action="store_true", help="no models of fewer layers")
    parser.add_argument("--batches", default=[], type=lambda text: list(map(int, text.split(","))), help="in place of each job's own")
    parser.add_argument("--device", default="cuda", choices=["cuda", "cpu"])
    parser.add_argument("--limit", type=float, default=500, help="seconds for everything; what does not fit is named")
    parser.add_argument("--prefill", type=int, default=2048)
    parser.add_argument("--max-model-len", type=int, default=4096)
    parser.add_argument("--commit", default="")
    args = parser.parse_args()
    args.out.mkdir(parents=True, exist_ok=True)
    leave_nothing()
    sweep = Sweep(args)
    sweep.run(args.jobs)
    commit = args.commit or subprocess.run(["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True).stdout.strip()
    gpus = subprocess.run(["nvidia-smi", "--query-gpu=name,driver_version", "--format=csv,noheader"], capture_output=True,
                          text=True).stdout.splitlines() if args.device == "cuda" else []
    json.dump({"what": f"random weights; decode: {INPUT} in, {OUTPUT} out, step_ms the median gap between tokens", "gpus": gpus,
               "machine": f"{platform.machine()}, {os.cpu_count()} processors, Linux {platform.release()}", "commit": commit,
               "command": "bench/gpu_sweep.py " + " ".join(os.path.basename(a) if a.startswith("/") else a for a in sys.argv[1:]),
               "failures": sweep.failures, "results": sweep.rows}, sys.stdout, indent=1)
    print()
    return 1 if sweep.failures else 0


if __name__ == "__main__":
    sys.exit(main())
