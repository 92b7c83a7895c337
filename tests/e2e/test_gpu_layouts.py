"""A model cut over ranks that share one GPU answers as the float64 reference does, up to the first token whose lead is small.

The ranks need the MPS daemon, which this test starts and ends. Without a GPU, or with a build without CUDA, it is skipped."""
import json
import os
import pathlib
import shutil
import signal
import struct
import subprocess
import tempfile
import unittest

from cluster_harness import ROOT, ClusterTest

LAYOUTS = {"tp1": ("-tp", 1), "tp2": ("-tp", 2), "tp4": ("-tp", 4), "pp2": ("-pp", 2), "tp2_pp2": ("-tp", 2, "-pp", 2)}
MODELS = ("llama2", "llama3", "qwen3")
SMALL_LEAD = 0.1


def has_gpu():
    return shutil.which("nvidia-cuda-mps-control") and subprocess.run(["nvidia-smi", "-L"], capture_output=True).returncode == 0


def read_golden(folder):
    """The prompt, the reference's 64 greedy tokens, and each one's lead over the second best."""
    data = (folder / "golden.safetensors").read_bytes()
    (size,) = struct.unpack("<Q", data[:8])
    header, body = json.loads(data[8:8 + size]), data[8 + size:]

    def values(name, code):
        begin, end = header[name]["data_offsets"]
        return list(struct.unpack(f"<{(end - begin) // 4}{code}", body[begin:end]))

    return values("prompt", "i"), values("greedy", "i"), values("greedy_gaps", "f")


@unittest.skipUnless(os.environ.get("TUTTI_CUDA") == "1" and has_gpu(), "needs a build with CUDA, a GPU and its MPS daemon")
class GpuLayouts(ClusterTest):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.pipe = tempfile.mkdtemp()
        cls.mps = {**os.environ, "CUDA_MPS_PIPE_DIRECTORY": cls.pipe, "CUDA_MPS_LOG_DIRECTORY": cls.pipe}
        subprocess.run(["nvidia-cuda-mps-control", "-d"], env=cls.mps, check=True)

    @classmethod
    def tearDownClass(cls):
        subprocess.run(["nvidia-cuda-mps-control"], input="quit\n", text=True, env=cls.mps, stdout=subprocess.DEVNULL, timeout=30)
        shutil.rmtree(cls.pipe, ignore_errors=True)
        super().tearDownClass()

    def folder_of(self, name):
        """The golden model, with the random model's tokenizer: prompts are token ids."""
        folder = pathlib.Path(self.folder.name) / name
        if not folder.exists():
            shutil.copytree(ROOT / "tests" / "golden" / "models" / name, folder)
            shutil.copy(pathlib.Path(self.model) / "tokenizer.json", folder)
        return folder

    def answer(self, folder, prompt, count, layout):
        ranks = layout[1] * (layout[3] if len(layout) > 2 else 1)
        env = {name: self.mps[name] for name in ("CUDA_MPS_PIPE_DIRECTORY", "CUDA_MPS_LOG_DIRECTORY")}
        env.update(CUDA_VISIBLE_DEVICES="0", CUDA_MPS_ACTIVE_THREAD_PERCENTAGE=str(100 // ranks))
        head = self.start("serve", folder, "--device", "cuda", "--dtype", "bfloat16", "--kv-cache-memory-bytes", "64M", "--max-model-len", 128, "--nnodes", 1,
                          "--port", self.port, "--master-port", self.control_port, *layout, env=env)
        head.wait_for("Application startup complete.", timeout=90)
        status, body = self.post({"prompt": prompt, "max_tokens": count, "temperature": 0, "ignore_eos": True, "return_token_ids": True})
        self.assertEqual(status, 200, body)
        head.signal(signal.SIGTERM)
        self.assertEqual(head.wait_exit(60), 0, head.log())
        return json.loads(body)["choices"][0]["token_ids"]

    def test_every_layout_gives_the_reference(self):
        for name in MODELS:
            folder = self.folder_of(name)
            prompt, greedy, leads = read_golden(folder)
            for layout, flags in LAYOUTS.items():
                with self.subTest(model=name, layout=layout):
                    tokens = self.answer(folder, prompt, len(greedy), flags)
                    self.assertEqual(len(tokens), len(greedy))
                    at = next((i for i, (a, b) in enumerate(zip(greedy, tokens)) if a != b), None)
                    print(name, layout, "the same 64 tokens" if at is None else f"the same {at} tokens, then a lead of {leads[at]:.3f}")
                    if at is not None:
                        self.assertLess(leads[at], SMALL_LEAD, f"token {at} is {tokens[at]}, expected {greedy[at]}")


if __name__ == "__main__":
    unittest.main()
