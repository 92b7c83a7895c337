#!/usr/bin/env python3
"""Writes the config.json and tokenizer.json of a random Llama for `--load-format dummy`; prints its folder.

    make_random_model.py FOLDER [--shape small|llama-3-8b|llama-2-70b] [--layers N] [--weights bf16|fp8 [--shard-gb 5]]

With --weights its safetensors, too, in shards with an index; fp8: matrices of layers in E4M3 with a scale for each row, as
compressed-tensors names them. They repeat a million random normal numbers, each tensor from another one on.

For machines that cannot fetch a model: everything runs, the text is noise. Only the standard library is needed.
"""
import argparse
import array
import bisect
import concurrent.futures
import json
import math
import os
import pathlib
import random
import struct

SPECIAL = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
BYTES = 256
# vocabulary, hidden size, feed-forward, layers, heads, KV heads, positions, one matrix for embedding and head
SHAPES = {
    "small": (len(SPECIAL) + BYTES, 576, 1536, 12, 9, 3, 2048, True),
    "llama-3-8b": (128256, 4096, 14336, 32, 32, 8, 8192, False),
    "llama-2-70b": (32000, 8192, 28672, 80, 64, 8, 4096, False),
}


def byte_alphabet():
    """The 256 printable characters that stand for bytes in a byte-level vocabulary (GPT-2's table)."""
    printable = [*range(33, 127), *range(161, 173), *range(174, 256)]
    table, extra = {b: chr(b) for b in printable}, 0
    for b in range(256):
        if b not in table:
            table[b] = chr(256 + extra)
            extra += 1
    return [table[b] for b in range(256)]


def tensors_of(shape, layers, fp8):
    """name -> (type, shape, whose numbers) of all weights, in the order of the files."""
    vocabulary, hidden, feed_forward, _, heads, kv_heads, _, tied = SHAPES[shape]
    kv = hidden // heads * kv_heads
    found = {"model.embed_tokens.weight": ("BF16", [vocabulary, hidden], "normal")}
    for layer in range(layers):
        prefix = f"model.layers.{layer}."
        for name, rows, columns in (("self_attn.q", hidden, hidden), ("self_attn.k", kv, hidden), ("self_attn.v", kv, hidden),
                                    ("self_attn.o", hidden, hidden), ("mlp.gate", feed_forward, hidden),
                                    ("mlp.up", feed_forward, hidden), ("mlp.down", hidden, feed_forward)):
            weight = f"{prefix}{name}_proj.weight"
            found[weight] = ("F8_E4M3", [rows, columns], "codes") if fp8 else ("BF16", [rows, columns], "normal")
            if fp8:
                found[f"{weight}_scale"] = ("BF16", [rows, 1], "scales")
        for name in ("input_layernorm", "post_attention_layernorm"):
            found[f"{prefix}{name}.weight"] = ("BF16", [hidden], "ones")
    found["model.norm.weight"] = ("BF16", [hidden], "ones")
    if not tied:
        found["lm_head.weight"] = ("BF16", [vocabulary, hidden], "normal")
    return found


def bytes_of(kind, shape):
    return math.prod(shape) * (1 if kind == "F8_E4M3" else 2)


def bfloat16(values):
    raw = array.array("f", values).tobytes()
    cut = bytearray(len(raw) // 2)
    cut[0::2], cut[1::2] = raw[2::4], raw[3::4]
    return bytes(cut)


def float8(values):
    """E4M3 codes, rounded to nearest; what is too large becomes the largest, never the NaN."""
    known = [m * 2.0**-9 if m < 8 else (8 + m % 8) * 2.0 ** (m // 8 - 10) for m in range(127)]
    between = [(a + b) / 2 for a, b in zip(known, known[1:])]
    return bytes(bisect.bisect(between, abs(value)) | (0x80 if value < 0 else 0) for value in values)


def number_pools(fp8):
    """Bytes that tensors repeat. Codes times scales are spread as the other weights are."""
    numbers = random.Random(1)
    normal = [numbers.gauss(0, 0.02) for _ in range(1000003)]  # a prime: rows begin at different numbers
    return {"normal": bfloat16(normal), "ones": bfloat16(1 + 5 * x for x in normal),
            **({"codes": float8(x / 2e-4 for x in normal), "scales": bfloat16(2e-4 * (1 + 5 * x) for x in normal)} if fp8 else {})}


def write_shard(path, tensors, pools):
    header, end = {"__metadata__": {"format": "pt"}}, 0
    for name, (kind, shape, _) in tensors.items():
        header[name] = {"dtype": kind, "shape": shape, "data_offsets": [end, end := end + bytes_of(kind, shape)]}
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb", buffering=0) as file:
        file.write(struct.pack("<Q", len(text)) + text)
        for name, (kind, shape, source) in tensors.items():
            pool, left = memoryview(pools[source]), bytes_of(kind, shape)
            at = random.Random(name).randrange(len(pool) // 2) * 2
            while left:  # in calls of up to half a gigabyte, during which other threads run
                views, size = [], 0
                while left and len(views) < 256:
                    view = pool[at:at + left]
                    views, size, left, at = [*views, view], size + len(view), left - len(view), 0
                if os.writev(file.fileno(), views) != size:
                    raise OSError(f"{path}: no space is left for it")


def write_weights(folder, tensors, shard_bytes):
    shards, size = [{}], 0
    for name, tensor in tensors.items():
        size += bytes_of(*tensor[:2])
        if size > shard_bytes and shards[-1]:
            shards, size = [*shards, {}], bytes_of(*tensor[:2])
        shards[-1][name] = tensor
    names = [f"model-{i + 1:05}-of-{len(shards):05}.safetensors" for i in range(len(shards))]
    pools = number_pools(any(kind == "F8_E4M3" for kind, _, _ in tensors.values()))
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as threads:  # a file each: the kernel lets one write to a file
        list(threads.map(lambda name, shard: write_shard(folder / name, shard, pools), names, shards))
    index = {"metadata": {"total_size": sum(bytes_of(*tensor[:2]) for tensor in tensors.values())},
             "weight_map": {tensor: name for name, shard in zip(names, shards) for tensor in shard}}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index, indent=1))


# As llm-compressor writes it for FP8_DYNAMIC.
QUANTIZATION = {
    "quant_method": "compressed-tensors", "format": "float-quantized", "quantization_status": "compressed", "ignore": ["lm_head"],
    "config_groups": {"group_0": {
        "targets": ["Linear"],
        "weights": {"num_bits": 8, "type": "float", "strategy": "channel", "symmetric": True, "dynamic": False},
        "input_activations": {"num_bits": 8, "type": "float", "strategy": "token", "symmetric": True, "dynamic": True}}},
}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("--shape", choices=SHAPES, default="small")
    parser.add_argument("--layers", type=int, help="in place of the shape's own number")
    parser.add_argument("--weights", choices=["bf16", "fp8"], help="write them, too")
    parser.add_argument("--shard-gb", type=float, default=5)
    args = parser.parse_args()
    vocabulary, hidden, feed_forward, layers, heads, kv_heads, positions, tied = SHAPES[args.shape]
    args.folder.mkdir(parents=True, exist_ok=True)
    # Words that no text is cut into, as there are no merges, but that a random model writes.
    words = [f"w{i}" for i in range(vocabulary - len(SPECIAL) - BYTES)]
    tokens = SPECIAL + byte_alphabet() + words
    config = {
        "architectures": ["LlamaForCausalLM"], "model_type": "llama", "vocab_size": vocabulary, "hidden_size": hidden,
        "intermediate_size": feed_forward, "num_hidden_layers": args.layers or layers, "num_attention_heads": heads,
        "num_key_value_heads": kv_heads, "rms_norm_eps": 1e-5, "rope_theta": 10000.0, "max_position_embeddings": positions,
        "tie_word_embeddings": tied, "hidden_act": "silu", "torch_dtype": "bfloat16", "bos_token_id": 1, "eos_token_id": 2,
    }
    if args.weights == "fp8":
        config["quantization_config"] = QUANTIZATION
    tokenizer = {
        "version": "1.0",
        "added_tokens": [{"id": i, "content": t, "single_word": False, "lstrip": False, "rstrip": False,
                          "normalized": False, "special": True} for i, t in enumerate(SPECIAL)],
        "normalizer": None,
        "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True},
        "post_processor": None,
        "decoder": {"type": "ByteLevel"},
        "model": {"type": "BPE", "vocab": {t: i for i, t in enumerate(tokens)}, "merges": []},
    }
    (args.folder / "config.json").write_text(json.dumps(config, indent=1))
    (args.folder / "tokenizer.json").write_text(json.dumps(tokenizer, ensure_ascii=False))
    if args.weights:
        write_weights(args.folder, tensors_of(args.shape, args.layers or layers, args.weights == "fp8"), args.shard_gb * 1e9)
    print(args.folder)


if __name__ == "__main__":
    main()
