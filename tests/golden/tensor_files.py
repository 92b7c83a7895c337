"""Reads and writes safetensors with numpy alone, bfloat16 included (as float32 arrays that hold such values)."""

import json
import struct

import numpy as np

KINDS = {"F32": np.dtype("<f4"), "F16": np.dtype("<f2"), "BF16": np.dtype("<u2"), "I32": np.dtype("<i4")}


def to_bfloat16(values):
    """Bit patterns, rounded to nearest, ties to even. Finite values only."""
    bits = np.ascontiguousarray(values, dtype=np.float32).view(np.uint32)
    return ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16).astype("<u2")


def save(path, tensors, kinds, metadata):
    """tensors: name -> array; kinds: name -> "F32", "F16", "BF16" or "I32". Wide elements first, so that all align."""
    names = sorted(tensors, key=lambda name: (-KINDS[kinds[name]].itemsize, name))
    header, chunks, end = {"__metadata__": metadata}, [], 0
    for name in names:
        kind = kinds[name]
        data = to_bfloat16(tensors[name]) if kind == "BF16" else np.asarray(tensors[name]).astype(KINDS[kind])
        chunk = data.tobytes()
        shape = list(np.shape(tensors[name]))
        header[name] = {"dtype": kind, "shape": shape, "data_offsets": [end, end + len(chunk)]}
        chunks.append(chunk)
        end += len(chunk)
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    path.write_bytes(struct.pack("<Q", len(text)) + text + b"".join(chunks))


def load(path):
    """name -> array (float32 for BF16)"""
    data = path.read_bytes()
    (length,) = struct.unpack("<Q", data[:8])
    tensors = {}
    for name, entry in json.loads(data[8 : 8 + length]).items():
        if name == "__metadata__":
            continue
        begin, end = (8 + length + offset for offset in entry["data_offsets"])
        array = np.frombuffer(data[begin:end], dtype=KINDS[entry["dtype"]]).reshape(entry["shape"])
        if entry["dtype"] == "BF16":
            array = (array.astype(np.uint32) << 16).view(np.float32)
        tensors[name] = array
    return tensors
