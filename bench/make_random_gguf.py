#!/usr/bin/env python3
"""Writes a GGUF file of Llama shape with random BF16 weights, for benchmarks: no download, nothing but the standard library.

    bench/make_random_gguf.py OUT.gguf [--layers 16] [--hidden 2048] [--ffn 8192] [--heads 32] [--kv-heads 8] [--vocab 32000]

The defaults have the shape of Llama 3.2 1B with a smaller vocabulary and an output matrix of its own. Weights are normal
with deviation 0.02, taken from a pool at random places; norms are ones. The vocabulary is SentencePiece-like: <unk>, <s>,
</s>, 256 bytes, then made-up words. Other types are made of the file by any GGUF quantiser.
"""
import argparse
import random
import struct

STRING, ARRAY, UINT32, INT32, FLOAT32 = 8, 9, 4, 5, 6
F32_TENSOR, BF16_TENSOR = 0, 30
ALIGNMENT = 32
POOL = 1 << 21  # values


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


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out")
    for name, value in (("layers", 16), ("hidden", 2048), ("ffn", 8192), ("heads", 32), ("kv-heads", 8), ("vocab", 32000)):
        parser.add_argument(f"--{name}", type=int, default=value)
    a = parser.parse_args()
    if a.vocab < 1000 or a.hidden % a.heads or a.heads % a.kv_heads:
        parser.error("--vocab is at least 1000, --hidden a multiple of --heads, --heads one of --kv-heads")

    rng = random.Random(1)
    pool = struct.pack(f"<{POOL}f", *(rng.gauss(0.0, 0.02) for _ in range(POOL)))
    pool = b"".join(pool[i:i + 2] for i in range(2, len(pool), 4))  # the upper halves: BF16

    infos, offset, sizes = [], 0, []
    for name, rows, columns in tensors(a):
        dims = (columns, rows) if rows else (columns,)
        kind, size = (BF16_TENSOR, 2 * rows * columns) if rows else (F32_TENSOR, 4 * columns)
        infos.append(string(name) + struct.pack(f"<I{len(dims)}QIQ", len(dims), *dims, kind, offset))
        sizes.append((rows, size))
        offset += (size + ALIGNMENT - 1) // ALIGNMENT * ALIGNMENT
    fields = metadata(a)
    with open(a.out, "wb") as out:
        out.write(struct.pack("<4sIQQ", b"GGUF", 3, len(infos), len(fields)) + b"".join(fields) + b"".join(infos))
        out.write(b"\0" * (-out.tell() % ALIGNMENT))
        for rows, size in sizes:
            left = size
            while left:
                begin = rng.randrange(POOL // 2) * 2
                part = pool[begin:begin + left] if rows else struct.pack("<f", 1.0) * (size // 4)
                out.write(part)
                left -= len(part)
            out.write(b"\0" * (-size % ALIGNMENT))


if __name__ == "__main__":
    main()
