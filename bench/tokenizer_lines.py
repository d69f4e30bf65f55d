"""Generated lines and rewritten tokenizer files for tokenizer_vs_hf."""

import copy
import random

SPACES = " \t\n\r\v\f\x85\xa0\u1680\u2000\u2003\u2009\u200a\u2028\u2029\u202f\u205f\u3000"
NEAR_SPACES = "\u180e\u200b\u200c\u200d\u2060\ufeff\x00\x1c\x1f"
WORDS = ("the of and to in is that it was for on with he be at by I this had not are but from or have "
         "an they which one you were her all she there would their we him been has when who will more "
         "internationalization antidisestablishmentarianism supercalifragilistic naïve café Zürich "
         "Straße œuvre привет мир здравствуйте γλώσσα שלום مرحبا नमस्ते สวัสดี 你好世界 こんにちは "
         "안녕하세요 việt ếch ﬁnal ﬀ ß ſ K Å").split()
CONTRACTIONS = ["'s", "'t", "'re", "'ve", "'m", "'ll", "'d", "'S", "'T", "'RE", "'Ve", "'lL", "'D", "'M",
                "'ſ", "'x", "''s", "’s", "'K"]
TOKENS = ["<|endoftext|>", "of the", "<|im_start|>", "<|begin_of_text|>", "<|eot_id|>", "<|endoftext|", "<mask>",
          "wordy", "[L]", "[R]", "café!", "cafe\u0301!"]
NUMBERS = "0123456789٠١٢۳४५²³¼½ⅣⅧ①⑳〇〡㊉𝟘𝟙𐄇"
MARKS = "\u0300\u0301\u0302\u0307\u0308\u0315\u0316\u0323\u0327\u0328\u0345\u05b0\u05bc\u064b\u0651\u093c\u0e38\u3099\u309a"
BLOCKS = [(0x21, 0x7E), (0xA1, 0x24F), (0x250, 0x36F), (0x370, 0x5FF), (0x600, 0x8FF), (0x900, 0xDFF),
          (0xE00, 0x109F), (0x10A0, 0x1AFF), (0x1B00, 0x1FFF), (0x2000, 0x2BFF), (0x2C00, 0x2FFF),
          (0x3000, 0x33FF), (0x3400, 0x9FFF), (0xA000, 0xABFF), (0xAC00, 0xD7A3), (0xF900, 0xFFFF),
          (0x10000, 0x10FFF), (0x11000, 0x12FFF), (0x13000, 0x16FFF), (0x17000, 0x1BFFF),
          (0x1D000, 0x1DFFF), (0x1E000, 0x1EFFF), (0x1F000, 0x1FAFF), (0x20000, 0x2FA1F),
          (0x30000, 0x33FFF), (0xE0000, 0xE01EF), (0x100000, 0x10FFFF)]


def _piece(rng):
    kind = rng.randrange(12)
    if kind <= 2:
        return rng.choice(WORDS)
    if kind == 3:
        return rng.choice(SPACES) * rng.randint(1, 4)
    if kind == 4:
        return "".join(rng.choice(SPACES) for _ in range(rng.randint(1, 4)))
    if kind == 5:
        return rng.choice(CONTRACTIONS)
    if kind == 6:
        return "".join(rng.choice(NUMBERS) for _ in range(rng.randint(1, 6)))
    if kind == 7:
        return rng.choice(TOKENS)
    if kind == 8:
        base = rng.choice("aeiounAEIOUyгкㅏはカ각가가")
        return base + "".join(rng.choice(MARKS) for _ in range(rng.randint(1, 4)))
    if kind == 9:
        return "".join(rng.choice("!\"#$%&'()*+,-./:;<=>?@[]^_`{|}~«»—…“”") for _ in range(rng.randint(1, 5)))
    if kind == 10 and rng.random() < 0.3:
        return rng.choice(NEAR_SPACES)
    low, high = rng.choice(BLOCKS)
    return "".join(chr(rng.randint(low, high)) for _ in range(rng.randint(1, 6)))


def generate(count, seed):
    """Lines of mixed scripts, spaces, marks, numbers, added tokens and code points of every plane."""
    rng = random.Random(seed)
    glue = ["", "", " ", " ", "  ", "\n"]
    return ["".join(_piece(rng) + rng.choice(glue) for _ in range(rng.randint(1, 12))) for _ in range(count)]


def _added(base, start):
    def token(content, **flags):
        defaults = dict(single_word=False, lstrip=False, rstrip=False, normalized=False, special=False)
        return {"content": content, **defaults, **flags}

    tokens = [token("<mask>", lstrip=True, special=True), token("wordy", single_word=True),
              token("[L]", lstrip=True, rstrip=True), token("[R]", rstrip=True),
              token("cafe\u0301!", normalized=True), token("of the", single_word=True, normalized=True),
              token("  ", normalized=True), token("<|im", special=True),
              token("<|im_start|>", special=True)]
    return base + [{"id": start + i, **entry} for i, entry in enumerate(tokens)]


def variants(base):
    """(name, tokenizer.json) pairs made from GPT-2's."""
    byte_level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}

    def make(**changes):
        return {**copy.deepcopy(base), **changes}

    def split(pattern):
        return {"type": "Split", "pattern": {"Regex": pattern}, "behavior": "Isolated", "invert": False}

    def sequence(*parts):
        return {"type": "Sequence", "pretokenizers": list(parts)}

    plain = {**byte_level, "use_regex": False}
    yield "digits", make(pre_tokenizer=sequence({"type": "Digits", "individual_digits": True}, byte_level))
    yield "digit_runs", make(pre_tokenizer=sequence({"type": "Digits", "individual_digits": False}, byte_level))
    yield "prefix_space", make(pre_tokenizer={**byte_level, "add_prefix_space": True})
    yield "added_tokens", make(added_tokens=_added(base["added_tokens"], 50257), normalizer={"type": "NFC"})
    # GPT-4o's pattern, which goes through PCRE2, and one with scripts and look-behind.
    yield "gpt4o_pattern", make(pre_tokenizer=sequence(split(
        r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
        r"|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
        r"|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"), plain))
    yield "scripts", make(pre_tokenizer=sequence(
        split(r"\p{Han}+|[\p{Hiragana}\p{Katakana}]+|(?<=\w)\d\d?|\S\W|\w++"), plain))
    without = copy.deepcopy(base)
    for char in ("Ġ", "é", "~"):
        vocab, merges = without["model"]["vocab"], without["model"]["merges"]
        without["model"]["merges"] = [pair for pair in merges if char not in "".join(pair)]
        without["model"]["vocab"] = {token: i for token, i in vocab.items() if char not in token}
    for i, token in enumerate(without["model"]["vocab"]):
        without["model"]["vocab"][token] = i
    without["added_tokens"][0]["id"] = without["model"]["vocab"]["<|endoftext|>"]
    yield "missing_bytes", without
    without = make()
    without["model"]["ignore_merges"] = True
    yield "ignore_merges", without
