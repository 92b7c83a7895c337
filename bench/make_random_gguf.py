#!/usr/bin/env python3
"""Writes a GGUF file of Llama shape with random weights, for benchmarks: no download, nothing but the standard library.

    bench/make_random_gguf.py OUT.gguf [--type bf16|q8_0|q4_0] [--layers 16] [--hidden 2048] [--ffn 8192] [--heads 32] [--kv-heads 8] [--vocab 32000]

The defaults have the shape of Llama 3.2 1B with a smaller vocabulary and an output matrix of its own. Weights are normal
with deviation 0.02, taken from a pool at random places; norms are ones. With q4_0 the output matrix is Q6_K, as usual
quantisers have it. The vocabulary is SentencePiece-like: <unk>, <s>, </s>, 256 bytes, then made-up words.
"""
import argparse
import random
import struct

STRING, ARRAY, UINT32, INT32, FLOAT32 = 8, 9, 4, 5, 6
F32_TENSOR = 0
ALIGNMENT = 32
POOL = 1 << 20  # values


def string(text):
    data = text.encode()
    return struct.pack("<Q", len(data)) + data


def field(key, kind, value):
    packers = {STRING: string, UINT32: lambda v: struct.pack("<I", v), FLOAT32: lambda v: struct.pack("<f", v)}
    return string(key) + struct.pack("<I", kind) + packers[kind](value)


def array(key, kind, values):
    packers = {STRING: string, INT32: lambda v: struct.pack("<i", v), FLOAT32: lambda v: struct.pack("<f", v)}
    return string(key) + struct.pack("<IIQ", ARRAY, kind, len(values)) + b"".join(packers[kind](v) for v in values)


def vocabulary(size):
    """Tokens, scores and types (1 word, 2 unknown, 3 control, 6 byte)."""
    tokens = ["<unk>", "<s>", "</s>"] + [f"<0x{b:02X}>" for b in range(256)]
    types = [2, 3, 3] + [6] * 256
    letters = "abcdefghijklmnopqrstuvwxyz"
    for i in range(size - len(tokens)):
        word, n = "", i
        while True:
            word, n = letters[n % 26] + word, n // 26 - 1
            if n < 0:
                break
        tokens.append(("\u2581" if i % 2 else "") + word)
        types.append(1)
    return tokens, [0.0] * 259 + [-float(i) for i in range(size - 259)], types


def metadata(a):
    tokens, scores, types = vocabulary(a.vocab)
    return [
        field("general.architecture", STRING, "llama"), field("general.name", STRING, "random"),
        field("llama.block_count", UINT32, a.layers), field("llama.context_length", UINT32, 8192),
        field("llama.embedding_length", UINT32, a.hidden), field("llama.feed_forward_length", UINT32, a.ffn),
        field("llama.attention.head_count", UINT32, a.heads), field("llama.attention.head_count_kv", UINT32, a.kv_heads),
        field("llama.attention.layer_norm_rms_epsilon", FLOAT32, 1e-5),
        field("llama.rope.dimension_count", UINT32, a.hidden // a.heads), field("llama.rope.freq_base", FLOAT32, 10000.0),
        field("llama.vocab_size", UINT32, a.vocab), field("tokenizer.ggml.model", STRING, "llama"),
        array("tokenizer.ggml.tokens", STRING, tokens), array("tokenizer.ggml.scores", FLOAT32, scores),
        array("tokenizer.ggml.token_type", INT32, types), field("tokenizer.ggml.bos_token_id", UINT32, 1),
        field("tokenizer.ggml.eos_token_id", UINT32, 2), field("tokenizer.ggml.unknown_token_id", UINT32, 0),
    ]


def tensors(a):
    """(name, rows, columns) of each; rows 0 stands for a vector."""
    kv = a.hidden // a.heads * a.kv_heads
    yield "token_embd.weight", a.vocab, a.hidden
    for i in range(a.layers):
        blk = f"blk.{i}."
        yield blk + "attn_norm.weight", 0, a.hidden
        for name, rows in (("attn_q", a.hidden), ("attn_k", kv), ("attn_v", kv), ("attn_output", a.hidden)):
            yield f"{blk}{name}.weight", rows, a.hidden
        yield blk + "ffn_norm.weight", 0, a.hidden
        yield blk + "ffn_gate.weight", a.ffn, a.hidden
        yield blk + "ffn_up.weight", a.ffn, a.hidden
        yield blk + "ffn_down.weight", a.hidden, a.ffn
    yield "output_norm.weight", 0, a.hidden
    yield "output.weight", a.vocab, a.hidden


def blocks_of_32(values, encode):
    return b"".join(encode(values[i:i + 32]) for i in range(0, len(values), 32))


def q8_0(x):
    d = max(map(abs, x)) / 127
    return struct.pack("<e32b", d, *(round(v / d) for v in x))


def q4_0(x):
    d = max(x, key=abs) / -8
    q = [min(15, int(v / d + 8.5)) for v in x]
    return struct.pack("<e16B", d, *(q[i] | q[i + 16] << 4 for i in range(16)))


def q6_k_pool(rng):
    """Blocks of random codes: { low[128], high[64], int8 scales[16], half d } for 256 values of deviation 0.02."""
    one = [rng.randbytes(192) + bytes(rng.randrange(8, 13) for _ in range(16)) + struct.pack("<e", 0.02 / (18.5 * 10))
           for _ in range(POOL // 256)]
    return b"".join(one)


class Pool:
    """Encoded values to take a tensor's bytes from."""

    def __init__(self, kind, elements, block_bytes, data):
        self.kind, self.elements, self.block_bytes, self.data = kind, elements, block_bytes, data

    def bytes_of(self, count):
        return count // self.elements * self.block_bytes

    def write(self, out, rng, size):
        while size:
            begin = rng.randrange(len(self.data) // self.block_bytes // 2) * self.block_bytes
            part = self.data[begin:begin + size]
            out.write(part)
            size -= len(part)


def make_pools(kind, rng):
    """Of all matrices, and of the output matrix."""
    values = [rng.gauss(0.0, 0.02) for _ in range(POOL)]
    if kind == "q8_0":
        pool = Pool(8, 32, 34, blocks_of_32(values, q8_0))
    elif kind == "q4_0":
        return Pool(2, 32, 18, blocks_of_32(values, q4_0)), Pool(14, 256, 210, q6_k_pool(rng))
    else:
        floats = struct.pack(f"<{POOL}f", *values)
        pool = Pool(30, 1, 2, b"".join(floats[i:i + 2] for i in range(2, len(floats), 4)))  # the upper halves
    return pool, pool


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out")
    parser.add_argument("--type", choices=("bf16", "q8_0", "q4_0"), default="bf16")
    for name, value in (("layers", 16), ("hidden", 2048), ("ffn", 8192), ("heads", 32), ("kv-heads", 8), ("vocab", 32000)):
        parser.add_argument(f"--{name}", type=int, default=value)
    a = parser.parse_args()
    if a.vocab < 1000 or a.hidden % a.heads or a.heads % a.kv_heads or a.hidden % 256 or a.ffn % 256:
        parser.error("--vocab is at least 1000, --hidden a multiple of --heads and 256, --ffn of 256, --heads of --kv-heads")

    rng = random.Random(1)
    matrices, output = make_pools(a.type, rng)
    ones = Pool(F32_TENSOR, 1, 4, struct.pack("<f", 1.0) * 4096)

    infos, offset, parts = [], 0, []
    for name, rows, columns in tensors(a):
        dims = (columns, rows) if rows else (columns,)
        pool = ones if not rows else output if name == "output.weight" else matrices
        size = pool.bytes_of(max(rows, 1) * columns)
        infos.append(string(name) + struct.pack(f"<I{len(dims)}QIQ", len(dims), *dims, pool.kind, offset))
        parts.append((pool, size))
        offset += (size + ALIGNMENT - 1) // ALIGNMENT * ALIGNMENT
    fields = metadata(a)
    with open(a.out, "wb") as out:
        out.write(struct.pack("<4sIQQ", b"GGUF", 3, len(infos), len(fields)) + b"".join(fields) + b"".join(infos))
        out.write(b"\0" * (-out.tell() % ALIGNMENT))
        for pool, size in parts:
            pool.write(out, rng, size)
            out.write(b"\0" * (-size % ALIGNMENT))


if __name__ == "__main__":
    main()
