"""One server with a random model for all tests of a class, and a plain client for it."""
import http.client
import json
import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import unittest

from cluster_harness import ROOT, Tutti, free_ports

KEY = "an-api-key"
MODEL = "tiny"


# A model of which a step takes a fraction of a millisecond.
SMALL = dict(hidden_size=96, intermediate_size=192, num_hidden_layers=3, num_attention_heads=6, num_key_value_heads=3, head_dim=16)


def random_model(folder, **config):
    """Writes a model for --load-format dummy whose config.json has these values."""
    subprocess.run([sys.executable, ROOT / "scripts" / "make_random_model.py", folder], check=True, stdout=subprocess.DEVNULL)
    path = pathlib.Path(folder) / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | config))


class ApiTest(unittest.TestCase):
    FLAGS = ()
    CONFIG = {}

    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        folder = pathlib.Path(cls.folder.name)
        model = str(folder / "model")
        random_model(model, **cls.CONFIG)
        cls.port, control_port = free_ports(2)
        cls.server = Tutti("serve", model, "--load-format", "dummy", "--max-model-len", 1024, "--kv-cache-memory-bytes", "256M",
                           "--port", cls.port, "--master-port", control_port, "--served-model-name", MODEL, "alias",
                           "--api-key", KEY, *cls.FLAGS, home=folder / "home")
        try:
            cls.server.wait_for("Application startup complete.")
        except AssertionError:
            cls.server.close()
            raise

    @classmethod
    def tearDownClass(cls):
        cls.server.signal(signal.SIGTERM)
        try:
            code = cls.server.wait_exit(30)
            assert code == 0, f"exit code {code}:\n{cls.server.log()}"
        finally:
            cls.server.close()
            cls.folder.cleanup()

    def request(self, method, path, body=None, headers=None):
        """(status, headers, body): the body parsed when it is JSON."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        try:
            everything = {"Authorization": f"Bearer {KEY}", **(headers or {})}
            if body is not None:
                everything.setdefault("Content-Type", "application/json")
                body = body if isinstance(body, (bytes, str)) else json.dumps(body)
            connection.request(method, path, body, everything)
            response = connection.getresponse()
            data = response.read().decode()
            is_json = response.getheader("content-type", "").startswith("application/json")
            return response.status, response.headers, json.loads(data) if is_json else data
        finally:
            connection.close()

    def get(self, path, **headers):
        return self.request("GET", path, headers=headers)

    def post(self, path, body, **headers):
        return self.request("POST", path, body, headers)

    def complete(self, **fields):
        """The body of a completion that must succeed."""
        status, _, body = self.post("/v1/completions", {"model": MODEL, "prompt": "Hello", "temperature": 0, "ignore_eos": True, **fields})
        self.assertEqual(status, 200, body)
        return body

    def chat(self, **fields):
        messages = [{"role": "user", "content": "Hello"}]
        status, _, body = self.post("/v1/chat/completions",
                                    {"model": MODEL, "messages": messages, "temperature": 0, "max_tokens": 8, "ignore_eos": True, **fields})
        self.assertEqual(status, 200, body)
        return body

    def events(self, path, **fields):
        """Parsed events of a stream, without the closing [DONE], which must be there."""
        status, headers, text = self.post(path, {"model": MODEL, "temperature": 0, "ignore_eos": True, "stream": True, **fields})
        self.assertEqual(status, 200, text)
        self.assertTrue(headers["content-type"].startswith("text/event-stream"))
        data = [line[len("data: "):] for line in text.split("\n") if line.startswith("data: ")]
        self.assertEqual(data.pop(), "[DONE]")
        return [json.loads(d) for d in data]


def missing(what):
    """A test that cannot run is skipped on a user's machine and fails in CI."""
    if os.environ.get("CI") == "true":
        raise RuntimeError(what)
    raise unittest.SkipTest(what)


def need_package(name):
    """Imports a package from PyPI; where it is missing, runs this program again in a virtual environment that has it."""
    try:
        return __import__(name)
    except ImportError:
        pass
    if os.environ.get("TUTTI_TEST_VENV"):
        missing(f"the {name} package cannot be imported although it was installed")
    cache = pathlib.Path(os.environ.get("TUTTI_CACHE") or pathlib.Path.home() / ".cache" / "tutti")
    python = cache / f"venv-{name}" / "bin" / "python"
    try:
        if not python.exists():
            subprocess.run([sys.executable, "-m", "venv", python.parents[1]], check=True, capture_output=True, timeout=120)
        subprocess.run([python, "-m", "pip", "install", "-q", "--disable-pip-version-check", name], check=True,
                       capture_output=True, timeout=300)
    except (subprocess.SubprocessError, OSError) as error:
        missing(f"the {name} package is not installed and could not be fetched: {error}")
    os.execve(python, [str(python), *sys.argv], {**os.environ, "TUTTI_TEST_VENV": "1"})
