"""Files of tokenizers with byte fallback, trained with the Hugging Face `tokenizers` package: one of each kind that
Llama 2, Mistral and Gemma publish, and files that use the rest of what octavo reads."""
import copy
import itertools
import json
import random

import tokenizers

import tokenizer_lines

MARK = "\u2581"
CONTROL = ["<unk>", "<s>", "</s>"]
BYTES = [f"<0x{byte:02X}>" for byte in range(256)]
# Pieces that hurt: marks of spaces, what looks like a byte or an added token, and parts of them.
PIECES = [MARK, MARK * 3, " " + MARK, MARK + " ", "<0x0A>", "<0xE2>", "<0x+A>", "<s>", "</s>", "<unk>", "[INST]", " [INST] ",
          "[/INST]", "<start_of_turn>", "<start_of", "\n\n", "\n\n\n", "<mask>", "  <mask>  ", "wordy", "wordy,", "CAFÉ!", "cafe\u0301!",
          "[L]", "\t[L]\n", "[R]\u3000 ", "-a--b-", "12ab34", "\U0001f600", "\U0002ffff", "\u0378", "\x00", "\x7f", "of the", "İ", "ΣΑΣ"]


def lines(count, seed):
    """tokenizer_lines' mixture with these pieces, and spaces in front and behind."""
    rng = random.Random(seed)
    made = []
    for line in tokenizer_lines.generate(count, seed):
        for _ in range(rng.randrange(4)):
            cut = rng.randrange(len(line) + 1)
            line = line[:cut] + rng.choice(PIECES) + line[cut:]
        made.append(rng.choice(["", "", " ", "  ", "\u00a0"]) + line + rng.choice(["", "", " ", "   ", "\n"]))
    return made


def training_lines(count, seed):
    """Lines of all scripts in which no added token stands: one that the training made would have two ids."""
    spelled = sorted({piece.strip() for piece in PIECES + tokenizer_lines.TOKENS}, key=len, reverse=True)
    made = []
    for line in tokenizer_lines.generate(count, seed):
        for piece in filter(None, spelled):
            line = line.replace(piece, "")
        made.append(line)
    return made


def trained(texts, pre_tokenizer, size):
    """(tokens, merges) in the order of their ranks."""
    made = tokenizers.Tokenizer(tokenizers.models.BPE(unk_token="<unk>"))
    made.normalizer = tokenizers.normalizers.Replace(" ", MARK)
    made.pre_tokenizer = pre_tokenizer
    made.train_from_iterator(texts, tokenizers.trainers.BpeTrainer(vocab_size=size, special_tokens=["<unk>"], show_progress=False,
                                                                   limit_alphabet=300, initial_alphabet=[MARK]))
    model = json.loads(made.to_str())["model"]
    tokens = sorted(model["vocab"], key=model["vocab"].get)[1:]
    return tokens, [pair if isinstance(pair, list) else pair.split(" ") for pair in model["merges"]]


def every_split(tokens):
    """Merges as transformers makes them of a SentencePiece model: each way to cut each token, in the tokens' order."""
    known = {token: rank for rank, token in enumerate(tokens)}
    merges = []
    for token in tokens:
        ways = [(token[:at], token[at:]) for at in range(1, len(token)) if token[:at] in known and token[at:] in known]
        merges += [list(way) for way in sorted(ways, key=lambda way: (known[way[0]], known[way[1]]))]
    return merges


def added(number, content, **flags):
    return {"id": number, "content": content, "single_word": False, "lstrip": False, "rstrip": False, "normalized": False,
            "special": False, **flags}


def replace(pattern, content):
    return {"type": "Replace", "pattern": {"String": pattern}, "content": content}


def sequence(name, *parts):
    return {"type": "Sequence", name: list(parts)}


def metaspace(scheme, split):
    return {"type": "Metaspace", "replacement": MARK, "prepend_scheme": scheme, "split": split}


def split(pattern, behavior, invert=False):
    return {"type": "Split", "pattern": pattern, "behavior": behavior, "invert": invert}


STRIP = {"type": "Strip", "content": " ", "start": 1, "stop": 0}
DECODER = [replace(MARK, " "), {"type": "ByteFallback"}, {"type": "Fuse"}]


def base(tokens, merges):
    """The parts that all share; Llama 2's own fields."""
    vocab = {token: i for i, token in enumerate(itertools.chain(CONTROL, BYTES, tokens))}
    return {"version": "1.0", "truncation": None, "padding": None,
            "added_tokens": [added(i, content, special=True) for i, content in enumerate(CONTROL)],
            "normalizer": sequence("normalizers", {"type": "Prepend", "prepend": MARK}, replace(" ", MARK)), "pre_tokenizer": None,
            "post_processor": {"type": "TemplateProcessing",
                               "single": [{"SpecialToken": {"id": "<s>", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}],
                               "pair": [], "special_tokens": {"<s>": {"id": "<s>", "ids": [1], "tokens": ["<s>"]}}},
            "decoder": sequence("decoders", *DECODER, STRIP),
            "model": {"type": "BPE", "dropout": None, "unk_token": "<unk>", "continuing_subword_prefix": None,
                      "end_of_word_suffix": None, "fuse_unk": True, "byte_fallback": True, "ignore_merges": False, "vocab": vocab,
                      "merges": merges}}


def published(texts, size=4000):
    """(name, file) of what Llama 2, Mistral and Gemma look like."""
    tokens, merges = trained(texts, tokenizers.pre_tokenizers.Split(MARK, "merged_with_next"), size)
    llama2 = base(tokens, merges)
    first = len(llama2["model"]["vocab"])
    yield "llama2", llama2
    yield "sentencepiece", base(tokens, every_split(tokens))
    mistral = copy.deepcopy(llama2)
    mistral.update(normalizer=None, pre_tokenizer=metaspace("first", False))
    mistral["added_tokens"] += [added(first, "[INST]", special=True), added(first + 1, "[/INST]", special=True)]
    yield "mistral", mistral
    gemma = copy.deepcopy(llama2)
    gemma.update(normalizer=replace(" ", MARK), pre_tokenizer=split({"String": " "}, "MergedWithPrevious"),
                 decoder=sequence("decoders", *DECODER))
    numbers = itertools.count(first)  # without gaps: the package counts for itself
    for content in ("\n\n", "\n\n\n", MARK * 2, MARK * 3, "<mask>", "<start_of_turn>"):
        known = gemma["model"]["vocab"].get(content)
        gemma["added_tokens"].append(added(next(numbers) if known is None else known, content, special=content == "<start_of_turn>"))
    yield "gemma", gemma


def flags_of(file):
    """Added tokens with every flag, behind every normalizer."""
    made, first = copy.deepcopy(file), len(file["model"]["vocab"])
    tokens = [added(0, "<mask>", lstrip=True, special=True), added(0, "wordy", single_word=True), added(0, "[L]", lstrip=True, rstrip=True),
              added(0, "[R]", rstrip=True), added(0, "CAFE\u0301!", normalized=True), added(0, "of the", single_word=True, normalized=True),
              added(0, "  ", rstrip=True), added(0, "<start_of", lstrip=True, normalized=True), added(0, "<start_of_turn>", special=True)]
    made["added_tokens"] += [token | {"id": first + i} for i, token in enumerate(tokens)]
    made["normalizer"] = sequence("normalizers", {"type": "NFC"}, {"type": "Lowercase"},
                                  {"type": "Strip", "strip_left": True, "strip_right": True}, {"type": "Prepend", "prepend": MARK},
                                  replace(" ", MARK), replace("--", "\u2014"))
    return made


def variants(texts, size=1500):
    """(name, file) of what the published ones do not use."""
    tokens, merges = trained(texts, tokenizers.pre_tokenizers.Split(MARK, "merged_with_next"), size)
    llama2 = base(tokens, merges)

    def make(model=None, **changes):
        made = {**copy.deepcopy(llama2), **changes}
        made["model"].update(model or {})
        return made

    def without(names, **model):
        return {"vocab": {token: i for token, i in llama2["model"]["vocab"].items() if token not in names}, **model}

    digits = {"type": "Digits", "individual_digits": True}
    always = sequence("decoders", {"type": "ByteFallback"}, metaspace("always", True))
    yield "always", make(normalizer=None, pre_tokenizer=sequence("pretokenizers", digits, metaspace("always", True)), decoder=always)
    yield "first", make(normalizer=replace("\n", " "), pre_tokenizer=sequence("pretokenizers", metaspace("first", True), digits),
                        decoder=sequence("decoders", metaspace("first", True), {"type": "ByteFallback"}))
    yield "never", make(normalizer={"type": "NFC"}, pre_tokenizer=metaspace("never", True),
                        decoder=sequence("decoders", metaspace("never", True), {"type": "ByteFallback"}))
    # Half of the bytes have no token: characters of them are unknown, one by one.
    yield "half_bytes", make(without(BYTES[::2], fuse_unk=False))
    yield "half_bytes_fused", make(without(BYTES[1::2]))
    yield "unknown", make({"byte_fallback": False, "fuse_unk": False})
    yield "dropped", make({"byte_fallback": False, "unk_token": None})
    yield "ignore_merges", make({"ignore_merges": True}, normalizer=None, pre_tokenizer=metaspace("always", True))
    yield "flags", flags_of(llama2)
    plain = {"normalizer": replace(" ", MARK), "decoder": sequence("decoders", *DECODER)}
    for name, behavior, invert in (("isolated", "Isolated", False), ("previous", "MergedWithPrevious", False), ("next", "MergedWithNext", False),
                                   ("contiguous", "Contiguous", False), ("previous_inverted", "MergedWithPrevious", True),
                                   ("next_inverted", "MergedWithNext", True), ("contiguous_inverted", "Contiguous", True)):
        yield f"split_{name}", make(**plain, pre_tokenizer=sequence(
            "pretokenizers", split({"String": "-"}, behavior, invert), split({"Regex": r"[a-f]{1,2}|\d"}, behavior, invert)))
    # Tokens that reach over spaces: words cannot be merged one by one.
    across, joined = trained([text[:300] for text in texts], None, size)
    yield "across_words", base(across, joined) | plain
