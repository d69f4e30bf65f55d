"""Families made like Llama against transformers: tiny random models with every option, files in the spellings of old and
new versions of transformers, documents in a row, greedy text, training steps, and settings that must be refused."""
import copy
import json
import pathlib
import sys
import tempfile

import torch
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM

from model_parity import LOGIT_DIFF, TOOL, Agreement, check_gradients, randomize, require, run_tool, save_batch, tool
from training_parity import BF16_REL, TEXT, check_training, train_here

SHORT = "--short" in sys.argv
REFUSED, DAMAGED = 2, 5  # exit codes
# FP32 was asked for within 1e-4. FP8 moves the losses of these tiny models by a percent or two; a layer that is wrong, by
# more.
FP32_REL, FP8_REL = 1e-4, 0.05
LLAMA3 = dict(rope_type="llama3", factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0,
              original_max_position_embeddings=64)
# What other programs leave in files, without a meaning for the mathematics.
HARMLESS = {"_name_or_path": "somewhere/else", "is_llama_config": True, "rope_interleaved": False, "pretraining_tp": 1,
            "transformers.js_config": {"kv_cache_dtype": {"q4f16": "float16"}}, "transformers_version": "4.42.3",
            "initializer_range": 0.041666, "use_cache": False}


# Of transformers' classes, where they are not those of Llama's.
CLASS_DEFAULTS = {("smollm3", "tie_word_embeddings"): True, ("gemma3_text", "tie_word_embeddings"): True,
                  ("smollm3", "rope_theta"): 2e6, ("olmo3", "rope_theta"): 5e5, ("gemma3_text", "rope_theta"): 1e6}


def build(config_class, model_class, case, seed):
    """A random model; with dtype bf16 of weights that BF16 holds exactly, computing in FP32."""
    tokens = dict(bos_token_id=0, eos_token_id=0, pad_token_id=None)
    model = randomize(model_class(config_class(**tokens | case["config"])), seed)
    if model.config.model_type == "gemma3_text":  # whose norms add 1 themselves
        with torch.no_grad():
            for name, p in model.named_parameters():
                if "norm" in name:
                    p.sub_(1)
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
    if "full_attention" in rope:  # by type of layer; of those with a window only the base could be said
        if config["model_type"] == "gemma3_text":
            config["rope_local_base_freq"] = rope["sliding_attention"]["rope_theta"]
        rope = rope["full_attention"]
    config["rope_theta"] = rope.pop("rope_theta")
    config["rope_scaling"] = None if rope["rope_type"] == "default" else rope
    config["torch_dtype"] = config.pop("dtype")
    if config["model_type"] == "qwen3_moe":
        config["num_experts"] = config.pop("num_local_experts", config.get("num_experts"))
    for name in ("attention_bias", "mlp_bias", "tie_word_embeddings"):
        if config.get(name) is CLASS_DEFAULTS.get((config["model_type"], name), False):
            del config[name]
    if (config.get("head_dim") == config["hidden_size"] // config["num_attention_heads"]
            and config["model_type"] not in ("qwen3", "gemma3_text")):
        del config["head_dim"]
    if config["num_key_value_heads"] == config["num_attention_heads"] and config["model_type"] == "llama":
        del config["num_key_value_heads"]
    if config["model_type"] == "qwen2":  # as in the published files: a window that is not in use
        del config["layer_types"]
        config |= {"sliding_window": 32, "max_window_layers": 1}
    if (config["rope_theta"] == CLASS_DEFAULTS.get((config["model_type"], "rope_theta"), 10000.0)
            and config["rope_scaling"] is None):
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
    worst, variants = Agreement(), ((folder, 160), (folder, 1), (folder, 37, "checkpointing"), (old, 67))
    for where, *options in variants[::3] if SHORT else variants:
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
    def change(config):
        rope = config["rope_parameters"]
        rope.get("full_attention", rope).update({name: value})
    return name, change, REFUSED


def activation(config):
    config["hidden_activation" if "hidden_activation" in config else "hidden_act"] = "gelu"


def old_scaling(value):
    def change(config):
        spell_as_before(config)
        config["rope_scaling"] = value
    return "rope_scaling", change, REFUSED


# Of all families.
REFUSALS = [
    ("hidden_act", activation, REFUSED),
    old_scaling({"type": "yarn", "factor": 4.0, "original_max_position_embeddings": 64, "mscale": 1.0}),
    old_scaling({"rope_type": "dynamic", "factor": 2.0}),
    old_scaling({"type": "longrope", "factor": 2.0}),
    rope_setting("rope_type", "dynamic"),
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


def check_packed(folder, model, work):
    """Three documents in a row see themselves only: the largest difference of the logits from those of each alone."""
    lengths = (70, 9, 49)
    ids = torch.randint(0, model.config.vocab_size, (sum(lengths),), generator=torch.Generator().manual_seed(5))
    starts = [sum(lengths[:i]) for i in range(len(lengths))]
    save_batch(work / "packed.safetensors", ids[None], ids[None], torch.tensor(starts))
    tool("logits", folder, work / "packed.safetensors", work / "packed_logits.safetensors", "beside")
    found = load_file(work / "packed_logits.safetensors")["logits"]
    with torch.no_grad():
        wanted = torch.cat([model(part[None]).logits[0] for part in ids.split(lengths)])
    return (found - wanted).abs().max().item()


def check_greedy(folder, model, count=24, prompt=40):
    """How many of the ids that follow are those of transformers, with a key-value cache and without."""
    ids = torch.randint(0, model.config.vocab_size, (1, prompt), generator=torch.Generator().manual_seed(6))
    wanted = ids
    with torch.no_grad():
        for _ in range(count):
            wanted = torch.cat([wanted, model(wanted).logits[:, -1:].argmax(-1)], 1)
    wanted, equal = wanted[0, prompt:].tolist(), []
    for mode in ("cached", "whole"):
        new = json.loads(tool("greedy", folder, mode, count, *ids[0].tolist())[0])["new"]
        equal.append(sum(a == b for a, b in zip(new, wanted)))
    return equal == [count, count], f" greedy_cached={equal[0]} greedy_whole={equal[1]}"


def check_steps(folder, work, steps):
    """Training in FP32 and BF16 as PyTorch trains; in FP8 and with adapters it goes on as well."""
    options = dict(max_seq_length=96, batch_size=4)
    found = {p: check_training(folder, work, folder.name, steps, options, p) for p in ("fp32", "bf16")}
    bf16 = [r["loss"] for r in train_here(folder, work, 20, options, "bf16")[0]]
    fp8 = [r["loss"] for r in train_here(folder, work, 20, options, "fp8")[0]]
    adapted = [r["loss"] for r in train_here(folder, work, 20, options | dict(lora_rank=4), "bf16")[0]]
    fp8_rel = max(abs(a - b) / b for a, b in zip(fp8, bf16))
    good = (found["fp32"] <= FP32_REL and found["bf16"] <= BF16_REL and fp8_rel <= FP8_REL and fp8 != bf16
            and adapted[-1] < adapted[0])
    return good, (f" fp32_rel={found['fp32']:.2e} bf16_rel={found['bf16']:.2e} steps={steps} fp8_rel={fp8_rel:.2e} "
                  f"lora_loss={adapted[0]:.3f}->{adapted[-1]:.3f}")


def check_whole(work, name, config_class, model_class, case):
    """Of a family with layers that differ: documents in a row, generation and training."""
    model, folder = build(config_class, model_class, case, 9), work / f"whole-{name}"
    save(model, case, folder)
    packed = check_packed(folder, model, work)
    same_text, text = check_greedy(folder, model)
    trained, steps_text = check_steps(folder, work, 30 if SHORT else 200)
    return f" packed_diff={packed:.2e}{text}{steps_text}", packed <= LOGIT_DIFF and same_text and trained


def run_family(config_class, model_class, cases, more_refusals, extra=None):
    """Ends the script with its results. `extra(work)` gives more results and whether they are good."""
    require(TOOL)
    sys.exit(0 if family_is_good(config_class, model_class, cases, more_refusals, extra) else 1)


def family_is_good(config_class, model_class, cases, more_refusals, extra=None):
    """Prints the results. `extra(work)` gives more of them and whether they are good."""
    torch.set_num_threads(1)  # the models are small: a second thread only waits
    worst, refusals = Agreement(), [*REFUSALS, *more_refusals]
    with tempfile.TemporaryDirectory() as temporary:
        work = pathlib.Path(temporary)
        for seed, (name, case) in enumerate(cases.items()):
            worst.add(check_case(name, build(config_class, model_class, case, seed), case, work))
        wrong = check_refusals(work / next(iter(cases)), refusals, work)
        words, good = extra(work) if extra else ("", True)
    print(f"{worst} cases={len(cases)} refused={len(refusals) - wrong}/{len(refusals)}{words}")
    return worst.good() and good and wrong == 0


def run_whole_family(config_class, model_class, cases, more_refusals):
    """As run_family, and the case that is named `trained` whole: with --short fewer lengths and training steps."""
    require(TOOL, TEXT)
    run_family(config_class, model_class, cases, more_refusals, lambda work: check_whole(
        work, "trained", config_class, model_class, cases["trained"]))
