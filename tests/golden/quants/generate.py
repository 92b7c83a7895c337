#!/usr/bin/env python3
"""Writes quants.safetensors: blocks of every quantised GGUF type with the values that the reference gives them.

Needs the packages gguf, numpy and safetensors.  Usage: generate.py [OUTPUT]

  <type>.blocks     U8  [n, bytes of a block]      random blocks with finite scales, some zero, subnormal or huge
  <type>.values     F32 [n, elements of a block]   the same blocks dequantised
  source            F32 [n, 32]                    rows of several sizes, with zeros, equal values and ties
  <type>.quantized  U8  [n, bytes of a block]      `source` quantised, for the types that the reference writes
"""

import sys
from pathlib import Path

import numpy as np
from gguf import GGML_QUANT_SIZES, GGMLQuantizationType, quants
from safetensors.numpy import save_file

# Where a block keeps its half-precision scales.
SCALE_OFFSETS = {
    "Q8_0": [0], "Q4_0": [0], "Q4_1": [0, 2], "Q5_0": [0], "Q5_1": [0, 2], "IQ4_NL": [0],
    "Q2_K": [80, 82], "Q3_K": [108], "Q4_K": [0, 2], "Q5_K": [0, 2], "Q6_K": [208], "IQ4_XS": [0],
}
WRITABLE = ["Q8_0", "Q4_0", "Q4_1", "Q5_0", "Q5_1"]
SPECIAL_SCALES = np.array([0.0, -0.0, 6e-8, -3e-5, 65504.0, -65504.0], dtype=np.float16)


def random_blocks(rng, name):
    kind = GGMLQuantizationType[name]
    elements, size = GGML_QUANT_SIZES[kind]
    count = 32 if elements == 32 else 10
    blocks = rng.integers(0, 256, size=(count, size), dtype=np.uint8)
    for offset in SCALE_OFFSETS[name]:
        scales = (rng.standard_normal(count) * 0.05).astype(np.float16)
        special = rng.permutation(count)[: len(SPECIAL_SCALES)]
        scales[special] = SPECIAL_SCALES
        blocks[:, offset : offset + 2] = scales.reshape(-1, 1).view(np.uint8)
    return blocks, quants.dequantize(blocks, kind)


def source_rows(rng):
    rows = rng.standard_normal((40, 32)).astype(np.float32)
    rows *= np.float32(10.0) ** rng.uniform(-6, 3, size=(40, 1)).astype(np.float32)
    rows[0] = 0.0
    rows[1] = 0.75
    rows[2] = -0.75
    rows[3] = np.arange(32, dtype=np.float32) - 16  # ties
    rows[4] = np.where(np.arange(32) % 2 == 0, 1.0, -1.0)  # the extreme occurs with both signs
    rows[5, 1:] = 0.0
    return rows


def main():
    output = Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).parent / "quants.safetensors"
    rng = np.random.default_rng(20240607)
    tensors = {}
    for name in SCALE_OFFSETS:
        tensors[f"{name}.blocks"], tensors[f"{name}.values"] = random_blocks(rng, name)
    tensors["source"] = source_rows(rng)
    for name in WRITABLE:
        tensors[f"{name}.quantized"] = quants.quantize(tensors["source"], GGMLQuantizationType[name])
    save_file({name: np.ascontiguousarray(t) for name, t in tensors.items()}, output)
    print(f"{output}: {output.stat().st_size} bytes, {len(tensors)} tensors")


if __name__ == "__main__":
    main()
