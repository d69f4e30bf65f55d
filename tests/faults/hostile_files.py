"""Hostile tokenizers, configurations, rows, data sets and checkpoints: each class is made by a function that spoils a sound
file in the folder `work` and returns what the message must say, as a regular expression."""
import json
import struct

import pyarrow
import pyarrow.ipc
import pyarrow.parquet
import xxhash

from hostile_sound import OUTSIDE, added, case, digest, manifest_of, sealed, sound_checkpoint, sound_tokenizer


# -- tokenizer.json

def tokenizer(work, change, text="a text about nothing\n"):
    value = sound_tokenizer()
    change(value)
    (work / "tokenizer.json").write_text(json.dumps(value))
    (work / "input.txt").write_text(text)


@case("tokenizer")
def pattern_that_explodes(work):
    def change(value):
        value["pre_tokenizer"]["pretokenizers"][0]["pattern"]["Regex"] = "(?:a+)+b|c"
    tokenizer(work, change, "a" * 5000 + "\n")
    return "within its limits"


@case("tokenizer")
def pattern_that_looks_ahead_at_every_byte(work):
    def change(value):
        value["pre_tokenizer"]["pretokenizers"][0]["pattern"]["Regex"] = "(?=[a ]+b)a|a"
    tokenizer(work, change, "a" * (4 << 20) + "\n")
    return "within its limits"


@case("tokenizer")
def pattern_of_nested_repeats(work):
    def change(value):
        value["pre_tokenizer"]["pretokenizers"][0]["pattern"]["Regex"] = "(?:(?:(?:a{1,999}){1,999}){1,999}){1,999}"
    tokenizer(work, change)
    return "regular expression|pattern"


@case("tokenizer")
def merge_of_unknown_tokens(work):
    tokenizer(work, lambda value: value["model"]["merges"].append("zz yy"))
    return "is not in the vocabulary"


@case("tokenizer")
def merge_that_makes_nothing_known(work):
    tokenizer(work, lambda value: value["model"]["merges"].append(["ab", "ab"]))
    return "'abab' is not in the vocabulary"


@case("tokenizer")
def id_that_would_fill_the_memory(work):
    tokenizer(work, lambda value: value["model"]["vocab"].update(huge=1 << 40))
    return "wanted an id from 0"


@case("tokenizer")
def two_tokens_with_one_id(work):
    tokenizer(work, lambda value: value["model"]["vocab"].update(other=0))
    return "belongs to another token"


@case("tokenizer")
def special_token_twice(work):
    tokenizer(work, lambda value: value["added_tokens"].append(added(301, "<|endoftext|>")))
    return "is there twice"


@case("tokenizer")
def special_token_over_a_word(work):
    tokenizer(work, lambda value: value["added_tokens"].append(added(301, "ab")))
    return "in the vocabulary 256"


@case("tokenizer")
def normalizers_inside_normalizers(work):
    value = sound_tokenizer()
    value["normalizer"] = "HERE"
    nested = '{"type": "Sequence", "normalizers": [' * 5000 + '{"type": "NFC"}' + "]}" * 5000
    (work / "tokenizer.json").write_text(json.dumps(value).replace('"HERE"', nested))
    (work / "input.txt").write_text("text\n")
    return "nested deeper than"


# -- YAML

def yaml(work, text):
    (work / "config.yaml").write_text(text)


@case("yaml")
def billion_laughs(work):
    lines = ["a0: &a0 [lol, lol]"] + [f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 9)}]" for i in range(1, 12)]
    yaml(work, "\n".join(lines) + "\n")
    return "anchor|alias"


@case("yaml")
def lists_inside_lists(work):
    yaml(work, "dataset: " + "[" * 200000 + "\n")
    return "wanted"


@case("yaml")
def scalar_of_two_megabytes(work):
    yaml(work, "model_name: " + "x" * (2 << 20) + "\n")
    return "at most"


@case("yaml")
def tag_that_runs_a_program(work):
    yaml(work, "model_name: !!python/object/apply:os.system ['touch owned']\n")
    return "tag"


@case("yaml")
def key_twice(work):
    yaml(work, "seed: 1\nmodel_name: gpt2\nseed: 2\n")
    return "seed again|found twice"


@case("yaml")
def number_that_is_none(work):
    yaml(work, "learning_rate: .nan\nmax_steps: 99999999999999999999\n")
    return "learning_rate|max_steps"


def sweep(work, text):
    (work / "config.yaml").write_text("model_name: gpt2\ndataset: input.txt\n")
    (work / "sweep.yaml").write_text(text)


@case("sweep")
def sweep_of_a_trillion_trials(work):
    keys = ("learning_rate", "weight_decay", "beta1", "beta2")
    values = [round(0.0001 * i, 6) for i in range(1, 1000)]
    sweep(work, "method: grid\nparameters:\n" + "".join(f"  {key}:\n    values: {values}\n" for key in keys))
    return "trials"


@case("sweep")
def sweep_nested_without_end(work):
    sweep(work, "method: grid\nparameters:\n" + "".join(" " * (i + 1) + "a:\n" for i in range(1000)))
    return "deeper|wanted"


@case("import")
def deepspeed_nested_without_end(work):
    (work / "ds.json").write_text('{"zero_optimization": ' * 20000)
    return "nested deeper than"


# -- rows

def parquet(work, table, **options):
    pyarrow.parquet.write_table(table, work / "input.parquet", **options)


@case("rows")
def parquet_bomb(work):
    """Under 2 kB that unpack to 1.6 GB."""
    indices = pyarrow.array([0] * 400, pyarrow.int32())
    texts = pyarrow.DictionaryArray.from_arrays(indices, pyarrow.array(["a" * (4 << 20)]))
    parquet(work, pyarrow.table({"text": texts}), compression="zstd")
    assert (work / "input.parquet").stat().st_size < 10_000
    return "unpacks to more than"


@case("rows")
def parquet_page_that_fills_the_memory(work):
    """300 MB of nothing in one value."""
    parquet(work, pyarrow.table({"text": ["a" * (300 << 20)]}), compression="zstd", use_dictionary=False)
    return "cannot be read: Out of memory|rows below"


@case("rows")
def parquet_with_numbers_for_text(work):
    parquet(work, pyarrow.table({"text": [1, 2, 3]}))
    return "text"


@case("rows")
def parquet_footer_that_lies(work):
    parquet(work, pyarrow.table({"text": ["a", "b"]}))
    content = (work / "input.parquet").read_bytes()
    (work / "input.parquet").write_bytes(content[:-8] + struct.pack("<I", 0x7FFFFFFF) + b"PAR1")
    return "cannot be read"


@case("rows")
def arrow_list_of_two_billion_nothings(work):
    values = pyarrow.nulls(2**31 - 1)
    offsets = pyarrow.array([0, 2**31 - 1], pyarrow.int32())
    table = pyarrow.table({"text": ["x"], "list": pyarrow.ListArray.from_arrays(offsets, values)})
    with pyarrow.ipc.new_file(work / "input.arrow", table.schema) as writer:
        writer.write_table(table)
    return "rows below|cannot be read"


@case("rows")
def json_nested_without_end(work):
    (work / "input.json").write_text('[{"text": ' + "[" * 100000 + "]" * 100000 + "}]")
    return "nested deeper than"


# -- prepared data

def shard_page(work):
    path = next((work / "data").glob("train*"))
    return path, bytearray(path.read_bytes())


def reseal(work, path, content):
    """Puts right every hash of a shard and of the index, as who forges them would."""
    tokens, documents = struct.unpack_from("<QQ", content, 16)
    width = struct.unpack_from("<I", content, 12)[0]
    size = tokens * width
    if size < len(content):
        tables = 4096 + size
        hashes = 4096 + (size + 7) // 8 * 8 + 8 * documents
        struct.pack_into("<Q", content, hashes, xxhash.xxh3_64_intdigest(bytes(content[4096:4096 + size])))
        struct.pack_into("<Q", content, 80, xxhash.xxh3_64_intdigest(bytes(content[tables:])))
    struct.pack_into("<Q", content, 88, 0)
    struct.pack_into("<Q", content, 88, xxhash.xxh3_64_intdigest(bytes(content[:4096])))
    path.write_bytes(content)
    change_index(work, lambda shard: shard.update(hash=digest(bytes(content[:4096])), tokens=tokens, documents=documents))


def change_index(work, change):
    path = work / "data" / "dataset.json"
    value = json.loads(path.read_text())
    split = value["splits"]["train"]
    change(split["shards"][0])
    split["tokens"] = sum(s["tokens"] for s in split["shards"])
    split["documents"] = sum(s["documents"] for s in split["shards"])
    text = f"octavo-tokens1 {value['tokenizer']['fingerprint']} {value['tokenizer']['vocab_size']}"
    for name in sorted(value["splits"]):
        text += "\n" + name
        for s in value["splits"][name]["shards"]:
            text += f"\n{s['name']} {s['tokens']} {s['documents']} {s['bytes']} {s['hash']}"
    value["fingerprint"] = digest(text.encode())
    path.write_text(json.dumps(value))


@case("data")
def shard_of_another_format(work):
    path, content = shard_page(work)
    content[:8] = b"\x7fELF\2\1\1\0"
    reseal(work, path, content)
    return "not that of a token shard"


@case("data")
def token_beyond_the_vocabulary(work):
    path, content = shard_page(work)
    struct.pack_into("<H", content, 4096 + 20, 60000)
    reseal(work, path, content)
    return "token 10 is beyond the vocabulary"


@case("data")
def tokens_without_number(work):
    path, content = shard_page(work)
    struct.pack_into("<Q", content, 16, 1 << 61)
    reseal(work, path, content)
    return "asks for|overflows"


@case("data")
def shard_outside_of_its_folder(work):
    change_index(work, lambda shard: shard.update(name=f"../../{OUTSIDE}/model.safetensors"))
    return "it leaves the folder"


# -- checkpoints

def manifest(work, change):
    folder = sound_checkpoint(work)
    value = manifest_of(folder)
    change(value)
    (folder / "manifest.json").write_text(sealed(value))
    return folder


@case("checkpoint")
def manifest_that_names_a_file_elsewhere(work):
    manifest(work, lambda value: value["files"][0].update(name=f"../../../{OUTSIDE}/model.safetensors"))
    return "file name .* refused"


@case("checkpoint")
def manifest_with_a_wrong_size(work):
    manifest(work, lambda value: value["files"][0].update(size=1 << 50))
    return "wanted 1125899906842624 bytes"


@case("checkpoint")
def manifest_with_a_file_twice(work):
    manifest(work, lambda value: value["files"].append(value["files"][0]))
    return "is listed twice"


@case("checkpoint")
def sizes_whose_sum_overflows(work):
    manifest(work, lambda value: value["files"].extend(
        value["files"][0] | {"name": f"{name}.safetensors", "size": (1 << 64) - 1} for name in "ab"))
    return "overflows"


@case("checkpoint")
def checkpoint_file_that_is_a_link(work):
    folder = sound_checkpoint(work)
    (folder / "model.safetensors").unlink()
    (folder / "model.safetensors").symlink_to(work.parent / OUTSIDE / "model.safetensors")
    return "not a plain file"


# -- rendezvous: what an untrusted server says to a rank

@case("rendezvous")
def rendezvous_that_is_a_web_server(work):
    (work / "answer").write_bytes(b"HTTP/1.1 400 Bad Request\r\n\r\n" + b"\xff" * 5000)
    return "is no octavo rendezvous"


@case("rendezvous")
def rendezvous_that_does_not_know_the_secret(work):
    (work / "answer").write_bytes(b"OCTAVORV" + struct.pack("<H", 1) + bytes(32) + b"\1" + bytes(32) + b"\xff" * 100)
    return "secret"
