"""Flags of `serve` do what they say, in the running program: what a unit test of the command line cannot see."""
import http.client
import json
import pathlib
import signal
import socket
import ssl
import subprocess
import sys
import tempfile
import unittest

from api_server import MODEL, SMALL, ApiTest, missing, random_model
from cluster_harness import BINARY, ROOT, Tutti, free_ports

CHAT = "/v1/chat/completions"
TEMPLATE = "{{ greeting }}{% for m in messages %}[{{ m.role }}]{{ m.content }}{% endfor %}"


class ManyFlags(ApiTest):
    CONFIG = SMALL
    FLAGS = ("--root-path", "/llm", "--enable-log-requests", "--enable-log-outputs", "--max-log-len", 7, "--response-role", "bot",
             "--chat-template", TEMPLATE, "--default-chat-template-kwargs.greeting", "hello", "--enable-force-include-usage",
             "--return-tokens-as-token-ids", "--override-generation-config", '{"temperature": 0, "max_new_tokens": 9}', "--max-logprobs", 3,
             "--scheduling-policy", "priority", "--allowed-origins", '["http://a.example"]', "--kv-cache-dtype", "bfloat16", "--block-size", 32,
             "--max-num-seqs", 3, "--max-num-batched-tokens", "0.5k", "--no-enable-prefix-caching", "--long-prefill-token-threshold", 64,
             "--trust-request-chat-template", "--disable-log-stats", "--seed", 3)

    def test_root_path(self):
        for path in ("/llm/v1/models", "/v1/models"):
            self.assertEqual(self.get(path)[0], 200)

    def test_the_model_and_its_defaults(self):
        body = {"model": MODEL, "prompt": "Hello", "ignore_eos": True, "max_tokens": 30}
        first, second = (self.post("/v1/completions", body)[2] for _ in range(2))
        self.assertEqual(first["choices"], second["choices"])  # temperature 0 unless said
        self.assertEqual(first["usage"]["completion_tokens"], 9)
        self.assertNotEqual(self.post("/v1/completions", body | {"temperature": 1.5, "seed": 1})[2]["choices"], first["choices"])

    def test_chats(self):
        events = self.events(CHAT, messages=[{"role": "user", "content": "x"}], max_tokens=2)
        self.assertEqual(events[0]["choices"][0]["delta"]["role"], "bot")
        self.assertEqual(events[-1]["usage"]["prompt_tokens"], len("hello[user]x"))  # usage without being asked for
        other = self.chat(chat_template="{{ messages[0].content }}", max_tokens=2)
        self.assertEqual(other["usage"]["prompt_tokens"], len("Hello"))
        kwargs = self.chat(chat_template_kwargs={"greeting": ""}, max_tokens=2)
        self.assertEqual(kwargs["usage"]["prompt_tokens"], len("[user]Hello"))

    def test_logprobs(self):
        tokens = self.complete(logprobs=3, max_tokens=2)["choices"][0]["logprobs"]["tokens"]
        self.assertTrue(all(t.startswith("token_id:") for t in tokens))
        self.assertEqual(self.post("/v1/completions", {"prompt": "x", "logprobs": 4})[0], 400)

    def test_priority_and_cache(self):
        self.assertEqual(self.complete(priority=-5, max_tokens=2)["usage"]["completion_tokens"], 2)
        text = self.get("/metrics")[2]
        self.assertIn('block_size="32"', text)
        self.assertIn('cache_dtype="bfloat16"', text)
        self.assertIn('enable_prefix_caching="False"', text)

    def test_cors(self):
        self.assertEqual(self.get("/health", Origin="http://a.example")[1]["access-control-allow-origin"], "http://a.example")
        self.assertIsNone(self.get("/health", Origin="http://b.example")[1]["access-control-allow-origin"])

    def test_request_log(self):
        self.complete(prompt="Hello, world", max_tokens=2, request_id="seen-1")
        log = self.server.wait_for(r"cmpl-seen-1 from 127\.0\.0\.1:\d+: 12 tokens: (.*)")
        self.assertEqual(log[1], '"Hello, "')
        self.server.wait_for(r"cmpl-seen-1 \[0\]: length, 2 tokens out: ")


class LogLines(ApiTest):
    """Lines that people grep for."""
    CONFIG = SMALL

    def test_start_and_throughput(self):
        self.complete(max_tokens=20)
        for pattern in (r"GPU KV cache size: [\d,]+ tokens", r"Maximum concurrency for 1,024 tokens per request: [\d.]+x",
                        r"Available KV cache memory: [\d.]+ GiB", r"Application startup complete"):
            self.assertRegex(self.server.log(), pattern)
        self.server.wait_for(r"Avg prompt throughput: [\d.]+ tokens/s, Avg generation throughput: [\d.]+ tokens/s, Running: \d+ reqs, "
                             r"Waiting: \d+ reqs, GPU KV cache usage: [\d.]+%, Prefix cache hit rate: [\d.]+%", timeout=20)


class Listeners(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        self.model = str(self.folder / "model")
        random_model(self.model, **SMALL)

    def serve(self, *flags):
        self.port, control_port = free_ports(2)
        server = Tutti("serve", self.model, "--load-format", "dummy", "--kv-cache-memory-bytes", "64M", "--master-port", control_port, *flags,
                       home=self.folder / "home")
        self.addCleanup(server.close)
        server.wait_for("Application startup complete.")
        return server

    def end(self, server):
        server.signal(signal.SIGTERM)
        self.assertEqual(server.wait_exit(20), 0, server.log())

    def test_unix_socket(self):
        path = self.folder / "api.sock"
        server = self.serve("--uds", path)
        server.wait_for(f"API +Unix socket {path}\n")
        server.wait_for(f"try +curl --unix-socket {path} http://localhost/v1/models")
        with socket.socket(socket.AF_UNIX) as sock:
            sock.connect(str(path))
            sock.sendall(b"GET /health HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
            self.assertIn(b"200 OK", sock.recv(4096))
        self.end(server)
        self.assertFalse(path.exists())

    def test_a_folder_that_is_not_there_is_said_before_loading(self):
        path = self.folder / "nowhere" / "api.sock"
        server = Tutti("serve", self.model, "--load-format", "dummy", "--master-port", free_ports(1)[0], "--uds", path, home=self.folder / "home")
        self.addCleanup(server.close)
        self.assertEqual(server.wait_exit(20), 2)
        self.assertIn(f"--uds {path}: there is no folder {path.parent}", server.log())
        self.assertNotIn("weights", server.log())

    def test_the_start_says_where_the_api_is(self):
        port = free_ports(1)[0]
        for flags, api, hint in (((), r"http://127\.0\.0\.1:PORT/v1 \(this machine only; --host 0\.0\.0\.0 --api-key KEY opens it\)", ""),
                                 (("--host", "0.0.0.0"), r"http://(?!0\.0)[\d.]+:PORT/v1 \(all interfaces, without a key: ", ""),
                                 (("--api-key", "secret"), r"http://(?!0\.0)[\d.]+:PORT/v1 \(all interfaces, with a key\)", " --api-key KEY")):
            server = self.serve("--port", port, *flags)
            server.wait_for("API +" + api.replace("PORT", str(port)))
            server.wait_for(f'try +tutti complete "Hello" --url http://127.0.0.1:{port}{hint}\n?$')
            self.assertNotIn("secret", server.log())
            self.end(server)

    def test_tls(self):
        key, certificate = self.folder / "key.pem", self.folder / "cert.pem"
        try:
            subprocess.run(["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "1", "-subj", "/CN=localhost",
                            "-addext", "subjectAltName=IP:127.0.0.1", "-keyout", key, "-out", certificate], check=True, capture_output=True)
        except (OSError, subprocess.CalledProcessError) as error:
            missing(f"no certificate can be made: {error}")
        port = free_ports(1)[0]
        server = self.serve("--ssl-keyfile", key, "--ssl-certfile", certificate, "--port", port)
        server.wait_for(f"try +curl https://127.0.0.1:{port}/v1/models")
        plain = subprocess.run([BINARY, "complete", "x", "--url", f"http://127.0.0.1:{port}"], capture_output=True, text=True, timeout=60)
        self.assertIn("does it want TLS? this client speaks plain HTTP only", plain.stderr)
        connection = http.client.HTTPSConnection("127.0.0.1", port, timeout=20, context=ssl.create_default_context(cafile=certificate))
        connection.request("POST", "/v1/completions", json.dumps({"prompt": "x", "max_tokens": 2, "ignore_eos": True}),
                           {"Content-Type": "application/json"})
        self.assertEqual(json.loads(connection.getresponse().read())["usage"]["completion_tokens"], 2)
        connection.close()
        self.end(server)

    def test_config_file(self):
        port = free_ports(1)[0]
        file = self.folder / "serve.yaml"
        file.write_text(f"port: {port}\nserved-model-name: [one, two]\nmax_model_len: 128\nenable-prefix-caching: false\n")
        server = self.serve("--config", file)
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=20)
        connection.request("GET", "/v1/models")
        models = json.loads(connection.getresponse().read())["data"]
        self.assertEqual([(m["id"], m["max_model_len"]) for m in models], [("one", 128), ("two", 128)])
        connection.close()
        self.end(server)

    def test_a_length_that_fits_is_what_the_ranks_hold(self):
        random_model(self.model, **SMALL, max_position_embeddings=200_000)
        port = free_ports(1)[0]
        server = self.serve("--port", port, "-tp", 2, "--kv-cache-dtype", "bfloat16", "--max-model-len", -1)
        tokens = int(server.wait_for(r"GPU KV cache size: ([\d,]+) tokens")[1].replace(",", ""))
        self.assertLess(tokens, 200_000)
        server.wait_for(f"--max-model-len -1: {tokens} tokens of the model's 200000")
        server.wait_for(r"Maximum concurrency for [\d,]+ tokens per request: 1.00x")
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=20)
        connection.request("GET", "/v1/models")
        self.assertEqual(json.loads(connection.getresponse().read())["data"][0]["max_model_len"], tokens)
        connection.close()
        self.end(server)

    def test_prompts_that_may_not_be_cut_have_room_in_a_step(self):
        random_model(self.model, **SMALL, max_position_embeddings=4000)
        port = free_ports(1)[0]
        server = self.serve("--port", port, "--no-enable-chunked-prefill", "--revision", "old")
        self.assertRegex(server.log(), "note +--revision old has no effect: .* is a path, not a name")
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=20)
        connection.request("POST", "/v1/completions", json.dumps({"prompt": [7] * 3500, "max_tokens": 1}),
                           {"content-type": "application/json"})
        self.assertEqual(json.loads(connection.getresponse().read())["usage"]["prompt_tokens"], 3500)
        connection.request("GET", "/metrics")
        self.assertRegex(connection.getresponse().read().decode(), r"\ntutti:engine_steps_total{.*} 1\n")
        connection.close()
        self.end(server)

    def test_a_cache_that_does_not_fit_is_warned_of(self):
        server = self.serve("--num-gpu-blocks-override", 100_000_000, "--port", 0)
        server.wait_for(r"warning +the KV cache may grow to [\d.]+ GiB on this node, which has [\d.]+ GiB free: .*--kv-cache-memory-bytes \d+M, of each rank, fits")
        self.end(server)

    def test_what_cannot_be_had_ends_with_exit_code_2(self):
        for flags, message in ((("--data-parallel-size", 2), "--data-parallel-size cannot be had"),
                               (("--no-such-flag",), "unknown flag --no-such-flag"), (("--port", 99999), "--port 99999"),
                               (("--enable-auto-tool-choice",), "--tool-call-parser"), (("--api-key", ""), "--api-key"),
                               (("--max-model-len", 1000, "--max-num-batched-tokens", 512, "--no-enable-chunked-prefill"),
                                "--no-enable-chunked-prefill with --max-num-batched-tokens 512: a prompt of up to --max-model-len 1000 tokens has no room"),
                               (("--max-model-len", 1000, "--num-gpu-blocks-override", 10, "-tp", 2),
                                "error     the KV cache is too small: one sequence of 1000 tokens (--max-model-len) needs 63 blocks, --num-gpu-blocks-override 10 "
                                "has room for 10. Say --num-gpu-blocks-override 63, or --max-model-len 160")):
            done = subprocess.run([BINARY, "serve", self.model, "--load-format", "dummy", *map(str, flags)], capture_output=True, text=True, timeout=60)
            self.assertEqual(done.returncode, 2, done.stderr)
            self.assertIn(message, done.stderr)
            self.assertIn("Exit 2", done.stderr)
        for command, message in ((("status", "--address", "127.0.0.1:1", "--token", "t" * 32), "no head at 127.0.0.1:1 (connection refused): `tutti serve` starts one"),
                                 (("serve", self.model, "--load-format", "dummy", "--tokenizer", "/none"), "--tokenizer /none: it is not here"),
                                 (("bench", "latency"), "which model? tutti bench latency MODEL"),
                                 (("generate", self.model, "--stop", "x"), "unknown flag --stop: tutti generate --help lists all")):
            self.assertIn(message, subprocess.run([BINARY, *command], capture_output=True, text=True, timeout=60).stderr)
        done = subprocess.run([BINARY, "serve", self.model, "--node-rank", "1", "--nnodes", "2", "-tp", "2"], capture_output=True, text=True, timeout=60)
        self.assertRegex(done.stderr, r"where is node 0\? Exit 2\n$")
        done = subprocess.run([BINARY, "serve", self.model, "--load-format", "dummy", "--device", "cpu", "--kv-cache-dtype", "float16"],
                              capture_output=True, text=True, timeout=60)
        self.assertEqual(done.returncode, 2, done.stderr)  # found by a rank
        self.assertIn("--kv-cache-dtype float16 has no attention kernel", done.stderr)

    def test_weights_that_are_not_the_configurations_end_with_exit_code_2(self):
        with tempfile.TemporaryDirectory() as folder:
            subprocess.run([sys.executable, ROOT / "scripts" / "make_random_model.py", folder, "--weights", "bf16", "--layers", "1"], check=True, stdout=subprocess.DEVNULL)
            config = pathlib.Path(folder, "config.json")
            config.write_text(json.dumps(json.loads(config.read_text()) | {"intermediate_size": 512}))
            done = subprocess.run([BINARY, "serve", folder, "--device", "cpu", "--port", "0"], capture_output=True, text=True, timeout=60)
            self.assertEqual(done.returncode, 2, done.stderr)  # found by a rank
            self.assertIn("512", done.stderr)


if __name__ == "__main__":
    unittest.main()
