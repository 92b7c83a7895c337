"""A real model on a GPU says what it says on the CPU, up to the first token whose lead is small.

A GPU multiplies in 16 bits what the CPU leaves in the file's blocks, with activations in int8, so small leads may turn. The
model is SmolLM2 as scripts/fetch_model.sh keeps it, or TUTTI_TEST_MODEL. Without it, a GPU or CUDA in the build it is skipped."""
import json
import os
import pathlib
import signal
import subprocess
import unittest

from cluster_harness import ClusterTest

TOKENS = 64
SMALL_LEAD = 0.1  # of log-probabilities, which is that of the logits
PROMPTS = ("The capital of France is", "Once upon a time, in a small village by the sea,", "To make a good cup of coffee, first",
           "Water boils at a temperature of", "def fibonacci(n):\n", "In the beginning of the twentieth century, physics")


def real_model():
    named = os.environ.get("TUTTI_TEST_MODEL")
    cache = pathlib.Path(os.environ.get("TUTTI_CACHE") or pathlib.Path(os.environ.get("XDG_CACHE_HOME") or pathlib.Path.home() / ".cache") / "tutti")
    kept = pathlib.Path(named) if named else cache / "SmolLM2-135M-Instruct.Q4_1.gguf"
    return str(kept) if kept.exists() else None


def has_gpu():
    try:
        return subprocess.run(["nvidia-smi", "-L"], capture_output=True).returncode == 0
    except OSError:
        return False


@unittest.skipUnless(os.environ.get("TUTTI_CUDA") == "1" and has_gpu() and real_model(), "needs a build with CUDA, a GPU and SmolLM2")
class GpuText(ClusterTest):
    def answers(self, flags, prompts):
        server = self.start("serve", real_model(), "--kv-cache-memory-bytes", "256M", "--max-model-len", 1024, "--port", self.port,
                            "--master-port", self.control_port, *flags)
        server.wait_for("Application startup complete.", timeout=90)
        found = []
        for prompt in prompts:
            status, body = self.post({"prompt": prompt, "max_tokens": TOKENS, "temperature": 0, "ignore_eos": True, "logprobs": 2,
                                      "return_tokens_as_token_ids": True, "return_token_ids": True}, timeout=120)
            self.assertEqual(status, 200, body)
            choice = json.loads(body)["choices"][0]
            best = [sorted(entry.values(), reverse=True) for entry in choice["logprobs"]["top_logprobs"]]
            found.append((choice["token_ids"], [values[0] - values[1] for values in best], choice["text"]))
        server.signal(signal.SIGTERM)
        self.assertEqual(server.wait_exit(60), 0, server.log())
        return found

    def test_the_gpu_says_what_the_cpu_says(self):
        expected = self.answers(["--device", "cpu"], PROMPTS)
        judged = 0
        for dtype in ("bfloat16", "float16"):
            for prompt, (tokens, leads, text), (got, _, said) in zip(PROMPTS, expected, self.answers(["--device", "cuda", "--dtype", dtype], PROMPTS)):
                certain = next((i for i, lead in enumerate(leads) if lead < SMALL_LEAD), TOKENS)
                at = next((i for i, (a, b) in enumerate(zip(tokens, got)) if a != b), TOKENS)
                judged += certain
                print(f"{dtype}, {prompt!r}: {at} tokens are the same, the first small lead is of token {certain}")
                with self.subTest(dtype=dtype, prompt=prompt):
                    self.assertEqual(len(got), TOKENS)
                    self.assertGreaterEqual(at, certain, f"token {at} leads by {leads[min(at, TOKENS - 1)]:.3f}: {said!r}, expected {text!r}")
        self.assertGreater(judged, TOKENS, "so few tokens are certain that nothing was compared")


if __name__ == "__main__":
    unittest.main()
