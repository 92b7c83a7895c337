"""200 requests of mixed lengths and sampling settings give the same tokens and log-probabilities, to the last bit, alone
and in a crowd, with and without prefix caching, in chunks of 16 to 8192 tokens, when requests are preempted, and when the
model is cut over two ranks."""
import concurrent.futures
import http.client
import json
import pathlib
import random
import re
import signal
import tempfile
import unittest

from api_server import SMALL, random_model
from cluster_harness import Tutti, free_ports

COUNT = 200
VOCAB = 259


def sampling(rng):
    fields = {"temperature": 0, "max_tokens": rng.randint(1, 48), "ignore_eos": rng.random() < 0.7}
    if rng.random() < 0.5:
        fields.update(temperature=rng.uniform(0.3, 1.5), seed=rng.randrange(1 << 40))
        fields.update(rng.choice([{}, {"top_k": rng.randint(1, 100)}, {"top_p": rng.uniform(0.3, 0.99)}, {"min_p": 0.05},
                                  {"top_k": 50, "top_p": 0.9, "min_p": 0.01}]))
    fields.update(rng.choice([{}, {}, {"repetition_penalty": 1.3}, {"frequency_penalty": 0.7, "presence_penalty": -0.3}]))
    fields.update(rng.choice([{}, {}, {"logit_bias": {"70": 3, "80": -5}}, {"allowed_token_ids": list(range(40, 120))},
                              {"min_tokens": 1}, {"stop_token_ids": [90, 91]}, {"stop": ["a", "zz"]}, {"bad_words": ["e", "th"]}]))
    return fields


def make_requests():
    rng = random.Random(2026)
    shared = [[rng.randrange(3, VOCAB) for _ in range(n)] for n in (33, 160, 400)]
    requests = []
    for _ in range(COUNT):
        prompt = [rng.randrange(3, VOCAB) for _ in range(rng.choice((rng.randint(1, 20), rng.randint(20, 300), rng.randint(300, 900))))]
        if rng.random() < 0.4:
            prompt = (rng.choice(shared) + prompt)[:900]
        requests.append({"prompt": prompt, "logprobs": 2, "return_token_ids": True, **sampling(rng)})
    return requests


class BatchIndependence(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(cls.folder.cleanup)
        cls.model = str(pathlib.Path(cls.folder.name) / "model")
        random_model(cls.model, **SMALL)
        cls.requests = make_requests()
        with cls.server("--no-enable-prefix-caching") as server:
            cls.alone = server.answers(cls.requests, at_once=1)
            cls.crowd = server.answers(cls.requests, at_once=64)

    @classmethod
    def server(cls, *flags):
        return Server(cls.model, pathlib.Path(cls.folder.name) / "home", *flags)

    def expect_same(self, answers, only=lambda request: True):
        compared = 0
        for request, expected, actual in zip(self.requests, self.alone, answers):
            if only(request):
                self.assertEqual(expected, actual, {k: v for k, v in request.items() if k != "prompt"} | {"prompt_tokens": len(request["prompt"])})
                compared += 1
        return compared

    def test_the_requests_are_a_mixture(self):
        self.assertEqual(len(self.alone), COUNT)
        self.assertGreater(len({tuple(a["token_ids"]) for a in self.alone if len(a["token_ids"]) > 5}), 100)
        self.assertGreater(sum(r["temperature"] > 0 for r in self.requests), 60)
        self.assertEqual({a["finish_reason"] for a in self.alone}, {"stop", "length"})

    def test_in_a_crowd(self):
        self.assertEqual(self.expect_same(self.crowd), COUNT)

    def test_with_prefix_caching(self):
        with self.server() as server:
            self.expect_same(server.answers(self.requests, at_once=64))
            self.expect_same(server.answers(self.requests, at_once=64))
            self.assertGreater(server.metric("vllm:prefix_cache_hits_total"), 10000)

    def test_in_chunks_of_16(self):
        with self.server("--max-num-batched-tokens", 16, "--max-num-seqs", 16) as server:
            self.expect_same(server.answers(self.requests, at_once=64))

    def test_in_steps_of_8192(self):
        with self.server("--max-num-batched-tokens", 8192, "--no-enable-prefix-caching") as server:
            self.expect_same(server.answers(self.requests, at_once=128))

    def test_when_requests_are_preempted(self):
        for caching in ("--enable-prefix-caching", "--no-enable-prefix-caching"):
            with self.server("--num-gpu-blocks-override", 128, "--block-size", 8, caching) as server:
                self.expect_same(server.answers(self.requests, at_once=100))
                self.assertGreater(server.metric("vllm:num_preemptions_total"), 5)

    def test_on_two_ranks(self):
        with self.server("-tp", 2, "--max-num-batched-tokens", 300) as server:
            answers = server.answers(self.requests, at_once=64)
        greedy = self.expect_same(answers, only=lambda request: request["temperature"] == 0)
        self.assertGreater(greedy, 60)


class Server:
    def __init__(self, model, home, *flags):
        self.port, control_port = free_ports(2)
        self.process = Tutti("serve", model, "--load-format", "dummy", "--max-model-len", 1024, "--port", self.port,
                             "--master-port", control_port, "--kv-cache-memory-bytes", "64M", *flags, home=home)

    def __enter__(self):
        try:
            self.process.wait_for("Application startup complete.")
        except AssertionError:
            self.process.close()
            raise
        return self

    def __exit__(self, kind, *_):
        try:
            self.process.signal(signal.SIGTERM)
            code = self.process.wait_exit(30)
            if kind is None and code != 0:
                raise AssertionError(f"exit code {code}:\n{self.process.log()}")
        finally:
            self.process.close()

    def exchange(self, method, path, body=None):
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=120)
        try:
            connection.request(method, path, body, {"Content-Type": "application/json"})
            response = connection.getresponse()
            return response.status, response.read().decode()
        finally:
            connection.close()

    def answer(self, request):
        status, text = self.exchange("POST", "/v1/completions", json.dumps(request))
        if status != 200:
            raise AssertionError(f"status {status}: {text}")
        choice = json.loads(text)["choices"][0]
        return {key: choice[key] for key in ("token_ids", "text", "logprobs", "finish_reason", "stop_reason")}

    def answers(self, requests, at_once):
        """One a request, in their order; sent in another one, so that neighbours differ from run to run."""
        order = list(range(len(requests)))
        random.Random(at_once).shuffle(order)
        results = [None] * len(requests)
        with concurrent.futures.ThreadPoolExecutor(at_once) as pool:
            for index, result in zip(order, pool.map(lambda i: self.answer(requests[i]), order)):
                results[index] = result
        return results

    def metric(self, name):
        text = self.exchange("GET", "/metrics")[1]
        return float(re.search(rf"^{re.escape(name)}{{[^}}]*}} (\S+)$", text, re.MULTILINE)[1])


if __name__ == "__main__":
    unittest.main()
