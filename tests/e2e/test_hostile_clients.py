"""Clients that trickle, flood, nest, hang up and never stop leave the server serving, with its memory bounded."""
import json
import pathlib
import socket
import threading
import time
import unittest

from api_server import KEY, MODEL, ApiTest

MIB = 1 << 20


class HostileClients(ApiTest):
    def connect(self):
        sock = socket.create_connection(("127.0.0.1", self.port), timeout=30)
        self.addCleanup(sock.close)
        return sock

    def head(self, length, path="/v1/completions", extra=""):
        return (f"POST {path} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {KEY}\r\nContent-Type: application/json\r\n"
                f"Content-Length: {length}\r\n{extra}\r\n").encode()

    def status_of(self, sock):
        """The status of the answer on a raw connection; None when it was closed without one."""
        data = b""
        while b"\r\n" not in data:
            try:
                piece = sock.recv(4096)
            except ConnectionResetError:
                return None
            if not piece:
                return None
            data += piece
        return int(data.split()[1])

    def memory(self):
        for line in pathlib.Path(f"/proc/{self.server.pid}/status").read_text().splitlines():
            if line.startswith("VmRSS:"):
                return int(line.split()[1]) * 1024
        raise AssertionError("no VmRSS")

    def tearDown(self):
        begin = time.monotonic()
        self.assertEqual(self.complete(max_tokens=2)["usage"]["completion_tokens"], 2)
        self.assertLess(time.monotonic() - begin, 5)
        deadline = time.monotonic() + 10
        while self.get("/load")[2]["server_load"] and time.monotonic() < deadline:
            time.sleep(0.05)
        self.assertEqual(self.get("/load")[2]["server_load"], 0)

    def test_slowloris(self):
        """300 heads that never end, a byte now and then: others are served meanwhile, these are cut off."""
        slow = [self.connect() for _ in range(300)]
        for sock in slow:
            sock.sendall(b"POST /v1/completions HTTP/1.1\r\nHost: x\r\n")
        begin = time.monotonic()
        while time.monotonic() - begin < 9:
            for sock in slow[:100]:
                sock.sendall(b"X")
            self.assertEqual(self.complete(max_tokens=1)["usage"]["completion_tokens"], 1)
            time.sleep(1)
        for sock in slow:
            self.assertIn(self.status_of(sock), (408, None))
        self.assertLess(time.monotonic() - begin, 20)

    def test_a_body_that_trickles(self):
        sock = self.connect()
        sock.sendall(self.head(1000))
        for _ in range(5):
            sock.sendall(b"{")
            time.sleep(0.2)
        self.assertEqual(self.get("/health")[0], 200)

    def test_prompts_of_ten_megabytes(self):
        long_text = json.dumps({"model": MODEL, "prompt": "word " * (2 * MIB)})
        many_ids = json.dumps({"model": MODEL, "prompt": [7] * (5 * MIB)})
        chat = json.dumps({"model": MODEL, "messages": [{"role": "user", "content": "word " * (2 * MIB)}]})
        before = self.memory()
        for path, body in (("/v1/completions", long_text), ("/v1/completions", many_ids), ("/v1/chat/completions", chat)):
            status, _, answer = self.post(path, body)
            self.assertEqual(status, 400, path)
            self.assertLess(len(answer["error"]["message"]), 400)
        statuses = []
        threads = [threading.Thread(target=lambda: statuses.append(self.post("/v1/completions", long_text)[0])) for _ in range(8)]
        for thread in threads:
            thread.start()
        begin = time.monotonic()
        self.complete(max_tokens=1)  # not behind them
        self.assertLess(time.monotonic() - begin, 5)
        for thread in threads:
            thread.join(60)
        self.assertTrue(set(statuses) <= {400, 503} and len(statuses) == 8, statuses)
        self.assertLess(self.memory() - before, 1024 * MIB)
        self.assertEqual(self.post("/v1/completions", "x" * (33 * MIB))[0], 413)

    def test_deep_and_wide_json(self):
        for body in ("[" * 100000, '{"prompt":' * 50000, '{"prompt": "x", "logit_bias": {' + ",".join(f'"{i}": 1' for i in range(100000)) + "}}",
                     '{"prompt": "x", "messages": ' + "[" * 65 + "]" * 65 + "}", '{"prompt": "' + "\\u0000" * 10 + '", "stop": 1e999}'):
            self.assertEqual(self.post("/v1/completions", body)[0], 400, body[:40])

    def test_floods_of_headers(self):
        for extra in ("X-A: 1\r\n" * 20000, "X-Long: " + "a" * 100000 + "\r\n"):
            sock = self.connect()
            try:
                sock.sendall(self.head(2, extra=extra) + b"{}")
            except (BrokenPipeError, ConnectionResetError):
                pass
            self.assertIn(self.status_of(sock), (431, None))
        sock = self.connect()
        sock.sendall(b"GET /" + b"a" * 100000 + b" HTTP/1.1\r\n\r\n")
        self.assertIn(self.status_of(sock), (431, 400, None))

    def test_half_closed_and_vanished_clients(self):
        stream = json.dumps({"model": MODEL, "prompt": "Hello", "stream": True, "max_tokens": 40, "ignore_eos": True}).encode()
        sock = self.connect()
        sock.sendall(self.head(len(stream)) + stream)
        sock.shutdown(socket.SHUT_WR)
        text = b""
        while piece := sock.recv(65536):
            text += piece
        self.assertIn(b"data: [DONE]", text)
        long_stream = json.dumps({"model": MODEL, "prompt": "Hello", "stream": True, "max_tokens": 900, "ignore_eos": True}).encode()
        plain = json.dumps({"model": MODEL, "prompt": "Hello", "max_tokens": 900, "ignore_eos": True}).encode()
        for body in (long_stream, plain):
            for how in ("close", "half", "reset"):
                sock = self.connect()
                sock.sendall(self.head(len(body)) + body)
                if how == "half":
                    sock.shutdown(socket.SHUT_WR)
                elif how == "reset":
                    sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\x01\x00\x00\x00\x00\x00\x00\x00")
                sock.close()

    def test_garbage_and_smuggling(self):
        for data in (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", b"\x00" * 5000, b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
                     b"POST /v1/completions HTTP/1.1\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
                     b"POST /v1/completions HTTP/1.1\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\nhello",
                     b"POST /v1/completions HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\nFFFFFFFFFFFFFFFFF\r\n",
                     b"GET /../../etc/passwd HTTP/1.1\r\nHost: x\r\n\r\n", b"GET /%00 HTTP/1.1\r\nHost: x\r\n\r\n"):
            sock = self.connect()
            sock.sendall(data)
            sock.shutdown(socket.SHUT_WR)
            self.assertIn(self.status_of(sock), (None, 400, 401, 413, 501, 505), data[:40])

    def test_a_thousand_idle_connections(self):
        idle = [self.connect() for _ in range(1000)]
        self.assertEqual(self.complete(max_tokens=1)["usage"]["completion_tokens"], 1)
        for sock in idle:
            sock.close()


if __name__ == "__main__":
    unittest.main()
