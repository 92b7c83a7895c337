#!/usr/bin/env python3
"""Writes the seeds of the safetensors and gguf fuzzers into corpus/: small valid files and near misses."""

import json
import struct
from pathlib import Path

CORPUS = Path(__file__).parent / "corpus"
U8, I8, U16, I16, U32, I32, F32, BOOL, STRING, ARRAY, U64, I64, F64 = range(13)
FORMATS = {U8: "B", I8: "b", U16: "H", I16: "h", U32: "I", I32: "i", F32: "f", BOOL: "B", U64: "Q", I64: "q", F64: "d"}


def write(fuzzer, name, data):
    folder = CORPUS / fuzzer
    folder.mkdir(parents=True, exist_ok=True)
    (folder / name).write_bytes(data)


def safetensors(header, data_bytes, pad=8):
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % pad)
    return struct.pack("<Q", len(text)) + text + bytes(data_bytes)


def safetensors_seeds():
    def entry(dtype, shape, begin, end):
        return {"dtype": dtype, "shape": shape, "data_offsets": [begin, end]}

    two = {"__metadata__": {"format": "pt"}, "a": entry("F32", [2], 0, 8), "b": entry("BF16", [2, 1], 8, 12)}
    kinds = {"d%d" % i: entry(d, [1], 8 * i, 8 * i + 8) for i, d in enumerate(["I64", "F64"])}
    index = {"metadata": {"total_size": 12}, "weight_map": {"a": "x-1.safetensors", "b": "x-2.safetensors"}}
    write("safetensors", "two", safetensors(two, 12))
    write("safetensors", "empty", safetensors({}, 0))
    write("safetensors", "scalar", safetensors({"s": entry("I8", [], 0, 1)}, 1))
    write("safetensors", "zero_size", safetensors({"z": entry("F16", [0, 3], 0, 0)}, 0))
    write("safetensors", "truncated", safetensors(two, 11))
    write("safetensors", "unknown_dtype", safetensors(kinds, 16))
    write("safetensors", "overlap", safetensors({"a": entry("I8", [4], 0, 4), "b": entry("I8", [4], 2, 6)}, 6))
    write("safetensors", "index", json.dumps(index).encode())


def string(text):
    return struct.pack("<Q", len(text)) + text.encode()


def value(kind, content):
    if kind == STRING:
        return string(content)
    if kind == ARRAY:
        element, items = content
        return struct.pack("<IQ", element, len(items)) + b"".join(value(element, i) for i in items)
    return struct.pack("<" + FORMATS[kind], content)


def gguf(pairs, tensors, data_bytes, version=3, alignment=32):
    out = b"GGUF" + struct.pack("<IQQ", version, len(tensors), len(pairs))
    for key, kind, content in pairs:
        out += string(key) + struct.pack("<I", kind) + value(kind, content)
    for name, dims, kind, offset in tensors:
        out += string(name) + struct.pack("<I", len(dims)) + struct.pack(f"<{len(dims)}Q", *dims)
        out += struct.pack("<IQ", kind, offset)
    return out + bytes(-len(out) % alignment) + bytes(data_bytes)


def gguf_seeds():
    scalars = [(f"k{kind}", kind, 1) for kind in FORMATS] + [("s", STRING, "llama")]
    arrays = [("t", ARRAY, (STRING, ["a", "bc"])), ("n", ARRAY, (I32, [1, -1])),
              ("nested", ARRAY, (ARRAY, [(U8, [1]), (F32, [0.5])]))]
    blocks = {2: 18, 3: 20, 6: 22, 7: 24, 8: 34, 20: 18}
    supers = {10: 84, 11: 110, 12: 144, 13: 176, 14: 210, 23: 136}
    plain = {0: 4, 1: 2, 24: 1, 26: 4, 27: 8, 30: 2}
    tensors, offset = [], 0
    for kinds, elements in ((blocks, 32), (supers, 256), (plain, 1)):
        for kind, size in kinds.items():
            tensors.append((f"w{kind}", [elements, 1], kind, offset))
            offset += -(-size // 32) * 32
    write("gguf", "scalars", gguf(scalars, [], 0))
    write("gguf", "arrays", gguf(arrays, [], 0, version=2))
    write("gguf", "all_types", gguf([], tensors, offset))
    write("gguf", "alignment", gguf([("general.alignment", U32, 8)], [("w", [2], 0, 0)], 8, alignment=8))
    write("gguf", "truncated", gguf([], [("w", [64], 8, 0)], 67))
    write("gguf", "unknown_type", gguf([], [("w", [256], 16, 0)], 66))
    write("gguf", "overlap", gguf([], [("a", [16], 0, 0), ("b", [16], 0, 32)], 128))


if __name__ == "__main__":
    safetensors_seeds()
    gguf_seeds()
