"""Hostile models and adapters: each class is made by a function that spoils a sound one in the folder `work` and returns what
the message must say, as a regular expression."""
import json
import os
import struct

from hostile_sound import CONFIG, OUTSIDE, case, model_tensors, pack, sound_adapter, sound_model, sound_weights


# -- safetensors

def weights(work, change=None, header=None, data=None):
    """The model's file with a changed header or other bytes."""
    sound_model(work)
    tensors, content = sound_weights()
    if change:
        change(tensors)
    text = tensors if header is None else header
    (work / "model" / "model.safetensors").write_bytes(pack(text, content if data is None else data))


NORM = "model.norm.weight"


@case("model")
def header_longer_than_the_file(work):
    sound_model(work)
    (work / "model" / "model.safetensors").write_bytes(struct.pack("<Q", 1 << 20) + b"{}")
    return "header length 1048576, found only 2 bytes"


@case("model")
def header_length_of_all_ones(work):
    sound_model(work)
    (work / "model" / "model.safetensors").write_bytes(b"\xff" * 64)
    return "header length 18446744073709551615, at most 100000000"


@case("model")
def file_of_seven_bytes(work):
    sound_model(work)
    (work / "model" / "model.safetensors").write_bytes(b"1234567")
    return "wanted 8 bytes of header length"


@case("model")
def header_that_is_a_list(work):
    weights(work, header=b"[1, 2]")
    return "header must start with"


@case("model")
def header_nested_without_end(work):
    weights(work, header=b'{"a":' + b"[" * 100000)
    return "nested deeper than"


@case("model")
def header_with_not_a_number(work):
    weights(work, header=b'{"a": {"dtype": "F32", "shape": [NaN], "data_offsets": [0, 4]}}')
    return "not acceptable JSON"


@case("model")
def tensor_twice(work):
    entry = b'{"dtype": "F32", "shape": [1], "data_offsets": [0, 4]}'
    weights(work, header=b'{"a": ' + entry + b', "a": ' + entry + b"}", data=bytes(4))
    return "'a' appears twice"


@case("model")
def overlapping_tensors(work):
    def change(header):
        header[NORM]["data_offsets"] = [64, 192]
    weights(work, change)
    return "overlaps another"


@case("model")
def hole_between_tensors(work):
    sound_model(work)
    tensors, content = sound_weights()
    last = max(tensors, key=lambda name: tensors[name]["data_offsets"][1])
    tensors[last]["data_offsets"] = [offset + 64 for offset in tensors[last]["data_offsets"]]
    (work / "model" / "model.safetensors").write_bytes(pack(tensors, content + bytes(64)))
    return "a hole before it"


@case("model")
def bytes_of_no_tensor(work):
    weights(work, data=sound_weights()[1] + b"#!/bin/sh\n" * 100)
    return "belong to no tensor"


@case("model")
def offsets_behind_the_end(work):
    def change(header):
        header[NORM]["data_offsets"] = [1 << 40, (1 << 40) + 128]
    weights(work, change)
    return "do not fit the"


@case("model")
def offsets_that_go_backwards(work):
    def change(header):
        header[NORM]["data_offsets"] = [128, 0]
    weights(work, change)
    return r"data_offsets \[128, 0\] do not fit"


@case("model")
def negative_offset(work):
    def change(header):
        header[NORM]["data_offsets"] = [-128, 0]
    weights(work, change)
    return r"data_offsets. as \[begin, end\]"


@case("model")
def offset_of_1e30(work):
    def change(header):
        header[NORM]["data_offsets"] = [0, 1e30]
    weights(work, change)
    return r"data_offsets. as \[begin, end\]"


@case("model")
def shape_whose_product_overflows(work):
    def change(header):
        header[NORM]["shape"] = [1 << 33, 1 << 33]
    weights(work, change)
    return "overflows"


@case("model")
def shape_hidden_behind_a_zero(work):
    def change(header):
        header["evil"] = {"dtype": "F32", "shape": [1 << 62, 1 << 62, 0], "data_offsets": [0, 0]}
    weights(work, change)
    return "overflows"


@case("model")
def negative_shape(work):
    def change(header):
        header[NORM]["shape"] = [-32]
    weights(work, change)
    return "whole sizes >= 0"


@case("model")
def sixty_five_dimensions(work):
    def change(header):
        header[NORM]["shape"] = [1] * 64 + [32]
    weights(work, change)
    return "at most 64 sizes"


@case("model")
def dtype_that_nobody_knows(work):
    def change(header):
        header[NORM]["dtype"] = "PICKLE"
    weights(work, change)
    return "PICKLE. is not known"


@case("model")
def name_that_rewrites_the_terminal(work):
    def change(header):
        header["\x1b]0;owned\x07\x1b[2J"] = {"dtype": "F32", "shape": [0], "data_offsets": [0, 0]}
    weights(work, change)
    return "control character"


@case("model")
def weights_that_are_a_pipe(work):
    sound_model(work)
    (work / "model" / "model.safetensors").unlink()
    os.mkfifo(work / "model" / "model.safetensors")
    return "found neither"


@case("model")
def pickle_instead_of_weights(work):
    sound_model(work)
    (work / "model" / "model.safetensors").rename(work / "model" / "pytorch_model.bin")
    return "pickle, which is never read"


@case("model")
def weights_that_are_a_link_to_elsewhere(work):
    sound_model(work)
    target = work.parent / OUTSIDE / "model.safetensors"
    (work / "model" / "model.safetensors").unlink()
    (work / "model" / "model.safetensors").symlink_to(target)
    return "link .*leaves|leaves the folder"


# -- index

def index(work, weight_map, extra=None):
    sound_model(work)
    (work / "model" / "model.safetensors").rename(work / "model" / "model-00001-of-00001.safetensors")
    whole = {name: "model-00001-of-00001.safetensors" for name in model_tensors()}
    value = {"weight_map": whole | weight_map} if extra is None else extra
    (work / "model" / "model.safetensors.index.json").write_text(value if isinstance(value, str) else json.dumps(value))


@case("model")
def shard_in_the_folder_above(work):
    index(work, {NORM: f"../../{OUTSIDE}/model.safetensors"})
    return "shard name .* refused"


@case("model")
def shard_with_an_absolute_name(work):
    index(work, {NORM: str(work.parent / OUTSIDE / "model.safetensors")})
    return "shard name .* refused"


@case("model")
def shard_behind_a_link(work):
    index(work, {NORM: "evil.safetensors"})
    (work / "model" / "evil.safetensors").symlink_to(work.parent / OUTSIDE / "model.safetensors")
    return "leaves the folder"


@case("model")
def shard_name_with_a_nul(work):
    index(work, {NORM: "a\0.safetensors"})
    return "control character|refused"


@case("model")
def index_that_promises_what_is_not_there(work):
    index(work, {"lm_head.weight": "model-00001-of-00001.safetensors"})
    return "which does not have it"


@case("model")
def index_nested_without_end(work):
    index(work, {}, '{"weight_map": ' + '{"a": ' * 50000)
    return "nested deeper than"


# -- config.json

def config(work, text=None, **fields):
    sound_model(work)
    (work / "model" / "config.json").write_text(json.dumps(CONFIG | fields) if text is None else text)


@case("model")
def layers_without_number(work):
    config(work, num_hidden_layers=10**12)
    return "num_hidden_layers. wanted in 1"


@case("model")
def sizes_that_overflow(work):
    config(work, hidden_size=(1 << 63) - 1, vocab_size=1 << 64)
    return "hidden_size|vocab_size"


@case("model")
def sizes_that_no_machine_has(work):
    config(work, hidden_size=1 << 20, vocab_size=1 << 24, intermediate_size=1 << 22, num_hidden_layers=1000,
           num_attention_heads=2, head_dim=16)
    return "describes a model of"


@case("model")
def no_heads(work):
    config(work, num_attention_heads=0)
    return "num_attention_heads. wanted in 1"


@case("model")
def epsilon_beyond_all_numbers(work):
    config(work, json.dumps(CONFIG).replace("1e-05", "1e999"))
    return "not acceptable JSON|number"


@case("model")
def mathematics_that_we_do_not_have(work):
    config(work, rope_scaling={"rope_type": "evil", "factor": 2.0})
    return "rope_scaling"


@case("model")
def configuration_of_65_megabytes(work):
    config(work)
    with open(work / "model" / "config.json", "r+b") as file:
        file.truncate(65 << 20)
    return "at most"


# -- adapters

@case("adapter")
def adapter_of_rank_zero(work):
    sound_adapter(work, named_rank=0)
    return "'r' wanted in 1"


@case("adapter")
def adapter_of_rank_2_to_the_40(work):
    sound_adapter(work, named_rank=1 << 40)
    return "'r' wanted in 1"


@case("adapter")
def adapter_of_a_rank_that_its_tensors_do_not_have(work):
    sound_adapter(work, named_rank=65536)
    return r"wanted shape \[65536"


@case("adapter")
def adapter_with_a_pattern_that_explodes(work):
    sound_adapter(work, targets="(a+)+$|" * 50)
    return "target|module"
