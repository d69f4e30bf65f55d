#!/usr/bin/env -S sh -c 'exec "$(dirname "$0")/../../.deps/venv/bin/python" "$0" "$@"'
# test: label=conformance timeout=1200 night="" measures="src/model_config src/models"
"""config.json field by field: the fields of the installed transformers' config classes of every family, those that older versions wrote, and the published files of tests/models/published.

1. A file with every field of the class at its default is accepted.
2. One field at a time has other values. Either the file is refused, or the logits are those of transformers for the same
   file: a field that octavo passes over must change nothing there.
3. Published files: their SHA-256 is the README's, and transformers makes a model of each that has the parameters of
   tests/published.h (without memory for them)."""
import dataclasses
import hashlib
import json
import pathlib
import re
import sys
import tempfile

import torch
from safetensors.torch import load_file
from transformers import (AutoConfig, AutoModelForCausalLM, Gemma3ForCausalLM, Gemma3TextConfig, GPT2Config,
                          GPT2LMHeadModel, LlamaConfig, LlamaForCausalLM, MistralConfig, MistralForCausalLM, Olmo2Config,
                          Olmo2ForCausalLM, Olmo3Config, Olmo3ForCausalLM, Qwen2Config, Qwen2ForCausalLM, Qwen3Config,
                          Qwen3ForCausalLM, SmolLM3Config, SmolLM3ForCausalLM)

from model_parity import LOGIT_DIFF, ROOT, TOOL, randomize, require, run_tool, save_batch

REFUSALS = (2, 5)  # exit codes
VOCAB, LENGTH = 97, 48
SIZES = dict(vocab_size=VOCAB, num_hidden_layers=2, hidden_size=64, intermediate_size=96, num_attention_heads=4,
             num_key_value_heads=2, max_position_embeddings=64, bos_token_id=0, eos_token_id=0)
CLASSES = {
    "gpt2": (GPT2LMHeadModel, GPT2Config(vocab_size=VOCAB, n_positions=64, n_embd=64, n_layer=2, n_head=4, bos_token_id=0,
                                         eos_token_id=0)),
    "llama": (LlamaForCausalLM, LlamaConfig(**SIZES)),
    "qwen2": (Qwen2ForCausalLM, Qwen2Config(**SIZES, tie_word_embeddings=True)),
    "mistral": (MistralForCausalLM, MistralConfig(**SIZES)),
    "qwen3": (Qwen3ForCausalLM, Qwen3Config(**SIZES, head_dim=16)),
    "smollm3": (SmolLM3ForCausalLM, SmolLM3Config(**SIZES, pad_token_id=None, no_rope_layers=[1, 0])),
    "olmo2": (Olmo2ForCausalLM, Olmo2Config(**SIZES, pad_token_id=None)),
    "olmo3": (Olmo3ForCausalLM, Olmo3Config(**SIZES, pad_token_id=None, sliding_window=16)),
    "gemma3": (Gemma3ForCausalLM, Gemma3TextConfig(**SIZES, pad_token_id=None, head_dim=16, sliding_window=16)),
}
ROPE = dict(rope_theta=10000.0)
OTHERS = {  # values for fields whose type does not say enough
    "activation_function": ["relu", "gelu_pytorch_tanh", "gelu"],
    "hidden_act": ["gelu", "relu", "swish"],
    "hidden_activation": ["gelu", "silu"],
    "no_rope_layers": [[0, 1], [1], [1, 1, 0], [2, 1], None],
    "architectures": [["Somebody"]],
    "dtype": ["float16"],
    "torch_dtype": ["float16"],
    "id2label": [{"0": "a", "1": "b", "2": "c"}],
    "label2id": [{"a": 0}],
    "problem_type": ["regression"],
    "transformers_version": ["4.1.0"],
    "summary_type": ["last"],
    "summary_activation": ["tanh"],
    "n_inner": [256, 100],
    "head_dim": [16, 8, 32],
    "pretraining_tp": [2],
    "num_key_value_heads": [4, 1],
    "sliding_window": [None, 8, LENGTH],
    "layer_types": [["full_attention", "sliding_attention"], ["full_attention"], ["full_attention"] * 2],
    "pad_token_id": [3],
    "rope_parameters": [
        ROPE | {"rope_theta": 500.0}, ROPE | {"rope_type": "linear", "factor": 2.0},
        ROPE | {"rope_type": "dynamic", "factor": 2.0}, ROPE | {"rope_type": "yarn", "factor": 4.0},
        ROPE | {"partial_rotary_factor": 0.5}, ROPE | {"partial_rotary_factor": 1.0},
        ROPE | {"rope_type": "llama3", "factor": 4.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
                "original_max_position_embeddings": 16}],
}
# Of files that older versions and other programs wrote.
OLDER = {
    "is_decoder": [True, False], "pruned_heads": [{}, {"0": [1]}], "torchscript": [True], "use_bfloat16": [True],
    "output_past": [True, False], "gradient_checkpointing": [True], "num_labels": [5], "_num_labels": [1],
    "finetuning_task": ["x"], "task_specific_params": [{"text-generation": {"max_length": 50}}], "max_length": [5],
    "temperature": [0.5], "repetition_penalty": [2.0], "add_cross_attention": [False, True],
    "tie_encoder_decoder": [False, True], "is_causal": [True, False], "_attn_implementation_autoset": [True],
    "unsloth_fixed": [True], "cross_attention_hidden_size": [None, 32], "tie_word_embeddings": [True, False],
    "attention_bias": [True, False], "quantization_config": [None], "auto_map": [{"AutoConfig": "a.B"}],
}
OLDER_OF = {
    "gpt2": {"n_special": [0, 3], "predict_special_tokens": [True, False], "n_ctx": [32, 64], "hidden_size": [64]},
    "llama": {"rope_theta": [500.0], "is_llama_config": [True], "rope_interleaved": [False, True],
              "partial_rotary_factor": [1.0, 0.5], "sliding_window": [None, 8],
              "rope_scaling": [None, {"type": "linear", "factor": 2.0}, OTHERS["rope_parameters"][-1]]},
    "mistral": {"rope_theta": [500.0], "mlp_bias": [False, True], "layer_types": [["full_attention"] * 2],
                "rope_scaling": [None, {"type": "linear", "factor": 2.0}, OTHERS["rope_parameters"][-1]]},
    "qwen2": {"rope_theta": [500.0], "use_mrope": [False, True], "partial_rotary_factor": [1.0],
              "rope_scaling": [None, {"type": "yarn", "factor": 2.0, "original_max_position_embeddings": 32}]},
    "qwen3": {"rope_theta": [500.0], "rope_scaling": [{"type": "yarn", "factor": 2.0, "original_max_position_embeddings": 32}]},
    "smollm3": {"rope_theta": [500.0], "rope_scaling": [{"type": "linear", "factor": 2.0}]},
    "olmo2": {"rope_theta": [500.0], "clip_qkv": [None, 8.0]},
    "olmo3": {"rope_scaling": [{"rope_type": "yarn", "factor": 2.0, "original_max_position_embeddings": 32}]},
    "gemma3": {"rope_theta": [500.0], "rope_local_base_freq": [500.0], "sliding_window_pattern": [2],
               "cache_implementation": ["hybrid"], "rope_scaling": [{"rope_type": "linear", "factor": 2.0}]},
}


def fields_of(config):
    """{field: value at its default} of the class and its base, as a file writes them."""
    whole = config.to_dict()
    names = {f.name for f in dataclasses.fields(type(config))} | whole.keys()
    return {name: whole.get(name) for name in sorted(names) if not name.startswith("_") and name != "model_type"}


def other_values(name, value):
    if name in OTHERS:
        return OTHERS[name]
    if isinstance(value, bool):
        return [not value]
    if isinstance(value, int):
        return [value + 1]
    if isinstance(value, float):
        return [2 * value + 0.1]
    assert value is None or isinstance(value, str), f"{name}: no other value is known for {value!r}; add some to OTHERS"
    return [3] if value is None else [value + "x"]


class Tried:
    """What became of the files of one model."""

    def __init__(self, folder, model, work):
        self.folder, self.work = folder, work
        self.whole = json.loads((folder / "config.json").read_text()) | fields_of(model.config)
        self.ids = torch.randint(0, VOCAB, (1, LENGTH), generator=torch.Generator().manual_seed(1))
        self.batch = work / "batch.safetensors"
        save_batch(self.batch, self.ids, self.ids)
        self.number = self.refused = self.equal = 0
        self.worst = 0.0

    def file(self, changes, legacy=()):
        self.number += 1
        target = self.work / f"{self.folder.name}-{self.number}"
        target.mkdir()
        (target / "model.safetensors").hardlink_to(self.folder / "model.safetensors")
        config = {k: v for k, v in (self.whole | changes).items() if k not in legacy}
        (target / "config.json").write_text(json.dumps(config))
        return target

    def logits(self, target):
        """Ours, or None where the file is refused; and what was said."""
        out = target / "logits.safetensors"
        code, _, errors = run_tool("logits", target, self.batch, out, "beside")
        assert code in (0, *REFUSALS), f"exit code {code}\n{errors}"
        return (load_file(out)["logits"] if code == 0 else None), errors

    def compare(self, target, found, what):
        """The logits of a file that was accepted against transformers'."""
        theirs = AutoModelForCausalLM.from_pretrained(target, dtype=torch.float32).eval()
        theirs.config.return_dict = True  # or transformers itself fails
        with torch.no_grad():
            wanted = theirs(self.ids).logits.flatten(0, 1)
        diff = (found.view_as(wanted) - wanted).abs().max().item()
        assert diff <= LOGIT_DIFF, f"{what}: passed over here, but transformers' logits differ by {diff:.2e}"
        self.worst, self.equal = max(self.worst, diff), self.equal + 1

    def value(self, name, value):
        # A file of before has no rope_parameters beside what they replaced.
        legacy = ("rope_parameters",) if name in ("rope_theta", "rope_scaling") else ()
        target, what = self.file({name: value}, legacy), f"{self.folder.name}: {name} = {json.dumps(value)}"
        found, errors = self.logits(target)
        if found is not None:
            self.compare(target, found, what)
        else:
            assert errors.strip(), f"{what}: refused without a word"
            self.refused += 1
        print(f"{what}: {'refused' if found is None else 'as transformers'}", flush=True)


def check_model(kind, work):
    """(fields, values refused, values with transformers' logits, the largest difference)"""
    make, config = CLASSES[kind]
    model = randomize(make(config), 7)
    folder = work / kind
    model.save_pretrained(folder)
    tried = Tried(folder, model, work)
    found, errors = tried.logits(plain := tried.file({}))
    assert found is not None, f"{kind}: every field at its default, and refused:\n{errors}"
    tried.compare(plain, found, f"{kind}: every field at its default")
    fields = fields_of(model.config)
    for name, value in fields.items():
        for other in other_values(name, value):
            tried.value(name, other)
    for name, values in (OLDER | OLDER_OF[kind]).items():
        for value in values:
            tried.value(name, value)
    return len(fields), tried.refused, tried.equal, tried.worst


def check_published():
    """How many of the published files transformers makes the published number of parameters of."""
    folder = ROOT / "tests" / "models" / "published"
    readme = (folder / "README.md").read_text()
    table = dict(re.findall(r'^    \{"([^"]+)",.*, ([0-9 +]+)\},$', (ROOT / "tests" / "published.h").read_text(), re.M))
    files = sorted(folder.glob("*.json"))
    assert {f.stem for f in files} == table.keys(), table.keys() ^ {f.stem for f in files}
    for file in files:
        row = next(line for line in readme.splitlines() if line.startswith(f"| {file.name} |"))
        assert hashlib.sha256(file.read_bytes()).hexdigest() in row, f"{file.name} is not what the README says"
        with torch.device("meta"):
            model = AutoModelForCausalLM.from_config(AutoConfig.from_pretrained(file))
        wanted, found = sum(map(int, table[file.stem].split("+"))), model.num_parameters()
        assert found == wanted, f"{file.name}: transformers counts {found}, published.h says {wanted}"
    return len(files)


def main():
    require(TOOL)
    torch.set_num_threads(2)
    published = check_published()
    with tempfile.TemporaryDirectory() as temporary:
        found = [check_model(kind, pathlib.Path(temporary)) for kind in CLASSES]
    fields, refused, equal = (sum(f[i] for f in found) for i in range(3))
    print(f"published={published} fields={fields} refused={refused} as_transformers={equal} "
          f"logit_diff={max(f[3] for f in found):.2e}")
    sys.exit(0)


if __name__ == "__main__":
    main()
