"""`tutti bench`: the numbers add up, the file has vLLM's keys, and what cannot be is said."""
import json
import pathlib
import re
import subprocess
import time
import unittest

from api_server import KEY, MODEL, SMALL, ApiTest
from cluster_harness import BINARY

METRICS = [f"{stat}_{name}_ms" for name in ("ttft", "tpot", "itl", "e2el") for stat in ("mean", "median", "std", "p50", "p99")]


def bench(*arguments, timeout=120):
    return subprocess.run([BINARY, "bench", *map(str, arguments)], capture_output=True, text=True, timeout=timeout)


class BenchServe(ApiTest):
    CONFIG = SMALL

    def serve(self, *flags):
        return bench("serve", "--port", self.port, "--api-key", KEY, "--ignore-eos", *flags)

    def test_numbers_add_up(self):
        folder = pathlib.Path(self.folder.name) / "results" / "of today"  # made by the benchmark
        done = self.serve("--num-prompts", 12, "--random-input-len", 30, "--random-output-len", 9, "--max-concurrency", 4,
                          "--percentile-metrics", "ttft,tpot,itl,e2el", "--metric-percentiles", "50,99", "--save-result",
                          "--save-detailed", "--result-dir", folder, "--goodput", "ttft:60000", "--metadata", "machine=here")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("============ Serving Benchmark Result ============\nSuccessful requests:                     12        \n", done.stdout)
        for label in ("Failed requests:", "Maximum request concurrency:", "Request goodput (req/s):", "Mean TTFT (ms):", "P99 E2EL (ms):"):
            self.assertIn(label, done.stdout)
        files = list(folder.glob(f"openai-infqps-concurrency4-{MODEL}-*.json"))
        self.assertEqual(len(files), 1, list(folder.iterdir()))
        result = json.loads(files[0].read_text())
        self.assertEqual((result["completed"], result["failed"], result["num_prompts"]), (12, 0, 12))
        self.assertEqual((result["total_input_tokens"], result["total_output_tokens"]), (12 * 30, 12 * 9))
        self.assertEqual(result["input_lens"], [30] * 12)
        self.assertEqual(result["output_lens"], [9] * 12)
        self.assertAlmostEqual(result["output_throughput"], 108 / result["duration"], places=3)
        self.assertAlmostEqual(result["request_goodput"], 12 / result["duration"], places=3)
        self.assertLessEqual(result["max_concurrent_requests"], 12)
        self.assertEqual((result["request_rate"], result["max_concurrency"], result["machine"]), ("inf", 4, "here"))
        for key in METRICS:
            self.assertGreaterEqual(result[key], 0, key)
        for key in ("date", "backend", "label", "model_id", "tokenizer_id", "burstiness", "request_throughput", "total_token_throughput",
                    "max_output_tokens_per_s", "ttfts", "itls", "start_times", "latencies", "generated_texts", "errors"):
            self.assertIn(key, result)
        for i in range(12):
            self.assertLess(abs(result["ttfts"][i] + sum(result["itls"][i]) - result["latencies"][i]), 1e-6)

    def test_rates_chats_and_prefixes(self):
        chat = self.serve("--backend", "openai-chat", "--num-prompts", 6, "--input-len", 12, "--output-len", 4, "--request-rate", 30,
                          "--burstiness", 2, "--num-warmups", 1)
        self.assertEqual(chat.returncode, 0, chat.stderr)
        self.assertIn(f"(model {MODEL}), 30 a second (burstiness 2)\n", chat.stderr)
        self.assertRegex(chat.stdout, r"Request rate configured \(RPS\): +30.00")
        self.assertRegex(chat.stdout, r"Total generated tokens: +24 ")
        prefixes = self.serve("--dataset-name", "prefix_repetition", "--num-prompts", 8, "--prefix-repetition-prefix-len", 64,
                              "--prefix-repetition-suffix-len", 8, "--prefix-repetition-num-prefixes", 2, "--output-len", 2)
        self.assertEqual(prefixes.returncode, 0, prefixes.stderr)
        self.assertIn(f"8 requests to http://127.0.0.1:{self.port}/v1/completions (model {MODEL}), all at once\n", prefixes.stderr)
        self.assertNotIn(" done, ", prefixes.stderr)  # no progress of a load that is over at once
        self.assertRegex(prefixes.stdout, r"Total input tokens: +576 ")

    def test_failures_are_counted_and_named(self):
        done = self.serve("--num-prompts", 3, "--random-input-len", 5000, "--random-output-len", 2)
        self.assertEqual(done.returncode, 1)
        self.assertRegex(done.stdout, r"Failed requests: +3 ")
        self.assertIn("3 of 3 requests failed, the first one: the server answers 400: ", done.stderr)

    def test_a_place_that_cannot_be_written_is_said_before_the_load(self):
        done = self.serve("--num-prompts", 2, "--save-result", "--result-dir", "/proc/results")
        self.assertEqual(done.returncode, 2, done.stderr)
        self.assertIn("cannot write results to /proc/results", done.stderr)
        self.assertNotIn(" load ", done.stderr)
        self.assertEqual(done.stdout, "")

    def test_what_cannot_be_is_said(self):
        for flags, message in ((("--backend", "tgi"), "--backend tgi: expected openai"), (("--request-rate", "0"), "--request-rate 0"),
                               (("--dataset-name", "sonnet"), "--dataset-name sonnet"), (("--goodput", "ttft"), "--goodput ttft"),
                               (("--use-beam-search",), "--use-beam-search cannot be had"), (("--num-promts", "3"), "near: --num-prompts"),
                               (("--percentile-metrics", "foo"), "--percentile-metrics foo"), (("--tokenizer", "/none"), "--tokenizer /none: it is not here or in the Hugging Face cache")):
            done = self.serve(*flags)
            self.assertEqual(done.returncode, 2, done.stderr)
            self.assertIn(message, done.stderr)
        tls = bench("serve", "--base-url", "https://127.0.0.1:1")
        self.assertEqual(tls.returncode, 2)
        self.assertIn("--base-url https://127.0.0.1:1: expected http://HOST:PORT. This client speaks plain HTTP only", tls.stderr)
        nobody = bench("serve", "--port", 1)
        self.assertEqual(nobody.returncode, 2)
        self.assertIn("no server at 127.0.0.1:1", nobody.stderr)
        self.assertIn("there is no `tutti bench sweep`", bench("sweep").stderr)
        self.assertIn("near: serve", bench("srve").stderr)


class BenchOffline(ApiTest):
    CONFIG = SMALL

    def flags(self):
        model = str(pathlib.Path(self.folder.name) / "model")
        return (model, "--load-format", "dummy", "--max-model-len", 512, "--kv-cache-memory-bytes", "64M", "--no-enable-prefix-caching")

    def test_latency(self):
        file = pathlib.Path(self.folder.name) / "latency.json"
        done = bench("latency", *self.flags(), "--input-len", 8, "--output-len", 4, "--batch-size", 2, "--num-iters-warmup", 1,
                     "--num-iters", 3, "--output-json", file)
        self.assertEqual(done.returncode, 0, done.stderr)
        mean = float(re.search(r"^Avg latency: (\S+) seconds$", done.stdout, re.MULTILINE)[1])
        self.assertEqual(re.findall(r"^(\d+)% percentile latency", done.stdout, re.MULTILINE), ["10", "25", "50", "75", "90", "99"])
        result = json.loads(file.read_text())
        self.assertEqual(len(result["latencies"]), 3)
        self.assertAlmostEqual(sum(result["latencies"]) / 3, mean, places=6)

    def test_throughput(self):
        done = bench("throughput", *self.flags(), "-tp", 2, "--num-prompts", 6, "--input-len", 16, "--output-len", 5)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertRegex(done.stdout, r"^Throughput: [\d.]+ requests/s, [\d.]+ total tokens/s, [\d.]+ output tokens/s\n"
                                      r"Total num prompt tokens:  96\nTotal num output tokens:  30\n$")
        too_long = bench("throughput", *self.flags(), "--num-prompts", 1, "--input-len", 600, "--output-len", 5)
        self.assertEqual(too_long.returncode, 2)
        self.assertIn("more than --max-model-len 512", too_long.stderr)


class Help(unittest.TestCase):
    def test_every_benchmark_and_the_true_defaults(self):
        usage = subprocess.run([BINARY, "--help"], capture_output=True, text=True, timeout=60).stdout
        for name in ("serve", "latency", "throughput", "comm"):
            self.assertIn(f"bench {name}", usage)
        self.assertIn("(1K,8K,64K,1M,4M,16M,64M)", bench("comm", "--help").stdout.replace("\n", "").replace(" ", ""))


class BenchComm(unittest.TestCase):
    FLAGS = ["comm", "--transport", "shm", "--sizes", "1K,8k", "--collectives", "all-reduce,send-recv"]

    def test_table(self):
        done = bench(*self.FLAGS, "--ranks", 3)
        self.assertEqual(done.returncode, 0, done.stderr)
        lines = done.stdout.splitlines()
        self.assertEqual(lines[0], "3 ranks, shm, F32")
        self.assertEqual(lines[1].split(), ["collective", "bytes", "p50", "us", "best", "us", "p99", "us"])
        self.assertEqual([line.split()[:2] for line in lines[2:]], [["all-reduce", "1024"], ["all-reduce", "8000"], ["send-recv", "1024"],
                                                                    ["send-recv", "8000"]])

    def test_json(self):
        done = bench(*self.FLAGS, "--json")
        self.assertEqual(done.returncode, 0, done.stderr)
        found = json.loads(done.stdout)
        self.assertEqual((found["transport"], found["ranks"], len(found["results"])), ("shm", 2, 4))
        for row in found["results"]:
            self.assertLessEqual(row["min_us"], row["p50_us"])
            self.assertLessEqual(row["p50_us"], row["p99_us"])
            self.assertGreater(row["min_us"], 0)

    def test_a_rank_that_fails_ends_the_others(self):
        begin = time.monotonic()
        done = bench("comm", "--transport", "tcp", "--ranks", 2, "--sizes", 1024, "--addresses", "127.0.0.1,192.0.2.77")
        self.assertEqual(done.returncode, 5, done.stderr)
        self.assertRegex(done.stderr, r"error +rank 1: .*192\.0\.2\.77")
        self.assertLess(time.monotonic() - begin, 10, done.stderr)

    def test_refusals(self):
        for flags, why in (([*self.FLAGS[:-1], "gossip"], "--collectives gossip: expected all-reduce,"),
                           (["comm", "--transport", "pigeon"], "--transport pigeon: expected auto,"),
                           (["comm", "--ranks", 1], "--ranks 1: expected 2 to 64"),
                           (["comm", "--netns", "a"], "--netns and --addresses need one entry for each of the 2 ranks")):
            done = bench(*flags)
            self.assertEqual(done.returncode, 2, done.stderr)
            self.assertIn(why, done.stderr)


if __name__ == "__main__":
    unittest.main()
