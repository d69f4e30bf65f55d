#!/usr/bin/env -S sh -c 'exec "$(dirname "$0")/../../.deps/venv/bin/python" "$0" "$@"'
# test: label=conformance timeout=600 night=""
"""Exports of octavo, loaded by others.

Tiny random models (sizes that are and are not multiples of 128, tied and untied heads, Llama and Qwen2) and the real
SmolLM2-135M are exported in every format. Three things are checked of each:

1. Every weight. A format with rounding to nearest can move a weight by half the distance between its neighbours and no
   further: BF16 by 2^-8 of the power of two below it, E4M3 with scale s by s * 2^-4 of the power of two below w / s (at
   least s * 2^-10, below the smallest normal number). The largest magnitude of a block must be near the top code, which
   pins the scales. Scales in BF16 may be a little too small for the largest weight, which then saturates: by 2^-9 of 448,
   a part of the half step of 16 there. A tolerance of 2^-20 covers the two FP32 roundings (division and product).
   The decoding here is written from the formats' definitions, in NumPy and torch, without octavo's code.
2. Same weights, same logits: a model with the weights decoded here must have the logits of what the others load:
   AutoModelForCausalLM for BF16; its own dequantization on the CPU for fp8_block; compressed-tensors' decompression for
   fp8_channel. transformers 5.22 derives the block size from the grid's (rows / scale rows), so it refuses
   matrices whose sides are no multiples of 128 (or smaller), or misreads them where the division happens to be whole
   (333 rows as 3 blocks of 111); for those only this file's decoding is used, and how
   many folders that are is printed (own_decoding). compressed-tensors' layers also round their inputs to FP8, so the
   weights that it decompresses are put into a plain model.
3. The logits against the source's, within what the format allows: the bound of 1 is known for every weight, and what such
   errors do to the logits is measured: all weights are moved by their own bound with random signs, several times, and the
   RMS of the change of the logits is taken. Rounding errors are smaller than their bounds and as random as these signs, so
   the change that the export makes has to be smaller than the largest of these. (Errors spread evenly within their bounds
   have 1 / sqrt(3) of their size: logits_of_bound should be near 0.58 for weights that are not on a coarse grid.)

Exports of models that were tuned on chats: see export_chat.py."""
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import warnings

from model_parity import OCTAVO, randomize, read_folder, require

import torch
from transformers import (AutoModelForCausalLM, FineGrainedFP8Config, CompressedTensorsConfig, LlamaConfig, LlamaForCausalLM,
                          Qwen2Config, Qwen2ForCausalLM)

import export_chat
import smollm2_model

warnings.filterwarnings("ignore", message="You passed `quantization_config`")

FORMATS = ("bf16", "fp8_block", "fp8_channel")
SUFFIX = {"fp8_block": "_scale_inv", "fp8_channel": "_scale"}
SAME_WEIGHTS = 1e-4  # logits of two FP32 models with the same weights
ROUNDING = 2.0 ** -20
DRAWS = 4

SIZES = dict(num_hidden_layers=2, max_position_embeddings=256, bos_token_id=0, eos_token_id=1)
RAGGED = SIZES | dict(hidden_size=200, intermediate_size=333, num_attention_heads=5, num_key_value_heads=1, head_dim=40,
                      vocab_size=331)
EVEN = SIZES | dict(hidden_size=256, intermediate_size=384, num_attention_heads=4, num_key_value_heads=2, head_dim=64,
                    vocab_size=515)
CASES = {
    "llama_ragged_tied": (LlamaConfig, LlamaForCausalLM, RAGGED | dict(tie_word_embeddings=True)),
    "llama_ragged": (LlamaConfig, LlamaForCausalLM, RAGGED | dict(tie_word_embeddings=False, attention_bias=True)),
    "llama_even_tied": (LlamaConfig, LlamaForCausalLM, EVEN | dict(tie_word_embeddings=True)),
    "llama_even": (LlamaConfig, LlamaForCausalLM, EVEN | dict(tie_word_embeddings=False)),
    "qwen2_ragged": (Qwen2Config, Qwen2ForCausalLM, RAGGED | dict(tie_word_embeddings=True)),
    "qwen2_even": (Qwen2Config, Qwen2ForCausalLM, EVEN | dict(tie_word_embeddings=False)),
}


def octavo(*arguments):
    done = subprocess.run([OCTAVO, *map(str, arguments)], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    return done.returncode, done.stdout


def power_below(x):
    """The largest power of two at or below |x|; 0 for 0."""
    mantissa, exponent = torch.frexp(x.double())
    return torch.where(x == 0, torch.zeros((), dtype=torch.float64), torch.exp2((exponent - 1).double()))


def spread(scales, shape, block):
    """A scale for each element."""
    rows = torch.arange(shape[0]) // block[0]
    columns = torch.arange(shape[1]) // block[1]
    return scales.double()[rows][:, columns]


def decode(folder, form):
    """({name: FP32 weight}, {name: scale of each element}) from the files alone."""
    stored, weights, scales = read_folder(folder), {}, {}
    for name, tensor in stored.items():
        if form != "bf16" and name.endswith(SUFFIX[form]):
            continue
        scale = stored.get(name + SUFFIX[form]) if form != "bf16" else None
        if scale is None:
            assert tensor.dtype == torch.bfloat16, f"{name}: wanted BF16, found {tensor.dtype}"
            weights[name] = tensor.float()
            continue
        assert tensor.dtype == torch.float8_e4m3fn, f"{name}: wanted E4M3, found {tensor.dtype}"
        block = (128, 128) if form == "fp8_block" else (1, tensor.shape[1])
        grid = [-(-n // b) for n, b in zip(tensor.shape, block)]
        assert list(scale.shape) == grid, f"{name}: wanted scales {grid}, found {list(scale.shape)}"
        assert scale.dtype == (torch.float32 if form == "fp8_block" else torch.bfloat16)
        scales[name] = spread(scale, tensor.shape, block)
        weights[name] = (tensor.float() * scales[name].float())
        check_top_codes(name, tensor.float(), block)
    return weights, scales


def check_top_codes(name, codes, block):
    """The largest code of every block is 448, or its scale was not taken from its largest weight."""
    for top in range(0, codes.shape[0], block[0]):
        for left in range(0, codes.shape[1], block[1]):
            part = codes[top:top + block[0], left:left + block[1]].abs().max().item()
            assert part in (0, 448), f"{name}: the largest code of the block at {top}, {left} is {part}"


def bounds(source, scales):
    """How far rounding may move each weight."""
    limit = {}
    for name, weight in source.items():
        if name in scales:
            s = scales[name]
            step = torch.clamp(power_below((weight.double() / s).abs().clamp(max=448)), min=2.0 ** -6) * 2.0 ** -3
            limit[name] = s * step / 2
        else:
            limit[name] = power_below(weight) * 2.0 ** -8
    return limit


def check_weights(source, decoded, limit):
    """The largest share of its bound that a weight was moved by."""
    assert source.keys() == decoded.keys(), f"tensors differ: {source.keys() ^ decoded.keys()}"
    worst = 0.0
    for name, weight in source.items():
        error = (decoded[name].double() - weight.double()).abs()
        slack = weight.double().abs() * ROUNDING
        assert (error <= limit[name] + slack).all(), f"{name}: moved by more than the format's rounding"
        worst = max(worst, (error / (limit[name] + slack).clamp(min=1e-300)).max().item())
    return worst


def logits_with(model, weights, ids):
    """The logits of the model with other weights; a tied head follows the embedding."""
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            parameter.copy_(weights[name])
        return model(ids).logits


def others_logits(folder, form, model, ids):
    """The logits of the folder as transformers and compressed-tensors load it, in FP32."""
    options = {"bf16": {}, "fp8_block": dict(quantization_config=FineGrainedFP8Config(dequantize=True)),
               "fp8_channel": dict(quantization_config=CompressedTensorsConfig(dequantize=True))}[form]
    theirs, notes = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32, output_loading_info=True, **options)
    assert not any(notes[k] for k in ("missing_keys", "unexpected_keys", "mismatched_keys")), notes
    theirs = theirs.eval().float()  # transformers leaves what was not FP8 in the file's BF16
    if form == "fp8_channel":  # its layers also round their inputs to FP8: the weights go into a plain model
        return logits_with(model, {k: v for k, v in theirs.named_parameters() if not k.endswith("_scale")}, ids)
    with torch.no_grad():
        return theirs(ids).logits


def divides(shape):
    """Whether transformers finds the blocks of such a matrix: see above."""
    return all(n % 128 == 0 or n < 128 for n in shape)


def rms(x):
    return x.double().pow(2).mean().sqrt().item()


def check_config(folder, source_config, form):
    config = json.loads((folder / "config.json").read_text())
    assert config["dtype"] == config["torch_dtype"] == "bfloat16"
    assert config["eos_token_id"] == source_config.eos_token_id and config["bos_token_id"] == source_config.bos_token_id
    method = {"bf16": None, "fp8_block": "fp8", "fp8_channel": "compressed-tensors"}[form]
    assert config.get("quantization_config", {}).get("quant_method") == method


def check_again(folder, work):
    """An export reads as a source: exported once more in BF16 it has the weights decoded here, rounded."""
    again = work / f"{folder.name}-again"
    code, out = octavo("checkpoints", "export", folder, "--output", again)
    assert code == 0, out
    return read_folder(again)


def check_export(name, source_folder, form, model, ids, work, totals):
    folder = work / f"{name}-{form}"
    code, out = octavo("checkpoints", "export", source_folder, "--output", folder, "--export_format", form)
    assert code == 0, out
    verified, words = octavo("checkpoints", "verify", folder)
    assert verified == 0, words
    check_config(folder, model.config, form)
    source = {k: v.detach().clone() for k, v in model.named_parameters()}
    decoded, scales = decode(folder, form)
    limit = bounds(source, scales)
    share = check_weights(source, decoded, limit)

    with torch.no_grad():
        wanted = model(ids).logits
    ours = logits_with(model, decoded, ids)
    same = 0.0
    if form == "fp8_block" and not all(divides(v.shape) for k, v in decoded.items() if k in scales):
        totals["own_decoding"] += 1
    else:
        same = (others_logits(folder, form, model, ids) - ours).abs().max().item()
    generator = torch.Generator().manual_seed(1)
    moved = [rms(logits_with(model, {k: (v.double() + limit[k] * (2 * torch.randint(0, 2, v.shape, generator=generator) - 1))
                                     .float() for k, v in source.items()}, ids) - wanted) for _ in range(DRAWS)]
    change = rms(ours - wanted)
    logits_with(model, source, ids)  # puts the weights back
    if form != "bf16":
        for key, value in check_again(folder, work).items():
            assert torch.equal(value, decoded[key].bfloat16()), f"{key}: read here otherwise than decoded"
    print(f"{name} {form}: weight_error={share:.3f} of its bound, same_weights={same:.1e} logit_rms={change:.2e} "
          f"bound={max(moved):.2e} of logits {rms(wanted):.2f} | {out.strip().splitlines()[-1].split('; ')[-1]}", flush=True)
    totals["exports"] += 1
    totals["weight_error"] = max(totals["weight_error"], share)
    totals["same_weights"] = max(totals["same_weights"], same)
    totals["logits_of_bound"] = max(totals["logits_of_bound"], change / max(moved))


def main():
    require(OCTAVO)
    torch.set_num_threads(2)
    totals = dict(exports=0, weight_error=0.0, same_weights=0.0, logits_of_bound=0.0, own_decoding=0)
    with tempfile.TemporaryDirectory() as temporary:
        work = pathlib.Path(temporary)
        for seed, (name, (config, kind, sizes)) in enumerate(CASES.items()):
            model = randomize(kind(config(**sizes)), seed)
            model.save_pretrained(work / name)
            ids = torch.randint(0, sizes["vocab_size"], (2, 64), generator=torch.Generator().manual_seed(seed))
            for form in FORMATS:
                check_export(name, work / name, form, model, ids, work, totals)
        if smollm2_model.available() is None or smollm2_model.FOLDER.is_dir() or os.environ.get("CI") == "true":
            folder = smollm2_model.folder()
            model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
            ids = torch.arange(500, 564)[None] * 7
            for form in FORMATS:
                check_export("smollm2", folder, form, model, ids, work, totals)
        refusals = check_refusals(work)
        chats = export_chat.check(work / "chats")
    good = (totals["weight_error"] <= 1 and totals["same_weights"] <= SAME_WEIGHTS and totals["logits_of_bound"] <= 1)
    print(f"exports={totals['exports']} weight_error={totals['weight_error']:.4f} same_weights={totals['same_weights']:.2e} "
          f"logits_of_bound={totals['logits_of_bound']:.3f} own_decoding={totals['own_decoding']} refusals={refusals} "
          f"chat_exports={chats['chat_exports']} stops={chats['stops']} same_ids={chats['same_ids']}")
    sys.exit(0 if good else 1)


def check_refusals(work):
    """An output that is not empty, and a damaged folder."""
    source, full = work / "llama_even", work / "llama_even-bf16"
    before = sorted(full.iterdir())
    code, out = octavo("checkpoints", "export", source, "--output", full)
    assert code == 2 and "not an empty folder" in out and sorted(full.iterdir()) == before, out
    broken = work / "broken"
    broken.mkdir()
    config = json.loads((source / "config.json").read_text())
    (broken / "config.json").write_text(json.dumps(config | {"intermediate_size": 400}))
    (broken / "model.safetensors").hardlink_to(source / "model.safetensors")
    code, out = octavo("checkpoints", "verify", broken)
    assert code == 5 and "mlp.gate_proj" in out and "layers.1" in out, out
    code, out = octavo("checkpoints", "export", broken, "--output", work / "never")
    assert code == 5 and not (work / "never").exists(), out
    assert not list(work.glob(".tmp-*")), "a temporary folder was left"
    return 3


if __name__ == "__main__":
    main()
