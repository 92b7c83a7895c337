#!/usr/bin/env python3
"""Writes the seeds of the three tokenizer fuzzers: small files that use every part of each format.

    pip install sentencepiece && python3 tests/fuzz/make_tokenizer_seeds.py
"""

import base64
import io
import json
import pathlib
import struct

import sentencepiece

CORPUS = pathlib.Path(__file__).resolve().parent / "corpus"
TEXT = ["Hello world, wörld 123.", "ab ab cd cd", "the hello the world", "日本 ab"] * 3
VOCAB = {t: i for i, t in enumerate(
    ["<unk>", "<s>", "</s>", "H", "e", "l", "o", "Ġ", "▁", "w", "r", "d", "1", "2", "3", "ll", "Hell", "He", "<0x0A>",
     "<0xC3>", "<0xB6>", "▁w", "Ġw", "wo"])}
MERGES = ["l l", ["H", "e"], "He ll", "w o", ["▁", "w"], ["Ġ", "w"]]
ADDED = [{"id": 1, "content": "<s>", "special": True}, {"id": 30, "content": "ö", "normalized": True, "lstrip": True},
         {"id": 31, "content": "\n", "rstrip": True, "single_word": True}]


def save(name, file, contents):
    folder = CORPUS / name
    folder.mkdir(parents=True, exist_ok=True)
    (folder / file).write_bytes(contents if isinstance(contents, bytes) else contents.encode())


def tokenizer_json(file, text="", added=ADDED, **parts):
    model = {"type": "BPE", "vocab": VOCAB, "merges": MERGES, "unk_token": "<unk>", **parts.pop("model", {})}
    contents = json.dumps({"model": model, "added_tokens": added, **parts}, ensure_ascii=False)
    save("tokenizer_json", file, contents + ("\0" + text if text else ""))


def split(pattern, behavior="Isolated", invert=False):
    return {"type": "Split", "pattern": {"Regex": pattern}, "behavior": behavior, "invert": invert}


def write_tokenizer_json():
    tokenizer_json("bytes", pre_tokenizer={"type": "ByteLevel", "add_prefix_space": True}, decoder={"type": "ByteLevel"},
                   normalizer={"type": "NFC"}, model={"ignore_merges": True})
    tokenizer_json("metaspace", "Hello  wo\n", normalizer={"type": "Sequence", "normalizers": [
        {"type": "Prepend", "prepend": "▁"}, {"type": "Replace", "pattern": {"String": " "}, "content": "▁"}]},
        model={"byte_fallback": True, "fuse_unk": True}, decoder={"type": "Sequence", "decoders": [
            {"type": "Replace", "pattern": {"String": "▁"}, "content": " "}, {"type": "ByteFallback"},
            {"type": "Fuse"}, {"type": "Strip", "content": " ", "start": 1, "stop": 0}]},
        post_processor={"type": "TemplateProcessing", "single": [
            {"SpecialToken": {"id": "<s>", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}],
            "special_tokens": {"<s>": {"id": "<s>", "ids": [1], "tokens": ["<s>"]}}})
    for i, stage in enumerate([split(r"\p{N}{1,3}"), split(r"\s+", "Removed"), split("l", "MergedWithPrevious", True),
                               split("[^a-z]+", "MergedWithNext"), split(r"(?i:'s)|\w", "Contiguous"),
                               {"type": "Digits", "individual_digits": True}, {"type": "Punctuation", "behavior": "Isolated"},
                               {"type": "Whitespace"}, {"type": "WhitespaceSplit"},
                               {"type": "Metaspace", "replacement": "▁", "prepend_scheme": "first", "split": True}]):
        tokenizer_json(f"stage{i}", "e\u0301 12 Hello's", pre_tokenizer={"type": "Sequence", "pretokenizers": [stage]},
                       normalizer={"type": "NFD"}, decoder={"type": "Metaspace", "replacement": "▁"},
                       post_processor={"type": "RobertaProcessing", "sep": ["</s>", 2], "cls": ["<s>", 1]})
    for i, kind in enumerate(["NFKC", "NFKD", "Lowercase", "StripAccents", "Strip"]):
        tokenizer_json(f"normalizer{i}", "ﬁ Ａ\u0301É İΣ ①한 ", normalizer={"type": kind}, decoder={"type": "Fuse"})
    unigram = {"type": "Unigram", "unk_id": 0, "vocab": [[t, -float(i)] for t, i in VOCAB.items()]}
    rules = b"\x08\0\0\0" + struct.pack("<2I", 1 << 10, 0x68) + b"h\0"
    for fallback in (False, True):
        tokenizer_json(f"unigram{fallback:d}", "Hello ll\nö日", model={**unigram, "byte_fallback": fallback},
                       normalizer={"type": "Precompiled", "precompiled_charsmap": base64.b64encode(rules).decode()})


def write_sentencepiece():
    for model_type in ("bpe", "unigram"):
        for fallback in (False, True):
            out = io.BytesIO()
            sentencepiece.SentencePieceTrainer.train(
                sentence_iterator=iter(TEXT), model_writer=out, model_type=model_type, hard_vocab_limit=False,
                vocab_size=320 if fallback else 60, byte_fallback=fallback, minloglevel=2, num_threads=1,
                user_defined_symbols=["ab", "cd"], normalization_rule_name="identity")
            save("sentencepiece_model", f"{model_type}{fallback:d}", out.getvalue())
    rules = CORPUS / "rules.tsv"
    rules.write_text("48\t68\nF6\t6F 65\n20\t\n")
    out = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(TEXT), model_writer=out, model_type="unigram", hard_vocab_limit=False, vocab_size=50,
        minloglevel=2, num_threads=1, normalization_rule_tsv=str(rules), treat_whitespace_as_suffix=True)
    rules.unlink()
    save("sentencepiece_model", "charsmap", out.getvalue())


def write_files():
    ranks = [bytes([b]) for b in range(256)] + [b"ab", b"abc", b" w"]
    encoded = [base64.b64encode(r).decode() for r in ranks]
    save("tokenizer_files", "ranks", "".join(f"{t} {i}\n" for i, t in enumerate(encoded)))
    save("tokenizer_files", "tekken", json.dumps({
        "config": {"pattern": r"\p{L}+|\s|.", "default_vocab_size": 262, "default_num_special_tokens": 3},
        "vocab": [{"rank": i, "token_bytes": t} for i, t in enumerate(encoded)],
        "special_tokens": [{"rank": 0, "token_str": "<s>"}]}))
    gguf = {"tokenizer.ggml.tokens": list(VOCAB), "tokenizer.ggml.bos_token_id": 1, "tokenizer.ggml.eos_token_id": 2,
            "tokenizer.ggml.token_type": [2, 3, 3] + [1] * (len(VOCAB) - 3)}
    save("tokenizer_files", "gpt2", json.dumps({"tokenizer.ggml.model": "gpt2", "tokenizer.ggml.pre": "default", **gguf,
                                                "tokenizer.ggml.merges": ["l l", "H e", "He ll"]}))
    save("tokenizer_files", "llama", json.dumps({"tokenizer.ggml.model": "llama", **gguf,
                                                 "tokenizer.ggml.scores": [-float(i) for i in range(len(VOCAB))]}))


if __name__ == "__main__":
    write_tokenizer_json()
    write_sentencepiece()
    write_files()
