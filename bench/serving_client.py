"""A streaming client for completions over HTTP, and the time it sees: used by cpu_peers.py. Only the standard library."""
import asyncio
import contextlib
import json
import random
import socket
import statistics
import subprocess
import sys
import tempfile
import time

REQUESTS, AT_ONCE, PROMPT, ANSWER = 32, 8, 128, 64
FIRST_WORD = 259  # ids below are control and byte tokens: random weights would write invalid UTF-8 with them
VOCABULARY = 32000
READY_DEADLINE_S = 120
ANSWER_DEADLINE_S = 400


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def body_of(side, prompt):
    if side == "tutti":
        return "/v1/completions", {"model": "m", "prompt": prompt, "max_tokens": ANSWER, "temperature": 0, "ignore_eos": True,
                                   "stream": True, "stream_options": {"include_usage": True},
                                   "logit_bias": {str(i): -100 for i in range(FIRST_WORD)}}
    return "/completion", {"prompt": prompt, "n_predict": ANSWER, "temperature": 0, "ignore_eos": True, "stream": True,
                           "cache_prompt": False, "logit_bias": [[i, False] for i in range(FIRST_WORD)]}


def tokens_in(side, event):
    """(text is there, all tokens of the answer when the event says so)"""
    if side == "tutti":
        text = any(c.get("text") for c in event.get("choices", []))
        return text, (event.get("usage") or {}).get("completion_tokens")
    return bool(event.get("content")), event.get("tokens_predicted") if event.get("stop") else None


async def one_request(side, port, prompt):
    """Seconds to the first text, seconds to the end, tokens."""
    path, body = body_of(side, prompt)
    data = json.dumps(body).encode()
    begin = time.monotonic()
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(f"POST {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\nConnection: close\r\n"
                 f"Content-Length: {len(data)}\r\n\r\n".encode() + data)
    await writer.drain()
    status = await reader.readline()
    if b" 200 " not in status:
        raise RuntimeError(f"{side} answered {status!r}: {(await reader.read(2000))!r}")
    first = last = None
    tokens = 0
    while line := await reader.readline():
        if not line.startswith(b"data: ") or line.startswith(b"data: [DONE]"):
            continue
        text, total = tokens_in(side, json.loads(line[6:]))
        if text:
            last = time.monotonic()
            first = first or last
        tokens = total or tokens
    writer.close()
    if first is None or tokens != ANSWER:
        raise RuntimeError(f"{side}: a stream ended with {tokens} tokens, expected {ANSWER}")
    return first - begin, last - begin, tokens


async def load(side, port, seed):
    rng = random.Random(seed)
    prompts = [[rng.randrange(FIRST_WORD, VOCABULARY) for _ in range(PROMPT)] for _ in range(REQUESTS)]
    slots, results = asyncio.Semaphore(AT_ONCE), []

    async def guarded(prompt):
        async with slots:
            results.append(await one_request(side, port, prompt))

    begin = time.monotonic()
    await asyncio.wait_for(asyncio.gather(*(guarded(p) for p in prompts)), ANSWER_DEADLINE_S)
    return time.monotonic() - begin, results


def wait_ready(process, port, log):
    begin = time.monotonic()
    while time.monotonic() - begin < READY_DEADLINE_S:
        if process.poll() is not None:
            log.seek(0)
            sys.exit(f"the server ended with {process.returncode}:\n{log.read()[-2000:]}")
        try:
            with socket.create_connection(("127.0.0.1", port), timeout=1) as s:
                s.sendall(b"GET /health HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n")
                if b" 200 " in s.recv(64):
                    return time.monotonic() - begin
        except OSError:
            pass
        time.sleep(0.01)
    sys.exit(f"the server was not ready after {READY_DEADLINE_S} s")


@contextlib.contextmanager
def served(command_for):
    """The server's port and the seconds until it was ready; it is stopped at the end."""
    port = free_port()
    with tempfile.TemporaryFile("w+") as log:
        process = subprocess.Popen(command_for(port), stdout=log, stderr=log)
        try:
            yield port, wait_ready(process, port, log)
        finally:
            process.terminate()
            process.wait(30)


def start_and_stop(_side, command_for, seed):
    del seed
    with served(command_for) as (_, ready):
        return {"ready_s": ready}


def serve_and_measure(side, command_for, seed):
    """Starts the server, waits for it, sends the load, stops it. Milliseconds and tokens a second."""
    with served(command_for) as (port, ready):
        wall, results = asyncio.run(load(side, port, seed))
    ttft = sorted(1e3 * first for first, _, _ in results)
    tpot = [1e3 * (last - first) / (tokens - 1) for first, last, tokens in results]
    return {"ready_s": ready, "wall_s": wall, "output_tokens_s": sum(t for _, _, t in results) / wall,
            "ttft_p50_ms": statistics.median(ttft), "ttft_p99_ms": ttft[-1], "tpot_p50_ms": statistics.median(tpot)}
