"""Rank files and SentencePiece models as tokenizer.json and GGUF metadata, as their models' own converters do it."""

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers


def byte_alphabet():
    printable = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = [b for b in range(256) if b not in printable]
    return {**{b: chr(b) for b in printable}, **{b: chr(256 + i) for i, b in enumerate(others)}}


def ranks_to_json(ranks, pattern, specials, normalizer=None):
    alphabet = byte_alphabet()

    def spell(token):
        return "".join(alphabet[b] for b in token)

    merges = []
    for token in sorted(ranks, key=ranks.get):
        cuts = [(token[:i], token[i:]) for i in range(1, len(token)) if token[:i] in ranks and token[i:] in ranks]
        merges += [(spell(a), spell(b)) for a, b in sorted(cuts, key=lambda c: (ranks[c[0]], ranks[c[1]]))]
    tokenizer = Tokenizer(models.BPE({spell(t): r for t, r in ranks.items()}, merges, ignore_merges=True))
    if normalizer is not None:
        tokenizer.normalizer = normalizer
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Split(Regex(pattern), "isolated"),
         pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens([AddedToken(t, special=True, normalized=False) for t in specials])
    return tokenizer


def sentencepiece_to_json(processor):
    """A byte-pair SentencePiece model with its dummy prefix, as Llama 2's and Mistral's converter writes it."""
    size = processor.get_piece_size()
    pieces = [processor.id_to_piece(i) for i in range(size)]
    ids = {p: i for i, p in enumerate(pieces)}
    merges = []
    for i, piece in enumerate(pieces):
        if processor.is_control(i) or processor.is_byte(i) or processor.is_unknown(i):
            continue
        local = [(ids[piece[:cut]], ids[piece[cut:]]) for cut in range(1, len(piece))
                 if piece[:cut] in ids and piece[cut:] in ids]
        merges += [(-processor.get_score(i), *pair) for pair in sorted(local)]
    merges.sort(key=lambda m: m[0])
    tokenizer = Tokenizer(models.BPE(ids, [(pieces[a], pieces[b]) for _, a, b in merges], unk_token="<unk>",
                                     fuse_unk=True, byte_fallback=True))
    tokenizer.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    tokenizer.decoder = decoders.Sequence([decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(),
                                           decoders.Strip(" ", 1, 0)])
    tokenizer.add_special_tokens([AddedToken(pieces[i], special=True, normalized=False) for i in range(size)
                                  if processor.is_control(i) or processor.is_unknown(i)])
    return tokenizer


def protobuf_fields(contents):
    """(field number, value) of a protobuf message; sub-messages and strings stay bytes."""
    def varint(position):
        value = shift = 0
        while True:
            byte = contents[position]
            position += 1
            value |= (byte & 0x7f) << shift
            shift += 7
            if byte < 0x80:
                return value, position

    position = 0
    while position < len(contents):
        tag, position = varint(position)
        if tag & 7 == 0:
            value, position = varint(position)
        else:
            size, position = (4, position) if tag & 7 == 5 else (8, position) if tag & 7 == 1 else varint(position)
            value, position = contents[position:position + size], position + size
        yield tag >> 3, value


def sentencepiece_to_unigram_json(contents, processor, byte_fallback=False):
    """A unigram SentencePiece model, its character rules included, as the converters of T5 and XLM-R write it."""
    normalizer = dict(protobuf_fields(dict(protobuf_fields(contents))[3]))
    pieces = [(processor.id_to_piece(i), processor.get_score(i)) for i in range(processor.get_piece_size())]
    tokenizer = Tokenizer(models.Unigram(pieces, processor.unk_id(), byte_fallback))
    rules = [normalizers.Precompiled(normalizer[2])] if normalizer.get(2) else []
    tokenizer.normalizer = normalizers.Sequence([*rules, normalizers.Replace(Regex(" {2,}"), " ")])
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(replacement="▁", prepend_scheme="always")
    tokenizer.decoder = decoders.Metaspace(replacement="▁", prepend_scheme="always")
    tokenizer.add_special_tokens([AddedToken(pieces[i][0], special=True, normalized=False) for i in range(len(pieces))
                                  if processor.is_control(i) or processor.is_unknown(i)])
    return tokenizer


def sentencepiece_to_gguf(processor):
    def kind(i):
        if processor.is_unknown(i):
            return 2
        if processor.is_control(i):
            return 3
        if processor.is_unused(i):
            return 5
        return 6 if processor.is_byte(i) else 1

    size = processor.get_piece_size()
    return {
        "tokenizer.ggml.model": "llama",
        "tokenizer.ggml.pre": "default",
        "tokenizer.ggml.tokens": [processor.id_to_piece(i) for i in range(size)],
        "tokenizer.ggml.scores": [processor.get_score(i) for i in range(size)],
        "tokenizer.ggml.token_type": [kind(i) for i in range(size)],
        "tokenizer.ggml.bos_token_id": processor.bos_id(),
        "tokenizer.ggml.eos_token_id": processor.eos_id(),
        "tokenizer.ggml.unknown_token_id": processor.unk_id(),
        "tokenizer.ggml.add_bos_token": True,
        "tokenizer.ggml.add_eos_token": False,
    }


def llama3_special_tokens():
    named = ["<|begin_of_text|>", "<|end_of_text|>", "<|reserved_special_token_0|>", "<|reserved_special_token_1|>",
             "<|finetune_right_pad_id|>", "<|step_id|>", "<|start_header_id|>", "<|end_header_id|>", "<|eom_id|>",
             "<|eot_id|>", "<|python_tag|>", "<|image|>"]
    return named + [f"<|reserved_special_token_{2 + i}|>" for i in range(256 - len(named))]


def llama4_special_tokens():
    def reserved(name, count, start=0):
        return [f"<|{name}_reserved_special_token_{i}|>" for i in range(start, start + count)]

    text = ["<|header_start|>", "<|header_end|>", "<|eom|>", "<|eot|>", "<|step|>", *reserved("text_post_train", 6),
            "<|python_start|>", "<|python_end|>", "<|finetune_right_pad|>", *reserved("text_post_train", 61, 8)]
    vision = ["<|image_start|>", "<|image_end|>", *reserved("vision", 2), "<|tile_x_separator|>",
              "<|tile_y_separator|>", *reserved("vision", 4, 2), "<|image|>", *reserved("vision", 1, 6), "<|patch|>",
              *reserved("vision", 1041, 7)]
    reasoning = [*reserved("reasoning", 8), "<|reasoning_thinking_start|>", "<|reasoning_thinking_end|>"]
    named = ["<|begin_of_text|>", "<|end_of_text|>", "<|fim_prefix|>", "<|fim_middle|>", "<|fim_suffix|>",
             *text, *vision, *reasoning]
    return named + [f"<|reserved_special_token_{i}|>" for i in range(2048 - len(named))]
