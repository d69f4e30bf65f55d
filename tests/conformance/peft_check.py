#!/usr/bin/env -S sh -c 'exec "$(dirname "$0")/../../.deps/venv/bin/python" "$0" "$@"'
# test: label=conformance timeout=600 gate=""
"""Adapters (LoRA) between octavo and peft, on tiny random models in FP32.

Adapters that octavo trained load in peft, and adapters that peft made load in octavo, beside the layers and merged into
them, with equal logits. Kinds that are not implemented are refused. A LoRA run that was stopped continues bit for bit, and
its checkpoint evaluates, writes and is exported as the merged model.
"""
import json
import pathlib
import subprocess
import sys
import tempfile

import torch
# Of Transformer Engine only the C library is installed; peft would import its Python part, which refuses.
sys.modules["transformer_engine"] = None
from peft import LoraConfig, PeftModel, get_peft_model
from safetensors.torch import load_file
from transformers import (AutoModelForCausalLM, GPT2Config, GPT2LMHeadModel, LlamaConfig, LlamaForCausalLM, Qwen2Config,
                          Qwen2ForCausalLM)

from llama_family import LLAMA3
from model_parity import DATA, LOGIT_DIFF, OCTAVO, TOOL, randomize, read_folder, require, run_tool, save_batch, tool

TEXT = DATA / "data" / "text" / "tinyshakespeare.txt"
VOCAB, LENGTH = 320, 48
REFUSED = 2  # exit code
LEAST_EFFECT = 0.01  # adapters that change the logits by less would show nothing
LOSS_DIFF = 1e-5

COMMON = dict(vocab_size=VOCAB, num_hidden_layers=2, hidden_size=64, intermediate_size=112, num_attention_heads=4,
              num_key_value_heads=2, max_position_embeddings=LENGTH, bos_token_id=0, eos_token_id=0)
MODELS = {  # the last are the targets beside "all"
    "llama": (lambda: LlamaForCausalLM(LlamaConfig(
        **COMMON, head_dim=24, mlp_bias=True, rope_parameters=LLAMA3 | dict(rope_theta=500000.0))), "q_proj,v_proj"),
    "qwen2": (lambda: Qwen2ForCausalLM(Qwen2Config(**COMMON, tie_word_embeddings=True)), "q_proj,v_proj"),
    "gpt2": (lambda: GPT2LMHeadModel(GPT2Config(
        n_layer=2, n_head=4, n_embd=64, vocab_size=VOCAB, n_positions=LENGTH, attn_pdrop=0, embd_pdrop=0, resid_pdrop=0,
        bos_token_id=0, eos_token_id=0)), "c_attn"),
}
LINEARS = {"gpt2": ["c_attn", "c_proj", "c_fc"],
           "llama": ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"]}
LINEARS["qwen2"] = LINEARS["llama"]


def probe():
    generator = torch.Generator().manual_seed(5)
    return torch.randint(0, VOCAB, (3, LENGTH), generator=generator)


def logits_here(folder, work, how):
    """Of a model's folder or a PEFT folder."""
    tool("logits", folder, work / "probe.safetensors", work / "logits.safetensors", how)
    return load_file(work / "logits.safetensors")["logits"].view(3, LENGTH, VOCAB)


def logits_there(model):
    with torch.no_grad():
        return model.eval()(probe()).logits


def base_model(folder):
    return AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()


def train_flags(model, work, *more):
    return ["--model_name", model, "--dataset", work / "text.txt", "--tokenizer", "bytes", "--data_cache", work / "cache",
            "--batch_size", "4", "--max_seq_length", "32", "--learning_rate", "2e-2", "--mixed_precision", "fp32",
            "--eval_freq", "0", *more]


def difference(found, wanted, plain, what):
    """The largest difference of the logits; the adapters must have an effect on them."""
    effect = (wanted - plain).abs().max().item()
    diff = (found - wanted).abs().max().item()
    print(f"{what}: logit_diff={diff:.2e} effect={effect:.2f}", flush=True)
    assert effect > LEAST_EFFECT, f"{what}: the adapters change nothing"
    return diff


def check_written_here(name, folder, targets, work):
    """Trained here, read by peft."""
    out = work / f"here-{name}-{targets}"
    flags = ["--lora_rank", "6", "--lora_alpha", "21", "--max_steps", "5", "--lora_target_modules", targets]
    tool("peft", out, *train_flags(folder, work, *flags))
    plain = logits_there(base_model(folder))
    adapted = PeftModel.from_pretrained(base_model(folder), out)
    in_file, in_peft = load_file(out / "adapter_model.safetensors"), adapted.state_dict()
    assert all(torch.equal(t, in_peft[n.replace("lora_A.", "lora_A.default.").replace("lora_B.", "lora_B.default.")])
               for n, t in in_file.items()), "peft did not take every matrix"
    assert sum("lora_" in n for n in in_peft) == len(in_file), "peft made adapters that the file does not have"
    wanted = logits_there(adapted)
    merged = logits_there(adapted.merge_and_unload())
    what = f"written here, {name} {targets}"
    return max(difference(logits_here(out, work, "beside"), wanted, plain, what),
               difference(logits_here(out, work, "merged"), merged, plain, what + ", merged"))


def make_peft(folder, out, **options):
    """Random adapters of peft beside the model, written to `out`."""
    torch.manual_seed(len(out.name))
    adapted = get_peft_model(base_model(folder), LoraConfig(task_type="CAUSAL_LM", **options))
    with torch.no_grad():
        for name, p in adapted.named_parameters():
            if "lora_" in name:
                p.normal_(std=0.1)
    adapted.save_pretrained(out)
    return adapted


def check_written_there(name, folder, targets, work):
    worst, plain = 0.0, logits_there(base_model(folder))
    modules = LINEARS[name] if targets == "all" else targets.split(",")
    for rslora in (False, True):
        out = work / f"there-{name}-{targets}-{rslora}"
        adapted = make_peft(folder, out, r=5, lora_alpha=12, target_modules=modules, use_rslora=rslora, lora_dropout=0.1,
                            fan_in_fan_out=name == "gpt2")
        wanted = logits_there(adapted)
        for how in ("beside", "merged"):
            what = f"written by peft, {name} {targets} {'rslora ' if rslora else ''}{how}"
            worst = max(worst, difference(logits_here(out, work, how), wanted, plain, what))
    return worst


def edited(source, target, change):
    """The same adapters with a changed adapter_config.json."""
    target.mkdir()
    config = json.loads((source / "adapter_config.json").read_text())
    change(config)
    (target / "adapter_config.json").write_text(json.dumps(config))
    (target / "adapter_model.safetensors").hardlink_to(source / "adapter_model.safetensors")
    return target


def check_refusals(folder, work):
    """(refused, tried)"""
    plain = dict(r=4, lora_alpha=8, target_modules=["q_proj"])
    made = work / "plain"
    make_peft(folder, made, **plain)
    make_peft(folder, work / "dora", **plain, use_dora=True)
    make_peft(folder, work / "head", **plain, modules_to_save=["lm_head"])
    make_peft(folder, work / "ranks", **plain, rank_pattern={"layers.1.self_attn.q_proj": 2})
    make_peft(folder, work / "bias", **plain | {"bias": "all"})
    change = lambda name, **fields: edited(made, work / name, lambda config: config.update(fields))
    cases = [("use_dora", work / "dora"), ("modules_to_save", work / "head"), ("rank_pattern", work / "ranks"),
             ("bias", work / "bias"), ("peft_type", change("type", peft_type="LOHA")),
             ("z_proj", change("unknown", target_modules=["z_proj"])),
             ("tensors", change("more", target_modules=["q_proj", "v_proj"])),
             ("layers_to_transform", change("some", layers_to_transform=[0]))]
    refused = 0
    for word, where in cases:
        code, _, errors = run_tool("logits", where, work / "probe.safetensors", work / "none.safetensors", "beside")
        good = code != 0 and (code == REFUSED or word == "tensors") and (word in errors or word == "tensors")
        refused += good
        if not good:
            print(f"{where.name}: wanted a refusal that names {word}, found exit code {code}: {errors[-300:]}")
    return refused, len(cases)


def octavo(work, *arguments):
    done = subprocess.run([OCTAVO, *map(str, arguments)], cwd=work, text=True, stdout=subprocess.PIPE,
                          stderr=subprocess.PIPE)
    if done.returncode != 0:
        sys.exit(f"octavo {arguments[0]} ended with exit code {done.returncode}:\n{done.stderr}")
    return done.stdout


def check_resume(folder, work):
    """How many files differ between a run and one that was stopped in its middle and resumed."""
    flags = train_flags(folder, work, "--max_steps", "8", "--lora_rank", "4", "--lora_alpha", "20", "--lora_dropout", "0.2",
                        "--checkpoint_freq", "4", "--keep_checkpoints", "0")
    octavo(work, "train", *flags, "--checkpoint_dir", work, "--run_name", "whole")
    octavo(work, "train", *flags, "--checkpoint_dir", work, "--run_name", "resumed", "--resume",
           work / "whole" / "step-00000004")
    names = [f"step-00000008/{group}.safetensors" for group in ("adapter", "optimizer")]
    for start in ("step-00000004", "step-00000008"):
        stored = read_folder(work / "whole" / start)
        assert all(t.any() for n, t in stored.items() if "lora_B" in n), "nothing was trained"
    early, late = (load_file(work / "whole" / s / "adapter.safetensors") for s in ("step-00000004", "step-00000008"))
    assert not any(torch.equal(early[n], late[n]) for n in late), "nothing was trained after the stop"
    return sum((work / "whole" / n).read_bytes() != (work / "resumed" / n).read_bytes() for n in names)


def adapters_of(checkpoint, folder):
    """The checkpoint's adapters as peft has them, from the file of the checkpoint itself."""
    kept = json.loads((checkpoint / "manifest.json").read_text())["extra"]["lora"]
    assert kept["base"] == str(folder)
    adapted = get_peft_model(base_model(folder), LoraConfig(
        task_type="CAUSAL_LM", r=kept["rank"], lora_alpha=kept["alpha"], target_modules=LINEARS["llama"]))
    mine = {f"base_model.model.{n}": t for n, t in load_file(checkpoint / "adapter.safetensors").items()}
    with torch.no_grad():
        for name, p in adapted.named_parameters():
            if "lora_" in name:
                p.copy_(mine.pop(name.replace(".default", "")))
    assert not mine
    return adapted


def check_checkpoint(folder, work):
    """A LoRA checkpoint and what peft merged of it: (difference of the losses, are the texts equal)."""
    checkpoint = work / "whole" / "step-00000008"
    adapters_of(checkpoint, folder).merge_and_unload().save_pretrained(work / "merged")
    common = ["--tokenizer", "bytes", "--mixed_precision", "fp32"]

    def loss(model):
        out = octavo(work, "eval", "--checkpoint", model, "--dataset", work / "text.txt", "--data_cache", work / "cache",
                     "--max_seq_length", "32", "--eval_limit", "10", "--json", *common)
        return json.loads(out)["val_loss"]

    def text(model):
        return octavo(work, "generate", "--checkpoint", model, "--prompt", "KING ", "--temperature", "0",
                      "--max_new_tokens", "40", *common)

    found, wanted, plain = loss(checkpoint), loss(work / "merged"), loss(folder)
    print(f"loss of the checkpoint {found:.6f}, merged by peft {wanted:.6f}, without adapters {plain:.6f}")
    assert abs(plain - wanted) > 0.1, "the adapters learned nothing"
    return abs(found - wanted), text(checkpoint) == text(work / "merged")


def check_export(folder, work):
    """`checkpoints export` of a LoRA checkpoint: the largest difference of the logits from peft's."""
    checkpoint = work / "whole" / "step-00000008"
    export = ["checkpoints", "export", checkpoint, "--checkpoint_dir", work, "--output"]
    octavo(work, *export, work / "export-peft", "--export_format", "peft")
    octavo(work, *export, work / "export-bf16")
    adapted = adapters_of(checkpoint, folder)
    wanted, plain = logits_there(adapted), logits_there(base_model(folder))
    reread = PeftModel.from_pretrained(base_model(folder), work / "export-peft")
    assert reread.peft_config["default"].lora_dropout == 0.2
    diff = difference(logits_there(reread), wanted, plain, "exported as PEFT, read by peft")
    diff = max(diff, difference(logits_here(work / "export-peft", work, "beside"), wanted, plain, "and here"))
    # octavo merges in BF16 here: the base is rounded, the sum is, and that is all.
    ours = read_folder(work / "export-bf16")
    theirs = {n: t.float() for n, t in adapted.merge_and_unload().state_dict().items()}
    worst = max(((ours[n].float() - theirs[n]).abs().max() / theirs[n].abs().max()).item() for n in ours)
    print(f"exported as bf16: {len(ours)} tensors, largest difference / largest value {worst:.1e}")
    assert ours.keys() <= theirs.keys() and worst < 2**-7, "the export is not the merged model"
    return diff


def check_export_refusals(folder, work):
    """A checkpoint without adapters has none to export."""
    octavo(work, "train", *train_flags(folder, work, "--max_steps", "1", "--checkpoint_dir", work / "full"))
    done = subprocess.run([OCTAVO, "checkpoints", "export", "latest", "--checkpoint_dir", work / "full", "--output",
                           work / "refused", "--export_format", "peft"], stderr=subprocess.PIPE, text=True)
    good = done.returncode == REFUSED and "adapters" in done.stderr and not (work / "refused").exists()
    if not good:
        print(f"export of a whole model as peft: wanted a refusal, found exit code {done.returncode}: {done.stderr[-300:]}")
    return good


def main():
    require(TOOL, OCTAVO, TEXT)
    torch.set_num_threads(1)  # the models are small: a second thread only waits
    here, there = 0.0, 0.0
    with tempfile.TemporaryDirectory() as temporary:
        work = pathlib.Path(temporary)
        (work / "text.txt").write_text(TEXT.read_text()[:60000])
        save_batch(work / "probe.safetensors", probe(), probe())
        for seed, (name, (make, some)) in enumerate(MODELS.items()):
            randomize(make(), seed).save_pretrained(work / name)
            for targets in ("all", some):
                here = max(here, check_written_here(name, work / name, targets, work))
                there = max(there, check_written_there(name, work / name, targets, work))
        refused, tried = check_refusals(work / "llama", work)
        resumed_different = check_resume(work / "llama", work)
        loss_diff, same_text = check_checkpoint(work / "llama", work)
        exported = check_export(work / "llama", work)
        refused, tried = refused + check_export_refusals(work / "llama", work), tried + 1
    print(f"written_here={here:.2e} written_by_peft={there:.2e} exported={exported:.2e} models={len(MODELS)} "
          f"refused={refused}/{tried} resume_different={resumed_different} loss_diff={loss_diff:.1e} same_text={int(same_text)}")
    good = max(here, there, exported) <= LOGIT_DIFF and refused == tried and resumed_different == 0
    sys.exit(0 if good and loss_diff <= LOSS_DIFF and same_text else 1)


if __name__ == "__main__":
    main()
