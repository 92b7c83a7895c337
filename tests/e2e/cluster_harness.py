"""Starts the program's processes for tests, watches what they print, and makes sure that nothing is left of them."""
import http.client
import json
import os
import pathlib
import random
import re
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
BINARY = os.environ.get("TUTTI_BINARY", str(ROOT / "build" / "tutti"))
TOKEN = "tutti1-0011aabb-00112233445566778899aabbccddeeff"
SPARE_PORTS = 120  # above a control port: the data plane's


def port_is_free(port):
    with socket.socket() as s:
        s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            s.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True


def free_ports(count):
    ports = set()
    while len(ports) < count:
        port = random.randrange(20000, 30000, SPARE_PORTS)
        if port_is_free(port):
            ports.add(port)
    return list(ports)


def process_state(pid):
    try:
        return pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0]
    except OSError:
        return None


def children_of(pid):
    """Ids of the living child processes."""
    try:
        tasks = pathlib.Path(f"/proc/{pid}/task").iterdir()
        return [int(c) for t in tasks for c in (t / "children").read_text().split()]
    except OSError:
        return []


class Tutti:
    """One process of the program; its stderr is kept line by line."""

    def __init__(self, *arguments, home, env=None, netns=None, binary=BINARY, prefix=()):
        command = [*prefix, binary, *map(str, arguments)]
        if netns:
            command = ["ip", "netns", "exec", netns, *command]
        environment = {k: v for k, v in os.environ.items() if not k.startswith(("TUTTI_", "VLLM_", "MASTER_"))}
        environment.update({"TUTTI_HOME": str(home), "TUTTI_CLUSTER_TOKEN": TOKEN}, **(env or {}))
        environment = {k: v for k, v in environment.items() if v is not None}
        self.lines = []
        self.ranks = set()
        self.process = subprocess.Popen(command, env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                        stderr=subprocess.PIPE, text=True, errors="replace", start_new_session=True)
        self.stdout = ""
        self.readers = [threading.Thread(target=self._read_log, daemon=True), threading.Thread(target=self._read_stdout, daemon=True)]
        for reader in self.readers:
            reader.start()

    def _read_log(self):
        for line in self.process.stderr:
            self.lines.append(line.rstrip("\n"))

    def _read_stdout(self):
        self.stdout = self.process.stdout.read()

    @property
    def pid(self):
        return self.process.pid

    def log(self):
        return "\n".join(self.lines)

    def wait_for(self, pattern, timeout=60):
        """The first match of `pattern` in the log."""
        deadline = time.monotonic() + timeout
        while time.monotonic() < deadline:
            match = re.search(pattern, self.log())
            if match:
                self.ranks.update(children_of(self.pid))
                return match
            if self.process.poll() is not None:
                break
            time.sleep(0.02)
        time.sleep(0.1)
        match = re.search(pattern, self.log())
        if match:
            return match
        raise AssertionError(f"no line /{pattern}/ within {timeout} s (exit code {self.process.poll()}):\n{self.log()}")

    def wait_exit(self, timeout=30):
        try:
            code = self.process.wait(timeout)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"still running after {timeout} s:\n{self.log()}") from None
        for reader in self.readers:
            reader.join(5)
        return code

    def signal(self, number):
        self.process.send_signal(number)

    def close(self):
        self.ranks.update(children_of(self.pid))
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        for reader in self.readers:
            reader.join(5)
        self.process.stdout.close()
        self.process.stderr.close()


class ClusterTest(unittest.TestCase):
    """Has a generated random model, and fails when a process outlives its test."""

    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        cls.model = str(pathlib.Path(cls.folder.name) / "model")
        subprocess.run([sys.executable, ROOT / "scripts" / "make_random_model.py", cls.model], check=True, stdout=subprocess.DEVNULL)
        cls.home = pathlib.Path(cls.folder.name) / "home"

    @classmethod
    def tearDownClass(cls):
        cls.folder.cleanup()

    def setUp(self):
        self.processes = []
        self.port, self.control_port = free_ports(2)

    def tearDown(self):
        for process in self.processes:
            process.close()
        ranks = {rank for process in self.processes for rank in process.ranks}
        deadline = time.monotonic() + 5
        while time.monotonic() < deadline and any(process_state(r) not in (None, "Z") for r in ranks):
            time.sleep(0.05)
        left = [r for r in ranks if process_state(r) not in (None, "Z")]
        for pid in left:
            os.kill(pid, signal.SIGKILL)
        self.assertEqual(left, [], "rank processes outlived their parents")

    def start(self, *arguments, **options):
        options.setdefault("home", self.home)
        process = Tutti(*arguments, **options)
        self.processes.append(process)
        return process

    def model_flags(self):
        return [self.model, "--load-format", "dummy", "--max-model-len", "2048", "--kv-cache-memory-bytes", "256M"]

    def serve(self, *flags, **options):
        return self.start("serve", *self.model_flags(), "--port", self.port, "--master-port", self.control_port, *flags, **options)

    def complete(self, prompt="Hello", max_tokens=24, timeout=60, **fields):
        status, body = self.post({"prompt": prompt, "max_tokens": max_tokens, "temperature": 0, "ignore_eos": True, **fields}, timeout)
        self.assertEqual(status, 200, body)
        return json.loads(body)["choices"][0]["text"]

    def post(self, body, timeout=60):
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=timeout)
        try:
            connection.request("POST", "/v1/completions", json.dumps(body), {"Content-Type": "application/json"})
            response = connection.getresponse()
            return response.status, response.read().decode(errors="replace")
        finally:
            connection.close()

    def get(self, path, timeout=10, port=None):
        connection = http.client.HTTPConnection("127.0.0.1", port or self.port, timeout=timeout)
        try:
            connection.request("GET", path)
            return connection.getresponse().read().decode()
        finally:
            connection.close()

    def stream(self, prompt="Hello", max_tokens=1500, timeout=60):
        """Events of a streamed completion, one parsed JSON object each, as they come."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=timeout)
        body = {"prompt": prompt, "max_tokens": max_tokens, "temperature": 0, "ignore_eos": True, "stream": True}
        connection.request("POST", "/v1/completions", json.dumps(body), {"Content-Type": "application/json"})
        response = connection.getresponse()
        self.assertEqual(response.status, 200)
        try:
            for line in response:
                text = line.decode(errors="replace").strip()
                if text.startswith("data: ") and text != "data: [DONE]":
                    yield json.loads(text[len("data: "):])
        finally:
            connection.close()

    def reference_text(self, max_tokens=24):
        """What one rank answers, from `tutti generate`."""
        cls = type(self)
        if not hasattr(cls, "reference"):
            process = self.start("generate", *self.model_flags(), "--prompt", "Hello", "--max-tokens", max_tokens, "--ignore-eos")
            self.assertEqual(process.wait_exit(120), 0, process.log())
            cls.reference = process.stdout.removesuffix("\n")
            self.assertIn("tokens/s", process.log())
        return cls.reference
