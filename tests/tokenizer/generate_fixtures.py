#!/usr/bin/env python3
"""Writes tests/tokenizer/data: tiny tokenizers, trained here on the sentences of strings.py, and what the Python packages
make of some texts with them. The unit tests of src/text read them; nothing of it comes from a real model.

    pip install tokenizers sentencepiece tiktoken && python3 tests/tokenizer/generate_fixtures.py
"""

import base64
import io
import json
import pathlib

import sentencepiece
import tiktoken
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers

import conversions
import strings

DATA = pathlib.Path(__file__).resolve().parent / "data"
LLAMA3 = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*"
          r"|\s*[\r\n]+|\s+(?!\S)|\s+")
# Not one of the known regexes, so that it runs in PCRE2.
UNKNOWN_REGEX = r"\p{Lu}?\p{Ll}+|\p{L}+|\p{N}{1,2}|[^\s\p{L}\p{N}]+|\s+"
RULES = "41\t61\n42\t62\nC4\t61 65\nFF21\t41\n3000\t20\n69 307\t69\nAD\t\n"  # A->a B->b Ä->ae Ａ->A ...


def texts():
    source = strings.Strings(2)
    out = ["", " ", "Hello world", "  two  spaces ", "don't, I'LL; WE'VE", "日本語のテキスト 中文", "a\u0301 e\u0301\u0316",
           "12345 67", "<|bos|>x<|eos|> <|bos|>", "tab\tnewline\n\n  end\r\n", "👩\u200d👧 ok", "ÄÖÜ ＡBC\u3000x\u00ady",
           "▁▁ a▁b", "<tag>in</tag>", "<0x41>", "\u0000\u0001", "naïve café", "über   <mask>  x"]
    return out + [t for t in source.generate(120)[10:] if len(t) < 60][:40]


def corpus():
    return strings.Strings(1).sentences * 3


def write(name, files, encode, decode, **more):
    folder = DATA / name
    folder.mkdir(parents=True, exist_ok=True)
    for file, contents in files.items():
        (folder / file).write_bytes(contents if isinstance(contents, bytes) else contents.encode())
    samples = []
    for text in texts():
        ids = encode(text)
        samples.append({"text": text, "ids": ids, "decoded": decode(ids)})
    lines = ",\n".join(json.dumps(s, ensure_ascii=False) for s in samples)
    head = json.dumps(more)[1:-1] + ",\n" if more else ""
    (folder / "expected.json").write_text("{" + head + '"samples": [\n' + lines + "\n]}\n")


def write_tokenizers(name, tokenizer, config=None):
    files = {"tokenizer.json": tokenizer.to_str()}
    if config:
        files["tokenizer_config.json"] = json.dumps(config)
    write(name, files, lambda t: tokenizer.encode(t).ids, lambda ids: tokenizer.decode(ids, skip_special_tokens=True))


def byte_level(regex, specials):
    tokenizer = Tokenizer(models.BPE())
    tokenizer.normalizer = normalizers.NFC()
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Split(Regex(regex), "isolated"), pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.train_from_iterator(corpus(), trainers.BpeTrainer(
        vocab_size=700, special_tokens=specials, show_progress=False,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet()))
    return tokenizer


def write_byte_level():
    tokenizer = byte_level(LLAMA3, ["<|bos|>", "<|eos|>"])
    tokenizer.post_processor = processors.Sequence([
        processors.ByteLevel(trim_offsets=True),
        processors.TemplateProcessing(single="<|bos|> $A", special_tokens=[("<|bos|>", 0)])])
    tokenizer.add_special_tokens([AddedToken("<mask>", lstrip=True, rstrip=True, special=True, normalized=False)])
    tokenizer.add_tokens([AddedToken("über", single_word=True), AddedToken("naïve")])
    write_tokenizers("byte_level", tokenizer, {"bos_token": "<|bos|>", "eos_token": {"content": "<|eos|>"}})
    write_tokenizers("other_regex", byte_level(UNKNOWN_REGEX, ["<unk>"]))


def write_gguf_gpt2():
    tokenizer = byte_level(r"\p{N}", ["<|bos|>", "<|eos|>"])
    tokenizer.normalizer = normalizers.Sequence([])
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)])
    tokenizer.train_from_iterator(corpus(), trainers.BpeTrainer(
        vocab_size=600, special_tokens=["<|bos|>", "<|eos|>"], show_progress=False,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet()))
    model = json.loads(tokenizer.to_str())["model"]
    tokens = sorted(model["vocab"], key=model["vocab"].get)
    metadata = {"tokenizer.ggml.model": "gpt2", "tokenizer.ggml.pre": "smollm", "tokenizer.ggml.tokens": tokens,
                "tokenizer.ggml.token_type": [3, 3] + [1] * (len(tokens) - 2),
                "tokenizer.ggml.merges": [" ".join(m) for m in model["merges"]],
                "tokenizer.ggml.bos_token_id": 0, "tokenizer.ggml.eos_token_id": 1,
                "tokenizer.ggml.add_bos_token": False}
    write("gguf_gpt2", {"metadata.json": json.dumps(metadata, ensure_ascii=False)}, lambda t: tokenizer.encode(t).ids,
          lambda ids: tokenizer.decode(ids, skip_special_tokens=True))


def write_folding():
    """Every normaliser that folds characters, in a model of characters with unknown ones."""
    tokenizer = Tokenizer(models.BPE(unk_token="<unk>", fuse_unk=True))
    tokenizer.normalizer = normalizers.Sequence([normalizers.NFKC(), normalizers.Lowercase(), normalizers.NFKD(),
                                                 normalizers.StripAccents()])
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    tokenizer.train_from_iterator(corpus(), trainers.BpeTrainer(
        vocab_size=700, special_tokens=["<unk>"], show_progress=False, limit_alphabet=300))
    tokenizer.decoder = decoders.Fuse()
    write_tokenizers("folding", tokenizer)


def train_sentencepiece(**settings):
    out = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(sentence_iterator=iter(corpus()), model_writer=out, num_threads=1,
                                             hard_vocab_limit=False, minloglevel=2, **settings)
    return out.getvalue()


def write_sentencepiece():
    rules = DATA / "rules.tsv"
    DATA.mkdir(exist_ok=True)
    rules.write_text(RULES)
    unigram = train_sentencepiece(model_type="unigram", vocab_size=900, normalization_rule_tsv=str(rules),
                                  character_coverage=0.98, user_defined_symbols=["<tag>", "über"])
    rules.unlink()
    bpe = train_sentencepiece(model_type="bpe", vocab_size=1100, byte_fallback=True, normalization_rule_name="identity",
                              remove_extra_whitespaces=False, allow_whitespace_only_pieces=True,
                              user_defined_symbols=["<tag>", "\n\n"])
    for name, contents in {"unigram": unigram, "bpe": bpe}.items():
        processor = sentencepiece.SentencePieceProcessor(model_proto=contents)
        write(name, {"tokenizer.model": contents}, processor.encode, processor.decode, plain=True)
        if name == "unigram":
            write_tokenizers("unigram_json", conversions.sentencepiece_to_unigram_json(contents, processor))
    plain = train_sentencepiece(model_type="bpe", vocab_size=900, byte_fallback=True,
                                normalization_rule_name="identity", remove_extra_whitespaces=False)
    processor = sentencepiece.SentencePieceProcessor(model_proto=plain)
    write("gguf_llama", {"metadata.json": json.dumps(conversions.sentencepiece_to_gguf(processor), ensure_ascii=False)},
          processor.encode, processor.decode, plain=True)
    tokenizer = conversions.sentencepiece_to_json(processor)
    tokenizer.post_processor = processors.TemplateProcessing(single="<s> $A </s>", special_tokens=[("<s>", 1), ("</s>", 2)])
    write_tokenizers("metaspace", tokenizer)


def write_tekken():
    tokenizer = byte_level(UNKNOWN_REGEX, [])
    vocab = tokenizer.get_vocab()
    alphabet = {c: b for b, c in conversions.byte_alphabet().items()}
    ranks = {bytes(alphabet[c] for c in t): i for t, i in vocab.items()}
    ranks = {t: i for i, t in enumerate(sorted(ranks, key=lambda t: (len(t) > 1, ranks[t])))}
    specials, kept = 20, 500
    data = {"config": {"pattern": UNKNOWN_REGEX, "num_vocab_tokens": len(ranks), "default_vocab_size": kept + specials,
                       "default_num_special_tokens": specials, "version": "v3"},
            "vocab": [{"rank": r, "token_bytes": base64.b64encode(t).decode(), "token_str": None}
                      for t, r in ranks.items()]}
    encoding = tiktoken.Encoding("tiny", pat_str=UNKNOWN_REGEX, special_tokens={},
                                 mergeable_ranks={t: r for t, r in ranks.items() if r < kept})
    write("tekken", {"tekken.json": json.dumps(data)},
          lambda t: [i + specials for i in encoding.encode(t, disallowed_special=())],
          lambda ids: encoding.decode([i - specials for i in ids]), plain=True)


if __name__ == "__main__":
    write_byte_level()
    write_gguf_gpt2()
    write_folding()
    write_sentencepiece()
    write_tekken()
