"""/metrics has the families, labels and buckets that dashboards for vLLM ask for, and their numbers add up."""
import re
import unittest

from api_server import MODEL, SMALL, ApiTest

GAUGES = ["num_requests_running", "num_requests_waiting", "num_requests_waiting_by_reason", "kv_cache_usage_perc", "engine_sleep_state",
          "cache_config_info", "gpu_cache_usage_perc"]
COUNTERS = ["num_preemptions", "prompt_tokens", "prompt_tokens_by_source", "prompt_tokens_cached", "generation_tokens", "request_success",
            "prefix_cache_queries", "prefix_cache_hits", "external_prefix_cache_queries", "external_prefix_cache_hits", "mm_cache_queries",
            "mm_cache_hits", "corrupted_requests", "gpu_prefix_cache_queries", "gpu_prefix_cache_hits"]
FIRST_TOKEN = [.001, .005, .01, .02, .04, .06, .08, .1, .25, .5, .75, 1, 2.5, 5, 7.5, 10, 20, 40, 80, 160, 640, 2560]
TOKEN = [.01, .025, .05, .075, .1, .15, .2, .3, .4, .5, .75, 1, 2.5, 5, 7.5, 10, 20, 40, 80]
REQUEST = [.3, .5, .8, 1, 1.5, 2, 2.5, 5, 10, 15, 20, 30, 40, 50, 60, 120, 240, 480, 960, 1920, 7680]
COUNTS = [1, 2, 5, 10, 20, 50, 100, 200, 500, 1000]  # up to the context of 1,024
HISTOGRAMS = {
    "time_to_first_token_seconds": FIRST_TOKEN, "inter_token_latency_seconds": TOKEN, "request_time_per_output_token_seconds": TOKEN,
    "time_per_output_token_seconds": TOKEN, "e2e_request_latency_seconds": REQUEST, "request_queue_time_seconds": REQUEST,
    "request_inference_time_seconds": REQUEST, "request_prefill_time_seconds": REQUEST, "request_decode_time_seconds": REQUEST,
    "request_prompt_tokens": COUNTS, "request_generation_tokens": COUNTS, "request_max_num_generation_tokens": COUNTS,
    "request_params_n": [1, 2, 5, 10, 20], "request_params_max_tokens": COUNTS, "request_prefill_kv_computed_tokens": COUNTS,
    "iteration_tokens_total": None,
}


class Metrics(ApiTest):
    CONFIG = SMALL

    def metrics(self):
        """{(name, frozenset of labels): value} and {name: type}."""
        text = self.get("/metrics")[2]
        values, types = {}, {}
        for line in text.splitlines():
            if line.startswith("# TYPE"):
                _, _, name, kind = line.split()
                self.assertNotIn(name, types, "a family twice")
                types[name] = kind
            elif line and not line.startswith("#"):
                name, labels, value = re.fullmatch(r"([a-zA-Z_:][a-zA-Z0-9_:]*)(?:\{(.*)\})? (\S+)", line).groups()
                key = (name, frozenset(re.findall(r'(\w+)="((?:[^"\\]|\\.)*)"', labels or "")))
                self.assertNotIn(key, values)
                values[key] = float(value)
        return values, types

    def value(self, values, name, **labels):
        everything = {"model_name": MODEL, "engine": "0", **labels}
        return values[(name, frozenset(everything.items()))]

    def test_families_labels_and_buckets(self):
        self.complete(max_tokens=3)
        values, types = self.metrics()
        base = {("model_name", MODEL), ("engine", "0")}
        for prefix in ("vllm:", "tutti:"):
            for name in GAUGES:
                self.assertEqual(types[prefix + name], "gauge")
            for name in COUNTERS:
                self.assertEqual(types[f"{prefix}{name}_total"], "counter")
            for name in [prefix + n for n in GAUGES] + [f"{prefix}{n}_total" for n in COUNTERS]:
                found = [labels for n, labels in values if n == name]
                self.assertTrue(found, name)
                for labels in found:
                    self.assertTrue(base <= labels, name)
            for name, buckets in HISTOGRAMS.items():
                self.assertEqual(types[prefix + name], "histogram")
                edges = sorted(float(dict(labels)["le"]) for n, labels in values if n == f"{prefix}{name}_bucket")
                self.assertEqual(edges.pop(), float("inf"))
                if buckets:
                    self.assertEqual(edges, buckets, name)
        for name, label, expected in (("num_requests_waiting_by_reason", "reason", {"capacity", "deferred"}),
                                      ("request_success_total", "finished_reason", {"stop", "length", "abort", "error"}),
                                      ("prompt_tokens_by_source_total", "source", {"local_compute", "local_cache_hit", "external_kv_transfer"}),
                                      ("engine_sleep_state", "sleep_state", {"awake", "weights_offloaded", "discard_all"})):
            self.assertEqual({dict(labels)[label] for n, labels in values if n == f"vllm:{name}"}, expected)
        info = dict(next(labels for n, labels in values if n == "vllm:cache_config_info"))
        self.assertEqual((info["block_size"], info["enable_prefix_caching"]), ("16", "True"))

    def test_numbers_add_up(self):
        before, _ = self.metrics()
        self.complete(prompt="a" * 40, max_tokens=7)
        self.complete(prompt="a" * 40, max_tokens=7, n=2)
        status = self.post("/v1/completions", {"prompt": "x", "temperature": -1})[0]
        self.assertEqual(status, 400)
        after, _ = self.metrics()

        def grown(name, **labels):
            return self.value(after, name, **labels) - self.value(before, name, **labels)
        self.assertEqual(grown("vllm:generation_tokens_total"), 21)
        self.assertEqual(grown("vllm:prompt_tokens_total"), 120)
        self.assertEqual(grown("vllm:request_success_total", finished_reason="length"), 3)
        self.assertEqual(grown("vllm:request_generation_tokens_sum"), 21)
        self.assertEqual(grown("vllm:request_prompt_tokens_count"), 3)
        self.assertEqual(grown("vllm:time_to_first_token_seconds_count"), 3)
        self.assertEqual(grown("vllm:inter_token_latency_seconds_count"), 18)
        self.assertEqual(grown("vllm:request_params_n_sum"), 5)
        self.assertGreaterEqual(grown("vllm:prefix_cache_hits_total"), 32)  # the second prompt's first two blocks
        self.assertEqual(grown("vllm:prompt_tokens_by_source_total", source="local_cache_hit"), grown("vllm:prefix_cache_hits_total"))
        self.assertEqual(self.value(after, "vllm:num_requests_running"), 0)
        self.assertEqual(self.value(after, "vllm:kv_cache_usage_perc"), 0)
        http = {(n, labels): v for (n, labels), v in after.items() if n == "http_requests_total"}
        self.assertTrue(any({("handler", "/v1/completions"), ("status", "4xx")} <= labels and v >= 1 for (_, labels), v in http.items()))
        self.assertTrue(any(n == "http_request_duration_seconds_bucket" for n, _ in after))


class OwnPrefix(ApiTest):
    CONFIG = SMALL
    FLAGS = ("--metrics-prefix", "mine:")

    def test_only_that(self):
        text = self.get("/metrics")[2]
        self.assertIn("\nmine:num_requests_running{", text)
        self.assertNotIn("vllm:", text)

    def test_all_families_under_the_programs_own(self):
        names = {line.split()[2] for line in self.get("/metrics")[2].splitlines() if line.startswith("# TYPE ")}
        own = {name.removeprefix("tutti:") for name in names if name.startswith("tutti:")}
        shared = {name.removeprefix("mine:") for name in names if name.startswith("mine:")}
        self.assertLess(shared, own)
        self.assertTrue({"engine_steps_total", "comm_seconds_total", "rank_memory_bytes"} <= own - shared, own - shared)
        for name in names - {"tutti:" + n for n in own} - {"mine:" + n for n in shared}:
            self.assertRegex(name, "^(http|process)_")


class BlockTimes(Metrics):
    """The same with the times of KV blocks, of all of them, in a cache that the requests soon fill."""
    FLAGS = ("--kv-cache-metrics", "--kv-cache-metrics-sample", 1, "--num-gpu-blocks-override", 80)
    BLOCKS = ("kv_block_lifetime_seconds", "kv_block_idle_before_evict_seconds", "kv_block_reuse_gap_seconds")
    EDGES = [.001, .002, .005, .01, .02, .05, .1, .2, .5, 1, 2, 5, 10, 20, 30, 60, 120, 300, 600, 1200, 1800]

    def test_times_of_blocks(self):
        for letter in "abcd":
            for _ in range(2):
                self.complete(prompt=letter * 500, max_tokens=20)
        values, types = self.metrics()
        for prefix in ("vllm:", "tutti:"):
            for name in self.BLOCKS:
                self.assertEqual(types[prefix + name], "histogram")
                edges = sorted(float(dict(labels)["le"]) for n, labels in values if n == f"{prefix}{name}_bucket")
                self.assertEqual(edges[:-1], self.EDGES)
        lives, idle, gaps = (self.value(values, f"vllm:{name}_count") for name in self.BLOCKS)
        self.assertGreater(lives, 20)
        self.assertEqual(lives, idle)
        self.assertGreater(gaps, 20)
        self.assertGreaterEqual(self.value(values, "vllm:kv_block_lifetime_seconds_sum"), self.value(values, "vllm:kv_block_idle_before_evict_seconds_sum"))


if __name__ == "__main__":
    unittest.main()
