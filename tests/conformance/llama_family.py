"""Llama and Qwen2 of octavo against transformers: tiny random models with every option, files in the spellings of old
and new versions of transformers, and settings that must be refused."""
import copy
import json
import pathlib
import sys
import tempfile

import torch
from transformers import AutoModelForCausalLM

from model_parity import TOOL, Agreement, check_gradients, randomize, require, run_tool

REFUSED, DAMAGED = 2, 5  # exit codes
LLAMA3 = dict(rope_type="llama3", factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0,
              original_max_position_embeddings=64)
# What other programs leave in files, without a meaning for the mathematics.
HARMLESS = {"_name_or_path": "somewhere/else", "is_llama_config": True, "rope_interleaved": False, "pretraining_tp": 1,
            "transformers.js_config": {"kv_cache_dtype": {"q4f16": "float16"}}, "transformers_version": "4.42.3",
            "initializer_range": 0.041666, "use_cache": False}


def build(config_class, model_class, case, seed):
    """A random model; with dtype bf16 of weights that BF16 holds exactly, computing in FP32."""
    model = randomize(model_class(config_class(**case["config"], bos_token_id=0, eos_token_id=0)), seed)
    if case.get("dtype") == "bf16":
        with torch.no_grad():
            for p in model.parameters():  # not the buffers: RoPE's frequencies are never BF16
                p.copy_(p.bfloat16())
    return model


def save(model, case, folder):
    stored = copy.deepcopy(model).bfloat16() if case.get("dtype") == "bf16" else model
    stored.save_pretrained(folder, max_shard_size=case.get("max_shard_size", "1GB"))
    shards = len(list(folder.glob("*.safetensors")))
    assert (shards > 2) == ("max_shard_size" in case), f"{shards} files"


def edit(source, target, change):
    """The same model with a changed config.json."""
    target.mkdir()
    for file in source.iterdir():
        if file.name != "config.json":
            (target / file.name).hardlink_to(file)
    config = json.loads((source / "config.json").read_text())
    change(config)
    (target / "config.json").write_text(json.dumps(config))
    return target


def spell_as_before(config):
    """As transformers 4 wrote it, leaving out what has its default."""
    rope = config.pop("rope_parameters")
    config["rope_theta"] = rope.pop("rope_theta")
    config["rope_scaling"] = None if rope["rope_type"] == "default" else rope
    config["torch_dtype"] = config.pop("dtype")
    for name in ("attention_bias", "mlp_bias", "tie_word_embeddings"):
        if config.get(name) is False:
            del config[name]
    if config.get("head_dim") == config["hidden_size"] // config["num_attention_heads"]:
        del config["head_dim"]
    if config["num_key_value_heads"] == config["num_attention_heads"] and config["model_type"] == "llama":
        del config["num_key_value_heads"]
    if config["model_type"] == "qwen2":  # as in the published files: a window that is not in use
        del config["layer_types"]
        config |= {"sliding_window": 32, "max_window_layers": 1}
    if config["rope_theta"] == 10000.0 and config["rope_scaling"] is None:
        del config["rope_theta"], config["rope_scaling"]
    config |= HARMLESS


def check_case(name, model, case, work):
    """The model as saved and in the old spelling, with and without checkpointing, at several lengths."""
    folder = work / name
    save(model, case, folder)
    old = edit(folder, work / f"{name}-old", spell_as_before)
    reread = AutoModelForCausalLM.from_pretrained(old, dtype=torch.float32).eval()
    probe = torch.arange(100)[None] % model.config.vocab_size
    with torch.no_grad():
        assert torch.equal(reread(probe).logits, model(probe).logits), "the old spelling means something else"
    worst = Agreement()
    for where, *options in ((folder, 160), (folder, 1), (folder, 37, "checkpointing"), (old, 67)):
        found = check_gradients(where, model, *options, masked=0.3)
        print(where.name, *options, found, f"logit_std={found.logit_std:.2f} parameters={found.parameters}", flush=True)
        worst.add(found)
    return worst


def check_refusals(folder, refusals, work):
    """Each change must be refused with its exit code, in words that name the field. How many were not."""
    wrong = 0
    for number, (field, change, wanted) in enumerate(refusals):
        code, _, errors = run_tool("open", edit(folder, work / f"refused-{number}", change))
        if code != wanted or field not in errors.replace(str(work), ""):
            wrong += 1
            print(f"{field}, change {number}: wanted exit code {wanted} and the field's name, found {code}: {errors[:300]}")
    return wrong


def setting(name, value, code=REFUSED):
    """A refusal: the field, how to put it into a config, and the exit code."""
    return name, lambda config: config.update({name: value}), code


def rope_setting(name, value):
    return name, lambda config: config["rope_parameters"].update({name: value}), REFUSED


def old_scaling(value):
    def change(config):
        spell_as_before(config)
        config["rope_scaling"] = value
    return "rope_scaling", change, REFUSED


# Of both architectures.
REFUSALS = [
    setting("hidden_act", "gelu"),
    old_scaling({"type": "yarn", "factor": 4.0, "original_max_position_embeddings": 64}),
    old_scaling({"rope_type": "dynamic", "factor": 2.0}),
    old_scaling({"type": "linear", "factor": 2.0}),
    rope_setting("rope_type", "yarn"),
    rope_setting("rope_type", "longrope"),
    rope_setting("partial_rotary_factor", 0.5),
    setting("rope_interleaved", True),
    setting("num_key_value_heads", 3, DAMAGED),
    setting("model_type", "mixtral"),
    setting("final_logit_softcapping", 30.0),
    setting("attn_logit_softcapping", 50.0),
    setting("residual_multiplier", 0.22),
    setting("use_qk_norm", True),
]


def run_family(config_class, model_class, cases, more_refusals, extra=None):
    """Ends the script with its results. `extra(work)` gives more results and whether they are good."""
    require(TOOL)
    torch.set_num_threads(1)  # the models are small: a second thread only waits
    worst, refusals = Agreement(), [*REFUSALS, *more_refusals]
    with tempfile.TemporaryDirectory() as temporary:
        work = pathlib.Path(temporary)
        for seed, (name, case) in enumerate(cases.items()):
            worst.add(check_case(name, build(config_class, model_class, case, seed), case, work))
        wrong = check_refusals(work / next(iter(cases)), refusals, work)
        words, good = extra(work) if extra else ("", True)
    print(f"{worst} cases={len(cases)} refused={len(refusals) - wrong}/{len(refusals)}{words}")
    sys.exit(0 if worst.good() and good and wrong == 0 else 1)
