"""GPT-2 of octavo against transformers: the same random weights give the same logits and gradients, survive a round
trip bit for bit, and take the same 200 training steps as a PyTorch loop on the same batches."""
import json
import os
import pathlib
import subprocess
import sys
import tempfile

os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("OMP_WAIT_POLICY", "passive")  # spinning threads crawl on a machine that is shared

import torch
import torch.nn.functional as F
from safetensors.torch import load_file, save_file
from transformers import GPT2Config, GPT2LMHeadModel
from transformers.utils import logging

ROOT = pathlib.Path(__file__).resolve().parents[2]
BUILD = pathlib.Path(os.environ.get("OCTAVO_BUILD", ROOT / "build" / "release"))
TOOL = BUILD / "bin" / "gpt2_parity_tool"
DATA = pathlib.Path(os.environ.get("OCTAVO_TEST_DATA", ROOT.parent / "shared"))
TEXT = DATA / "data" / "text" / "tinyshakespeare.txt"

STEPS = 200
# FP32 losses were seen within 2e-7. The limit of 1e-4 that was asked for lets small mistakes through: a weight decay
# that is 10% off makes a difference of 3e-5 at the usual 0.1. So ours is tighter, and the decay larger.
LOGIT_DIFF, COSINE, GRADIENT_NORM, FP32_REL, BF16_REL = 1e-4, 0.99999, 1e-4, 5e-6, 5e-3

# Vocabularies that are no multiple of 64 (ours are padded), samples shorter than the context, accumulation, a penalty.
CASES = {
    "plain": dict(
        model=dict(n_layer=2, n_head=4, n_embd=64, vocab_size=257, n_positions=64),
        train=dict(max_seq_length=64, batch_size=8)),
    "deep": dict(
        model=dict(n_layer=4, n_head=6, n_embd=96, vocab_size=331, n_positions=64),
        train=dict(max_seq_length=48, batch_size=5, gradient_accumulation_steps=2, penalty_weight=1e-3)),
}
TRAIN = dict(max_steps=STEPS, warmup_steps=20, learning_rate=1e-3, min_lr_ratio=0.1, weight_decay=0.5, beta1=0.9,
             beta2=0.95, adam_eps=1e-8, max_grad_norm=1.0, num_threads=2, tokenizer="bytes")


def tool(*arguments):
    done = subprocess.run([TOOL, *map(str, arguments)], stdout=subprocess.PIPE)
    if done.returncode != 0:
        sys.exit(f"{TOOL.name} {arguments[0]} ended with exit code {done.returncode}")
    return done.stdout.decode().splitlines()


def random_model(sizes, folder):
    """Every weight random, biases and norms too; larger than the usual 0.02, so that the logits are not tiny."""
    torch.manual_seed(sizes["n_layer"])
    no_dropout = dict(attn_pdrop=0, embd_pdrop=0, resid_pdrop=0)
    model = GPT2LMHeadModel(GPT2Config(**sizes, **no_dropout, bos_token_id=0, eos_token_id=0))
    with torch.no_grad():
        for name, p in model.named_parameters():
            p.normal_(std=0.08)
            if ".ln_" in name and name.endswith("weight"):
                p.add_(1)
    model.save_pretrained(folder)
    return model.eval()


def cosine(a, b):
    a, b = a.flatten().double(), b.flatten().double()
    return (a @ b / (a.norm() * b.norm())).item()


def as_theirs(name, tensor, vocab):
    """Our layout to theirs: their blocks keep [in, out], our token embedding has padding rows."""
    if name.startswith("h.") and tensor.dim() == 2:
        return tensor.t()
    if name == "wte.weight":
        assert not tensor[vocab:].any(), "padding rows of the vocabulary have a gradient"
        return tensor[:vocab]
    return tensor


def check_round_trip(folder, again, model, inputs):
    """What was loaded and written again is what transformers wrote, bit for bit, and transformers reads it."""
    source, copy = load_file(folder / "model.safetensors"), load_file(again / "model.safetensors")
    assert source.keys() == copy.keys(), f"tensors differ: {source.keys() ^ copy.keys()}"
    for name, tensor in source.items():
        assert torch.equal(tensor.view(torch.int32), copy[name].view(torch.int32)), f"{name} changed on its way"
    reread, notes = GPT2LMHeadModel.from_pretrained(again, output_loading_info=True)
    assert not any(notes[k] for k in ("missing_keys", "unexpected_keys", "mismatched_keys")), notes
    with torch.no_grad():
        assert torch.equal(reread.eval()(inputs).logits, model(inputs).logits), "logits differ after the round trip"


def check_gradients(folder, model, sizes, length):
    vocab = sizes["vocab_size"]
    generator = torch.Generator().manual_seed(length)
    inputs, targets = torch.randint(0, vocab, (2, 3, length), dtype=torch.int32, generator=generator).unbind()
    out = folder / f"check-{length}"
    out.mkdir()
    save_file({"inputs": inputs, "targets": targets.contiguous()}, out / "batch.safetensors")
    tool("check", folder, out / "batch.safetensors", out)

    logits = model(inputs.long()).logits
    model.zero_grad()
    loss = F.cross_entropy(logits.flatten(0, 1), targets.flatten().long())
    loss.backward()
    ours = load_file(out / "gradients.safetensors")
    diff = (load_file(out / "logits.safetensors")["logits"] - logits.detach().flatten(0, 1)).abs().max().item()
    assert abs(ours.pop("loss").item() - loss.item()) < 1e-5
    theirs = {n.removeprefix("transformer."): p.grad for n, p in model.named_parameters()}
    assert ours.keys() == theirs.keys(), f"parameters differ: {ours.keys() ^ theirs.keys()}"
    ours = {n: as_theirs(n, t, vocab) for n, t in ours.items()}
    worst_cosine = min(cosine(ours[n], theirs[n]) for n in theirs)
    worst_norm = max(abs(ours[n].norm() / theirs[n].norm() - 1).item() for n in theirs)
    check_round_trip(folder, out / "model", model, inputs.long())
    return diff, worst_cosine, worst_norm, logits.std().item()


def train_here(folder, work, options, precision):
    flags = TRAIN | options | dict(model_name=folder, init_from=folder, dataset=TEXT, data_cache=work / "data",
                                   mixed_precision=precision)
    lines = tool("train", work / "batches.safetensors", *(f"--{k}={v}" for k, v in flags.items()))
    batches = load_file(work / "batches.safetensors")
    return [json.loads(line) for line in lines], batches["inputs"].long(), batches["targets"].long()


def train_there(folder, options, precision, rates, inputs, targets):
    """The same steps by PyTorch: (loss, norm, penalty) of each."""
    model = GPT2LMHeadModel.from_pretrained(folder)
    model.train()
    split = [[p for p in model.parameters() if (p.dim() >= 2) == decays] for decays in (True, False)]
    optimizer = torch.optim.AdamW(
        [dict(params=split[0], weight_decay=TRAIN["weight_decay"]), dict(params=split[1], weight_decay=0.0)],
        lr=1.0, betas=(TRAIN["beta1"], TRAIN["beta2"]), eps=TRAIN["adam_eps"], fused=True)
    accumulation, records = options.get("gradient_accumulation_steps", 1), []
    for step, rate in enumerate(rates):
        total = penalty = 0.0
        for i in range(step * accumulation, (step + 1) * accumulation):
            with torch.autocast("cpu", torch.bfloat16, enabled=precision == "bf16"):
                logits = model(inputs[i]).logits
            logits = logits.flatten(0, 1).float()
            loss = F.cross_entropy(logits, targets[i].flatten()) / accumulation
            z_loss = logits.logsumexp(1).square().mean() / accumulation
            (loss + options.get("penalty_weight", 0) * z_loss).backward()
            total, penalty = total + loss.item(), penalty + z_loss.item()
        norm = torch.nn.utils.clip_grad_norm_(model.parameters(), TRAIN["max_grad_norm"]).item()
        for group in optimizer.param_groups:
            group["lr"] = rate
        optimizer.step()
        optimizer.zero_grad()
        records.append((total, norm, penalty))
    return records


def check_training(folder, work, name, options, precision):
    here, inputs, targets = train_here(folder, work, options, precision)
    assert len(here) == STEPS, f"wanted {STEPS} steps, found {len(here)}"
    there = train_there(folder, options, precision, [r["lr"] for r in here], inputs, targets)
    relative = [abs(r["loss"] - loss) / loss for r, (loss, _, _) in zip(here, there)]
    norms = [abs(r["norm"] - norm) / norm for r, (_, norm, _) in zip(here, there)]
    if "penalty_weight" in options:
        relative += [abs(r["penalty"] - z) / z for r, (_, _, z) in zip(here, there)]
    worst = max(range(len(relative)), key=relative.__getitem__)
    clipped = sum(norm > TRAIN["max_grad_norm"] for _, norm, _ in there)
    print(f"{name} {precision}: loss {there[0][0]:.4f} -> {there[-1][0]:.4f}, worst relative difference "
          f"{relative[worst]:.2e} at step {worst % STEPS + 1}, median {sorted(relative)[len(relative) // 2]:.2e}; norms within "
          f"{max(norms):.2e}; clipped {clipped} of {STEPS}", flush=True)
    assert there[-1][0] < 0.75 * there[0][0], "the PyTorch loop did not learn"
    assert 0 < clipped, "clipping was never tried"
    return max(relative)


def main():
    for path, remedy in ((TOOL, f"ninja -C {BUILD} gpt2_parity_tool"), (TEXT, "set OCTAVO_TEST_DATA")):
        if not path.exists():
            print(f"wanted {path}, found none; {remedy}")
            sys.exit(1 if path == TOOL or os.environ.get("CI") == "true" else 0)
    torch.set_num_threads(1)  # the models are small: a second thread only waits
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    checks, worst = [], {"fp32": 0.0, "bf16": 0.0}
    with tempfile.TemporaryDirectory() as temporary:
        work = pathlib.Path(temporary)
        for name, case in CASES.items():
            folder = work / name
            model = random_model(case["model"], folder)
            for length in (64, 37, 1):
                checks.append(check_gradients(folder, model, case["model"], length))
                print("{} length {}: logit difference {:.2e}, worst cosine {:.8f}, worst norm difference {:.2e}; "
                      "logits have std {:.2f}".format(name, length, *checks[-1]), flush=True)
            for precision in worst:
                worst[precision] = max(worst[precision], check_training(folder, work, name, case["train"], precision))
    logit_diff, gradient_norm = max(c[0] for c in checks), max(c[2] for c in checks)
    worst_cosine = min(c[1] for c in checks)
    print(f"logit_diff={logit_diff:.2e} worst_cosine={worst_cosine:.8f} grad_norm_rel={gradient_norm:.2e} "
          f"fp32_rel={worst['fp32']:.2e} bf16_rel={worst['bf16']:.2e} steps={STEPS}")
    good = (logit_diff <= LOGIT_DIFF and worst_cosine >= COSINE and gradient_norm <= GRADIENT_NORM
            and worst["fp32"] <= FP32_REL and worst["bf16"] <= BF16_REL)
    sys.exit(0 if good else 1)


if __name__ == "__main__":
    main()
