"""Small SentencePiece and byte-pair models, trained here, for settings that the real vocabularies do not have."""

import functools
import io
import random

import sentencepiece
from tokenizers import AddedToken, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers

import conversions
import strings
import vocabularies

DEFINED = ["<tag>", "▁▁▁", "ab▁", "\n\n", "über"]


@functools.cache
def corpus(seed=11, lines=3000):
    source = strings.Strings(seed)
    return [" ".join(source.random.choice(source.words) for _ in range(20)) for _ in range(lines)] + source.sentences


def train_sentencepiece(model_type, vocab_size, seed=11, **settings):
    out = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(corpus(seed)), model_writer=out, model_type=model_type, vocab_size=vocab_size,
        hard_vocab_limit=False, num_threads=1, minloglevel=2, max_sentence_length=100_000, **settings)
    return out.getvalue()


SENTENCEPIECE = {
    "unigram-nfkc": dict(model_type="unigram", vocab_size=2000, character_coverage=0.98),
    "unigram-bytes": dict(model_type="unigram", vocab_size=1500, byte_fallback=True, character_coverage=0.98,
                          normalization_rule_name="identity", remove_extra_whitespaces=False,
                          user_defined_symbols=DEFINED),
    "unigram-plain": dict(model_type="unigram", vocab_size=1200, add_dummy_prefix=False, character_coverage=0.98,
                          normalization_rule_name="nfkc_cf", user_defined_symbols=DEFINED[:2]),
    "bpe-nfkc": dict(model_type="bpe", vocab_size=2000, character_coverage=0.98),
    "bpe-bytes": dict(model_type="bpe", vocab_size=1500, byte_fallback=True, split_digits=True, character_coverage=0.98,
                      normalization_rule_name="identity", remove_extra_whitespaces=False,
                      allow_whitespace_only_pieces=True, user_defined_symbols=DEFINED),
    "bpe-across": dict(model_type="bpe", vocab_size=1500, split_by_whitespace=False, add_dummy_prefix=False,
                       character_coverage=0.98, normalization_rule_name="nfkc", remove_extra_whitespaces=False),
    "bpe-suffix": dict(model_type="bpe", vocab_size=1200, treat_whitespace_as_suffix=True, character_coverage=0.98),
}


def with_unused(contents, seed):
    """The model with a third of its normal pieces unused, by rewriting the protobuf: a later value of a field counts."""
    def varint(position):
        value = shift = 0
        while True:
            byte = contents[position]
            position += 1
            value |= (byte & 0x7f) << shift
            shift += 7
            if byte < 0x80:
                return value, position

    def encoded(value):
        return bytes([value]) if value < 128 else bytes([value & 0x7f | 0x80]) + encoded(value >> 7)

    processor = sentencepiece.SentencePieceProcessor(model_proto=contents)
    rng = random.Random(seed)
    out, position, index = b"", 0, 0
    while position < len(contents):
        tag, start = varint(position)
        size, start = varint(start)
        body = contents[start:start + size]
        if tag == 1 << 3 | 2:
            special = (processor.is_control(index) or processor.is_unknown(index) or processor.is_byte(index)
                       or processor.id_to_piece(index) in DEFINED)
            if not special and rng.random() < 0.33:
                body += bytes([3 << 3, 5])
            index += 1
        out += encoded(tag) + encoded(len(body)) + body
        position = start + size
    return out


def sentencepiece_case(name, contents, folder):
    folder = folder / name
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "tokenizer.model").write_bytes(contents)
    processor = sentencepiece.SentencePieceProcessor(model_proto=contents)
    return vocabularies.Case(name, ["--folder", str(folder), "--no-special", "--no-parse"], processor.encode,
                             processor.decode, processor.get_piece_size(), "trained here")


def llama2_like(processor):
    """Metaspace by the pre-tokenizer instead of the normaliser, with BOS, as later conversions of Llama 2 write it."""
    tokenizer = conversions.sentencepiece_to_json(processor)
    tokenizer.normalizer = normalizers.Sequence([])
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(replacement="▁", prepend_scheme="first", split=False)
    tokenizer.post_processor = processors.TemplateProcessing(
        single="<s> $A", pair="<s> $A <s> $B", special_tokens=[("<s>", processor.bos_id())])
    return tokenizer


def gemma_like(processor):
    tokenizer = conversions.sentencepiece_to_json(processor)
    tokenizer.normalizer = normalizers.Replace(" ", "▁")
    tokenizer.pre_tokenizer = pre_tokenizers.Split(" ", "merged_with_previous")
    tokenizer.decoder = decoders.Sequence([decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()])
    tokenizer.add_tokens([AddedToken(t, normalized=False) for t in ["\n\n", "▁▁", "<table>", "<h1>"]])
    return tokenizer


def byte_level(seed=11):
    """Added tokens of every kind, a prefix space, digits, BERT's frame around the text."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.normalizer = normalizers.Sequence([normalizers.NFC(), normalizers.Replace("``", '"')])
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Digits(individual_digits=False), pre_tokenizers.Punctuation("contiguous"),
         pre_tokenizers.ByteLevel(add_prefix_space=True)])
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(vocab_size=1500, special_tokens=["<s>", "</s>"], show_progress=False,
                                  initial_alphabet=pre_tokenizers.ByteLevel.alphabet())
    tokenizer.train_from_iterator(corpus(seed), trainer)
    tokenizer.post_processor = processors.RobertaProcessing(("</s>", 1), ("<s>", 0))
    tokenizer.add_special_tokens([AddedToken("<mask>", lstrip=True, special=True, normalized=False)])
    tokenizer.add_tokens([AddedToken("über", single_word=True), AddedToken("[INST]", rstrip=True, normalized=False),
                          AddedToken("naïf"), AddedToken("  ", normalized=False)])
    return tokenizer


def unigram_json(name, **settings):
    contents = train_sentencepiece(**SENTENCEPIECE[name])
    processor = sentencepiece.SentencePieceProcessor(model_proto=contents)
    return conversions.sentencepiece_to_unigram_json(contents, processor, **settings)


def folding(normalizer, seed=11):
    tokenizer = Tokenizer(models.BPE(unk_token="<unk>", fuse_unk=True))
    tokenizer.normalizer = normalizer
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    tokenizer.train_from_iterator(corpus(seed), trainers.BpeTrainer(
        vocab_size=2500, special_tokens=["<unk>"], show_progress=False, limit_alphabet=1500))
    tokenizer.decoder = decoders.Fuse()
    return tokenizer


def whitespace_split(seed=11):
    tokenizer = Tokenizer(models.BPE(unk_token="<unk>", fuse_unk=True))
    tokenizer.normalizer = normalizers.Sequence([normalizers.NFD(), normalizers.Strip()])
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.WhitespaceSplit(), pre_tokenizers.Whitespace()])
    trainer = trainers.BpeTrainer(vocab_size=900, special_tokens=["<unk>"], show_progress=False, limit_alphabet=200)
    tokenizer.train_from_iterator(corpus(seed), trainer)
    tokenizer.decoder = decoders.Fuse()
    return tokenizer


def cases(folder):
    out = []
    trained = {}
    for name, settings in SENTENCEPIECE.items():
        trained[name] = train_sentencepiece(**settings)
        out.append(sentencepiece_case("small-" + name, trained[name], folder))
    for name in ("unigram-bytes", "bpe-bytes", "bpe-nfkc"):
        out.append(sentencepiece_case(f"small-{name}-unused", with_unused(trained[name], 3), folder))
    processor = sentencepiece.SentencePieceProcessor(model_proto=train_sentencepiece(
        "bpe", 1500, byte_fallback=True, normalization_rule_name="identity", remove_extra_whitespaces=False))
    for name, make in {"llama2": lambda: llama2_like(processor), "gemma": lambda: gemma_like(processor),
                       "bytelevel": byte_level, "whitespace": whitespace_split,
                       "unigram-json": lambda: unigram_json("unigram-nfkc"),
                       "unigram-json-bytes": lambda: unigram_json("unigram-bytes", byte_fallback=True),
                       "nfkc-lower": lambda: folding(normalizers.Sequence([normalizers.NFKC(), normalizers.Lowercase()])),
                       "nfkd-strip": lambda: folding(normalizers.Sequence([normalizers.NFKD(), normalizers.StripAccents()])),
                       }.items():
        out.append(vocabularies.of_tokenizers("small-" + name, "trained here", make(), folder))
    return out
