#!/usr/bin/env -S sh -c 'exec "$(dirname "$0")/../../.deps/venv/bin/python" "$0" "$@"'
# test: label=conformance timeout=600 gate="" night="--trainer" measures="src/diagnose src/fp8 packaging/python"
"""octavo.capture on Llama and GPT-2 of transformers, and `octavo diagnose --capture` on what it saved.

usage: capture.py [--trainer]    also a script that trains with transformers' Trainer

The tensors are those of hooks that are written here, bit for bit; a captured step has the gradients of another; before and after it
the model has no hook and no attribute that it had not. Sampled rows are whole groups of 128 and hold the largest magnitudes.
Checkpointing (both kinds) and torch.compile change nothing. Figures are torchao's (tensorwise, rowwise, MX), or where it has no
quantizer (blockwise) NumPy's from fp8_recipes.py. The filters are executed: torchao converts the layers that it should, and no other.
Hostile captures are refused.
"""
import contextlib
import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import types

import ml_dtypes
import numpy as np
import torch
from safetensors.torch import load_file, save_file
from transformers import GPT2Config, GPT2LMHeadModel, LlamaConfig, LlamaForCausalLM

import fp8_recipes
from model_parity import OCTAVO, ROOT, randomize, require

sys.path.insert(0, str(ROOT / "packaging" / "python"))
from octavo.capture import Capture, capture  # noqa: E402

VOCAB = 512
SICK, DAMAGED, USAGE = 4, 5, 2  # exit codes
DECIBELS, PERCENT = 1e-3, 1e-6  # sums in FP64 over other orders
SCRIPT = """
import sys, torch
torch.manual_seed(3)
model = torch.nn.Sequential(torch.nn.Linear(64, 128), torch.nn.ReLU(inplace=True), torch.nn.Linear(128, 32))
optimizer = torch.optim.AdamW(model.parameters(), lr=0.1)
for step in range(1, int(sys.argv[1]) + 1):
    torch.save(model.state_dict(), f"before-{step}.pt")
    model(torch.randn(64, 64)).square().mean().backward()
    optimizer.step()
    optimizer.zero_grad()
    hooks = sum(len(m._forward_hooks) for m in model.modules()), len(torch.nn.modules.module._global_forward_pre_hooks)
    assert hooks == (0, step + 1 == int(sys.argv[2])), (step, hooks)  # the search for the model begins with the captured step
print("steps", step)
"""
TRAINER = """
import sys
sys.modules["transformer_engine"] = None  # only its C library is here; peft would import its Python part, which refuses
from transformers import LlamaConfig, LlamaForCausalLM, Trainer, TrainingArguments
model = LlamaForCausalLM(LlamaConfig(vocab_size=128, hidden_size=64, intermediate_size=128, num_hidden_layers=1,
                                     num_attention_heads=2, num_key_value_heads=2))
data = [{"input_ids": list(range(32)), "labels": list(range(32))}] * 16
Trainer(model, TrainingArguments("out", max_steps=4, per_device_train_batch_size=4, report_to=[], use_cpu=True,
                                 gradient_accumulation_steps=2, save_strategy="no", disable_tqdm=True), train_dataset=data).train()
"""


class Tally:
    def __init__(self):
        self.checks = self.failed = self.figures = 0
        self.without_oracle = set()

    def check(self, held, what):
        self.checks += 1
        if not held:
            self.failed += 1
            print(f"wrong: {what}")


# ---- models


def llama(dtype, **more):
    config = dict(vocab_size=VOCAB, hidden_size=128, intermediate_size=384, num_hidden_layers=2, num_attention_heads=4,
                  num_key_value_heads=2, max_position_embeddings=512, tie_word_embeddings=True) | more
    return randomize(LlamaForCausalLM(LlamaConfig(**config)), 1).to(dtype).train()


def gpt2():
    return randomize(GPT2LMHeadModel(GPT2Config(n_layer=2, n_head=4, n_embd=128, vocab_size=VOCAB, n_positions=512, attn_pdrop=0,
                                                embd_pdrop=0, resid_pdrop=0)), 2).train()


def batch(rows, length):
    ids = torch.randint(0, VOCAB, (rows, length), generator=torch.Generator().manual_seed(7))
    return {"input_ids": ids, "labels": ids}


def is_linear(module):
    return isinstance(module, torch.nn.Linear) or type(module).__name__ == "Conv1D"


def step(model, data):
    model.zero_grad(set_to_none=True)
    model(**data).loss.backward()
    return {name: p.grad.clone() for name, p in model.named_parameters() if p.grad is not None}


def hooked(model, data):
    """{layer: {input, weight, gradient}} by hooks of our own, and the gradients of the parameters."""
    seen, handles = {}, []
    for name, module in model.named_modules():
        if not is_linear(module):
            continue
        seen[name] = {"weight": module.weight.detach().clone()}
        if type(module).__name__ == "Conv1D":
            seen[name]["weight"] = seen[name]["weight"].T

        def forward(module, args, output, name=name):
            seen[name]["input"] = args[0].detach().clone().flatten(0, -2)

        def backward(module, grad_input, grad_output, name=name):
            seen[name]["gradient"] = grad_output[0].detach().clone().flatten(0, -2)

        handles += [module.register_forward_hook(forward), module.register_full_backward_hook(backward)]
    gradients = step(model, data)
    for handle in handles:
        handle.remove()
    return seen, gradients


def state_of(model):
    """Everything that a hook or a patch would change."""
    return [(name, id(type(m)), sorted(m.__dict__), id(m.__dict__.get("forward")), len(m._forward_hooks), len(m._forward_pre_hooks),
             len(m._backward_hooks), len(m._backward_pre_hooks)) for name, m in model.named_modules()]


def global_hooks():
    return sum(map(len, (torch.nn.modules.module._global_forward_hooks, torch.nn.modules.module._global_forward_pre_hooks,
                         torch.nn.modules.module._global_backward_hooks)))


# ---- what was saved


def rows_of(groups, size):
    return torch.cat([torch.arange(g * 128, min(size, (g + 1) * 128)) for g in groups])


def compare_tensors(tally, label, folder, seen):
    manifest = json.loads((folder / "capture.json").read_text())
    tally.check({layer["name"] for layer in manifest["layers"]} == set(seen), f"{label}: the layers")
    for layer in manifest["layers"]:
        wanted, found = seen[layer["name"]], load_file(folder / layer["file"])
        tokens, outputs = wanted["gradient"].shape
        tally.check((layer["tokens"], layer["outputs"], layer["inputs"]) == (tokens, *wanted["weight"].shape), f"{label}: sizes")
        rows, columns = rows_of(layer["token_groups"], tokens), rows_of(layer["output_groups"], outputs)
        parts = {"input": wanted["input"][rows], "weight": wanted["weight"][columns], "gradient": wanted["gradient"][rows][:, columns]}
        for name, part in parts.items():
            equal = found[name].dtype == part.dtype and torch.equal(found[name], part)
            tally.check(equal, f"{label}: {layer['name']} {name} is not what the hook saw")
            tally.check(torch.equal(found[name].abs().max(), wanted[name].abs().max()), f"{label}: {layer['name']} {name} without peak")
    return manifest


def check_model(tally, work, label, model, data, rows=512):
    seen, gradients = hooked(model, data)
    before = state_of(model)
    with capture(model, work / label, rows=rows):
        again = step(model, data)
    tally.check(before == state_of(model) and global_hooks() == 0, f"{label}: a hook or an attribute is left")
    tally.check(all(torch.equal(gradients[n], again[n]) for n in gradients), f"{label}: a captured step has other gradients")
    manifest = compare_tensors(tally, label, work / label, seen)
    head = next(layer for layer in manifest["layers"] if layer["name"] == "lm_head")
    tally.check(head["tied_to"] in ("model.embed_tokens.weight", "transformer.wte.weight"), f"{label}: the tied head")
    layouts = {layer["class"]: layer["layout"] for layer in manifest["layers"]}
    tally.check(layouts == {"Linear": "out_in"} | ({"Conv1D": "in_out"} if "gpt2" in label else {}), f"{label}: {layouts}")
    return seen


def check_other_ways(tally, work):
    """Checkpointed and compiled models; what goes wrong is said and leaves no hook."""
    data = batch(2, 80)
    seen, _ = hooked(llama(torch.float32), data)
    for reentrant in (True, False):
        model = llama(torch.float32)
        model.gradient_checkpointing_enable({"use_reentrant": reentrant})
        model.enable_input_require_grads()
        with capture(model, work / f"checkpointed-{reentrant}"):
            step(model, data)
        compare_tensors(tally, f"checkpointed {reentrant}", work / f"checkpointed-{reentrant}", seen)
    model = llama(torch.float32)
    compiled = torch.compile(model, backend="eager")
    step(compiled, data)
    with capture(compiled, work / "compiled"):
        step(compiled, data)
    compare_tensors(tally, "compiled", work / "compiled", seen)
    for what, error in ((lambda: model(**data), RuntimeError), (lambda: 1 / 0, ZeroDivisionError)):
        before, caught = state_of(model), None
        try:
            with capture(model, work / "nothing"):
                what()
        except Exception as raised:
            caught = type(raised)
        tally.check(caught is error and state_of(model) == before, f"wanted {error}, found {caught}, or hooks are left")
    tally.check(not (work / "nothing" / "capture.json").exists(), "a capture of nothing has a manifest")
    for arguments in ({"rows": 100}, {"rows": 128}):
        with contextlib.suppress(ValueError):
            Capture(model, work / "rows", **arguments)
            tally.check(False, f"{arguments} was taken")


class Linear(torch.nn.Module):
    """As Transformer Engine's, which is no torch.nn.Linear; `normalization`: as its LayerNormLinear. Megatron's layers return a pair."""

    def __init__(self, inputs, outputs, sizes=("out_features", "in_features"), normalization=None, zero_centered_gamma=False):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.randn(outputs, inputs) / inputs ** 0.5)
        setattr(self, sizes[0], outputs), setattr(self, sizes[1], inputs)
        self.normalization, self.zero_centered_gamma, self.eps = normalization, zero_centered_gamma, 1e-5
        if normalization:
            self.layer_norm_weight = torch.nn.Parameter(torch.randn(inputs))
            self.layer_norm_bias = torch.nn.Parameter(torch.randn(inputs)) if normalization == "LayerNorm" else None

    def forward(self, x):
        if self.normalization:
            gain = self.layer_norm_weight + (1 if self.zero_centered_gamma else 0)
            x = (torch.nn.functional.layer_norm(x, x.shape[-1:], gain, self.layer_norm_bias, self.eps) if self.normalization == "LayerNorm"
                 else torch.nn.functional.rms_norm(x, x.shape[-1:], gain, self.eps))
        self.seen = x.detach()
        return torch.nn.functional.linear(x, self.weight), None


def check_megatron(tally, work):
    """Layers that are called, built and used as Megatron's and Transformer Engine's are (stand-ins: theirs need a GPU)."""
    kinds = {name: type(name, (Linear,), {}) for name in ("TERowParallelLinear", "ColumnParallelLinear", "RowParallelLinear")}
    other = torch.nn.Module()
    other.weight = torch.nn.Parameter(torch.zeros(4, 64))
    norm = type("TELayerNormColumnParallelLinear", (type("LayerNormLinear", (Linear,), {}),), {})
    model = torch.nn.ModuleDict({
        "qkv": norm(64, 96, normalization="LayerNorm"), "fc1": norm(96, 128, normalization="RMSNorm", zero_centered_gamma=True),
        "fc2": kinds["TERowParallelLinear"](128, 64), "column": kinds["ColumnParallelLinear"](64, 32, ("output_size_per_partition", "input_size")),
        "row": kinds["RowParallelLinear"](32, 48, ("output_size", "input_size_per_partition")), "router": other})
    with capture(model, work / "megatron"):
        x = torch.randn(3, 40, 64)
        for name in ("qkv", "fc1", "fc2", "column", "row"):
            x, _ = model[name](x)
        x.square().sum().backward()
    manifest = json.loads((work / "megatron" / "capture.json").read_text())
    tally.check([layer["name"] for layer in manifest["layers"]] == ["qkv", "fc1", "fc2", "column", "row"], "Megatron's layers")
    tally.check([layer["name"] for layer in manifest["not_captured"]] == ["router"], f"left out: {manifest['not_captured']}")
    for layer in manifest["layers"]:
        found, module = load_file(work / "megatron" / layer["file"]), model[layer["name"]]
        wanted = module.seen.flatten(0, -2)
        tally.check(torch.allclose(found["input"], wanted, rtol=1e-5, atol=1e-5), f"{layer['name']}: another input")
        tally.check(torch.allclose(found["gradient"].T @ wanted, module.weight.grad, rtol=1e-4, atol=1e-3), f"{layer['name']}: another gradient")
    diagnose(work / "megatron")


def run_module(work, *words, code=0):
    done = subprocess.run([sys.executable, "-m", "octavo.capture", *map(str, words)], cwd=work, text=True, capture_output=True,
                          env=os.environ | {"PYTHONPATH": str(ROOT / "packaging" / "python")}, timeout=300)
    if done.returncode != code:
        sys.exit(f"octavo.capture {words} ended with {done.returncode}:\n{done.stdout[-2000:]}{done.stderr[-2000:]}")
    return done


def check_script(tally, work, with_trainer):
    tally.check("--step" in run_module(work, "--help").stdout, "--help")
    (work / "script.py").write_text(SCRIPT)
    done = run_module(work, "--step", 2, "--output", "by-script", "script.py", 3, 2)
    tally.check("steps 3" in done.stdout, "the script goes on after its captured step")
    weights = torch.load(work / "before-2.pt")
    for layer in json.loads((work / "by-script" / "capture.json").read_text())["layers"]:
        saved = load_file(work / "by-script" / layer["file"])
        tally.check(torch.equal(saved["weight"], weights[layer["name"] + ".weight"]), "the weights of step 2")
    done = run_module(work, "--step", 2, "--stop", "--output", "stopped", "script.py", 3, 2)
    tally.check("steps" not in done.stdout and (work / "stopped" / "capture.json").exists(), "--stop ends the script")
    done = run_module(work, "--step", 9, "--output", "late", "script.py", 3, 9, code=1)
    tally.check("wanted step 9" in done.stderr and not (work / "late").exists(), "a step that never came")
    if with_trainer:
        (work / "trainer.py").write_text(TRAINER)
        run_module(work, "--step", 2, "--output", "by-trainer", "trainer.py")
        layers = json.loads((work / "by-trainer" / "capture.json").read_text())["layers"]
        tally.check(len(layers) == 8 and all(layer["calls"] == 2 for layer in layers), "Trainer with two micro-batches")


# ---- figures


def diagnose(folder, *flags, code=0):
    done = subprocess.run([OCTAVO, "diagnose", "--capture", folder, *flags], text=True, capture_output=True, timeout=300)
    if done.returncode != code:
        sys.exit(f"diagnose {folder} {flags} ended with {done.returncode}, wanted {code}:\n{done.stdout[-2000:]}{done.stderr[-2000:]}")
    return done


class Oracle:
    def __init__(self):
        self.torchao = fp8_recipes.Torchao(fp8_recipes.Tally())

    def figures(self, variant, role, copy, tensor):
        """(SQNR, underflow in percent, saturation in percent), or None for a recipe that is not known here."""
        recipe, _, choice = variant.partition(" ")
        if recipe not in fp8_recipes.RECIPES:
            return None
        direction = {"rows": "row", "columns": "column"}[copy]
        name = fp8_recipes.stated_format(choice or "e4m3", role, direction)
        values = tensor.to(torch.bfloat16).float()
        values = np.ascontiguousarray((values if direction == "row" else values.T).numpy())
        # Without earlier steps delayed has current's scale.
        block = fp8_recipes.block_of(recipe, role, values.shape)
        if recipe == "mxfp8":
            made, _ = self.torchao.mx(name, values)
        elif recipe == "blockwise":
            with np.errstate(divide="ignore"):  # blocks of zeros
                made, _ = fp8_recipes.stated(recipe, name, block, values, None)
        else:
            made = self.torchao.float8("rowwise" if recipe == "rowwise" else "current", name, values)
        kind = {"e4m3": ml_dtypes.float8_e4m3fn, "e5m2": ml_dtypes.float8_e5m2}[name]
        back = made.codes.view(kind).astype(np.float32) * fp8_recipes.spread(made.decode, block, values.shape)
        signal, noise = (values.astype(np.float64) ** 2).sum(), ((values.astype(np.float64) - back) ** 2).sum()
        lost = ((values != 0) & (back == 0)).sum() / (values != 0).sum()
        factors = fp8_recipes.spread(made.encode, block, values.shape)
        saturated = fp8_recipes.incidents_of(name, values, factors, made.codes)[2] / values.size
        return 10 * np.log10(signal / noise), 100 * lost, 100 * saturated


def check_figures(tally, oracle, folder, code=0):
    manifest = json.loads((folder / "capture.json").read_text())
    found = json.loads(diagnose(folder, "--json", code=code).stdout)
    saved = {layer["name"]: load_file(folder / layer["file"]) for layer in manifest["layers"]}
    tally.check([layer["layer"] for layer in found["layers"]] == list(saved), f"{folder.name}: the layers in their order")
    recipes = set()
    for layer in found["layers"]:
        for variant in layer["variants"]:
            recipes.add(variant["variant"].split()[0])
            tally.check(bool(variant["refusal"]) != bool(variant["tensors"]), f"{layer['layer']} {variant['variant']}: figures or a refusal")
            for tensor in variant["tensors"]:
                wanted = oracle.figures(variant["variant"], tensor["tensor"], tensor["copy"], saved[layer["layer"]][tensor["tensor"]])
                if wanted is None:
                    tally.without_oracle.add(variant["variant"])
                    continue
                tally.figures += 3
                what = f"{folder.name} {layer['layer']} {variant['variant']} {tensor['tensor']} {tensor['copy']}"
                tally.check(abs(tensor["sqnr_db"] - wanted[0]) <= DECIBELS, f"{what}: {tensor['sqnr_db']} dB, wanted {wanted[0]}")
                tally.check(abs(tensor["underflowed_percent"] - wanted[1]) <= PERCENT,
                            f"{what}: underflow {tensor['underflowed_percent']}, wanted {wanted[1]}")
                tally.check(abs(tensor["saturated_percent"] - wanted[2]) <= PERCENT,
                            f"{what}: saturation {tensor['saturated_percent']}, wanted {wanted[2]}")
    tally.check(recipes >= set(fp8_recipes.RECIPES), f"recipes {recipes}")
    return found


# ---- filters


def check_filters(tally, work):
    """A layer that no scale of a whole tensor fits, and the three filters at work."""
    model = llama(torch.bfloat16, vocab_size=VOCAB)
    sick = "model.layers.1.mlp.down_proj"
    with torch.no_grad():
        weight = model.get_submodule(sick).weight
        weight.mul_(1e-4)
        weight[3, 5] = 3e2
    with capture(model, work / "sick"):
        step(model, batch(2, 128))
    found = json.loads(diagnose(work / "sick", "--json", code=SICK).stdout)
    by_name = {recipe["variant"]: recipe for recipe in found["recipes"]}
    kept = {name: [k["layer"] for k in recipe["keep_in_bf16"]] for name, recipe in by_name.items()}
    narrow = [f"model.layers.{i}.self_attn.{part}_proj" for i in range(2) for part in "kv"]  # 64 outputs, no multiple of 128
    tally.check(kept["current hybrid"] == [sick] and kept["mxfp8"] == [] and kept["blockwise"] == narrow, f"kept in BF16: {kept}")
    tally.check(by_name["blockwise"]["refused"] == 4 and by_name["blockwise"]["sick"] == 0, "refused is not sick")
    text = diagnose(work / "sick", code=SICK).stdout
    tally.check(by_name["delayed hybrid"]["filters"]["torchao"] in text and "verdict: SICK: 1 layer(s)" in text, "the text")
    diagnose(work / "sick", "--fp8_recipe", "blockwise")  # healthy by that

    filters = by_name["current hybrid"]["filters"]
    converted = llama(torch.bfloat16)
    exec(filters["torchao"], {"model": converted})
    for name, module in converted.named_modules():
        if is_linear(module):
            tally.check((type(module) is torch.nn.Linear) == (name == sick), f"torchao: {name} is a {type(module).__name__}")

    seen = []

    @contextlib.contextmanager
    def fp8_autocast(enabled):
        seen.append(enabled)
        yield

    engine = types.ModuleType("transformer_engine")
    engine.pytorch = types.ModuleType("transformer_engine.pytorch")
    engine.pytorch.fp8_autocast = fp8_autocast
    sys.modules.update({"transformer_engine": engine, "transformer_engine.pytorch": engine.pytorch})
    plain = llama(torch.bfloat16)
    exec(filters["transformer_engine"], {"model": plain})
    plain(**batch(1, 16)), plain(**batch(1, 16))
    tally.check(seen == [False, False], f"Transformer Engine: {seen}")

    tally.check(filters["octavo"] == "fp8_skip: [layers.1.mlp.down_proj]\n", filters["octavo"])
    plain.save_pretrained(work / "model")
    (work / "skip.yaml").write_text(f"model_name: {work / 'model'}\nmax_seq_length: 32\nbatch_size: 2\nuse_fp8: true\n"
                                    f"fp8_recipe: current\n{filters['octavo']}")
    done = subprocess.run([OCTAVO, "diagnose", work / "skip.yaml", "--json"], text=True, capture_output=True, timeout=300)
    if done.returncode not in (0, SICK):
        sys.exit(f"octavo did not take its filter:\n{done.stderr[-2000:]}")
    left = {gemm["layer"] for gemm in json.loads(done.stdout)["coverage"]["gemms"] if "fp8_skip" in gemm["reason"]}
    tally.check(any("layers.1.mlp.down_proj" in layer for layer in left) and len(left) == 1, f"octavo skips {left}")


# ---- hostile captures


def check_hostile(tally, work, sound):
    """Each with the exit code of damage, and the sound one is taken."""
    diagnose(sound)
    text = (sound / "capture.json").read_text()

    def change(**fields):
        manifest = json.loads(text)
        manifest["layers"][0] |= fields
        return json.dumps(manifest)

    manifests = {"escape": change(file="../../secret.safetensors"), "absolute": change(file="/etc/passwd"), "huge": change(inputs=2 ** 60),
                 "product": change(tokens=2 ** 39, token_groups=list(range(5000)), inputs=2 ** 39), "negative": change(tokens=-1),
                 "groups": change(token_groups=[0, 0]), "beyond": change(output_groups=[10 ** 6]), "name": change(name="a\x1b[2J\"+x"),
                 "other shape": change(inputs=64), "missing file": change(file="layer-99999.safetensors"), "not JSON": text[:200],
                 "deep": "[" * 100000, "version": text.replace('"version": 1', '"version": 7')}
    refused = 0
    for name, manifest in manifests.items():
        folder = work / "hostile" / name.replace(" ", "_")
        shutil.copytree(sound, folder)
        (folder / "capture.json").write_text(manifest)
        done = subprocess.run([OCTAVO, "diagnose", "--capture", folder], text=True, capture_output=True, timeout=60)
        tally.check(done.returncode in (DAMAGED, USAGE) and "\x1b[2J" not in done.stderr, f"{name}: exit code {done.returncode}")
        refused += done.returncode in (DAMAGED, USAGE)
    first = json.loads(text)["layers"][0]["file"]
    for name, spoil in {"cut": lambda file: file.write_bytes(file.read_bytes()[:-7]), "integers": lambda file: save_file(
            {key: t.to(torch.int32) for key, t in load_file(file).items()}, file), "empty": lambda file: file.write_bytes(b"")}.items():
        folder = work / "hostile" / name
        shutil.copytree(sound, folder)
        spoil(folder / first)
        done = subprocess.run([OCTAVO, "diagnose", "--capture", folder], text=True, capture_output=True, timeout=60)
        tally.check(done.returncode == DAMAGED, f"{name}: exit code {done.returncode}")
        refused += done.returncode == DAMAGED
    diagnose(work / "hostile", code=USAGE)  # no manifest
    diagnose(sound, "--model_name", "gpt2", code=USAGE)
    return refused


def main():
    require(OCTAVO)
    torch.set_num_threads(2)
    tally, oracle = Tally(), Oracle()
    with tempfile.TemporaryDirectory() as scratch:
        work = pathlib.Path(scratch)
        check_model(tally, work, "llama", llama(torch.bfloat16), batch(2, 96))
        check_model(tally, work, "gpt2", gpt2(), batch(3, 96))
        check_model(tally, work, "llama-sampled", llama(torch.float32, intermediate_size=1024), batch(4, 250), rows=256)
        manifest = json.loads((work / "llama-sampled" / "capture.json").read_text())
        tally.check(all(len(layer["token_groups"]) == 2 for layer in manifest["layers"]), "1000 tokens are sampled")
        tally.check(any(len(layer["output_groups"]) == 2 < layer["outputs"] / 128 for layer in manifest["layers"]), "and outputs")
        check_other_ways(tally, work)
        check_megatron(tally, work)
        check_script(tally, work, "--trainer" in sys.argv)
        for label in ("llama", "gpt2", "llama-sampled"):
            check_figures(tally, oracle, work / label)
        check_filters(tally, work)
        refused = check_hostile(tally, work, work / "llama")
    print(f"checks={tally.checks} failed={tally.failed} figures={tally.figures} refused={refused} without_oracle={len(tally.without_oracle)}")
    sys.exit(1 if tally.failed else 0)


if __name__ == "__main__":
    main()
