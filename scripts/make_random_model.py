#!/usr/bin/env python3
"""Writes the config.json and tokenizer.json of a random Llama for `--load-format dummy`; prints its folder.

    make_random_model.py FOLDER [--shape small|llama-3-8b|llama-2-70b] [--layers N]

For machines that cannot fetch a model: everything runs, the text is noise. Only the standard library is needed.
"""
import argparse
import json
import pathlib

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


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("--shape", choices=SHAPES, default="small")
    parser.add_argument("--layers", type=int, help="in place of the shape's own number")
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
    print(args.folder)


if __name__ == "__main__":
    main()
