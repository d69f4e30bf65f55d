#!/usr/bin/env -S sh -c 'exec "$(dirname "$0")/../../.deps/venv/bin/python" "$0" "$@"'
# test: label=conformance timeout=1800 gate="--short" night="" measures="src/model_config src/models src/nn src/engine"
"""Qwen3-MoE of octavo against transformers: routers, experts, the loss that balances them, layers without experts. Every FP8
recipe trains a small model to BF16's loss."""
import torch
from transformers import Qwen3MoeConfig, Qwen3MoeForCausalLM

from llama_family import DAMAGED, REFUSED, SHORT, build, check_whole, edit, require, run_family, save, setting
from model_parity import TOOL
from training_parity import TEXT, train_here, train_there

SIZES = dict(num_hidden_layers=2, max_position_embeddings=256, intermediate_size=160, head_dim=16, num_attention_heads=4,
             num_key_value_heads=2)
THETA = dict(rope_type="default", rope_theta=1e6)
CASES = {
    "plain": dict(config=SIZES | dict(
        hidden_size=64, vocab_size=257, num_experts=8, num_experts_per_tok=2, moe_intermediate_size=48,
        norm_topk_prob=True, rope_parameters=THETA)),
    "trained": dict(config=SIZES | dict(
        num_hidden_layers=3, hidden_size=64, vocab_size=272, num_experts=8, num_experts_per_tok=3,
        moe_intermediate_size=64, norm_topk_prob=True, tie_word_embeddings=True, rope_parameters=THETA, mlp_only_layers=[1],
        output_router_logits=True, router_aux_loss_coef=0.02, use_sliding_window=True, sliding_window=24)),
    # Weights that do not add up to 1, every second layer, more experts than tokens fill.
    "sparse": dict(config=SIZES | dict(
        num_hidden_layers=4, hidden_size=96, vocab_size=331, num_experts=40, num_experts_per_tok=4, moe_intermediate_size=32,
        norm_topk_prob=False, decoder_sparse_step=2, attention_bias=True, output_router_logits=True, router_aux_loss_coef=0.5,
        rope_parameters=THETA), dtype="bf16", max_shard_size="90KB"),
    "all_active": dict(config=SIZES | dict(
        hidden_size=64, vocab_size=300, num_experts=3, num_experts_per_tok=3, moe_intermediate_size=144, norm_topk_prob=False,
        output_router_logits=True, rms_norm_eps=1e-3, rope_parameters=THETA), dtype="bf16"),
}
REFUSALS = [
    setting("num_experts", 0, DAMAGED),
    setting("num_experts_per_tok", 9, DAMAGED),
    setting("num_experts_per_tok", 0, DAMAGED),
    setting("moe_intermediate_size", 0, DAMAGED),
    setting("router_aux_loss_coef", -1.0, DAMAGED),
    setting("norm_topk_prob", "yes", DAMAGED),
    setting("decoder_sparse_step", 0, DAMAGED),
    setting("decoder_sparse_step", 3),
    ("decoder_sparse_step", lambda config: config.update(mlp_only_layers=[0, 1]), REFUSED),
    setting("mlp_only_layers", [7]),
    setting("mlp_only_layers", "none"),
    setting("layer_types", ["sliding_attention", "full_attention"]),
    setting("shared_expert_intermediate_size", 64),
    setting("n_shared_experts", 1),
    setting("scoring_func", "sigmoid"),
    setting("routed_scaling_factor", 2.5),
    setting("router_jitter_noise", 0.1),
    setting("n_group", 4),
    setting("first_k_dense_replace", 1),
]
RECIPES = ("delayed", "current", "rowwise", "blockwise", "mxfp8")
FP8_REL, SEEDS = 0.01, (1, 2, 3)
KEYS_REL = 1e-4  # of gradient norms in FP32
# Before rounding makes a token choose another expert: from then on two runs differ by more than rounding.
KEY_STEPS, LOAD_STEPS = 2, 3
BRIEF = dict(max_seq_length=64, warmup_steps=2)  # runs of a few steps
# Sides that every recipe takes.
FP8_CASE = dict(config=dict(
    num_hidden_layers=2, max_position_embeddings=256, hidden_size=128, intermediate_size=128, head_dim=32,
    num_attention_heads=4, num_key_value_heads=2, vocab_size=257, num_experts=4, num_experts_per_tok=2,
    moe_intermediate_size=128, norm_topk_prob=True, output_router_logits=True, rope_parameters=THETA))


def last_loss(folder, work, steps, seed, precision, **options):
    """The mean over the last ten steps: of a single one the batch says more than the precision."""
    options |= dict(max_seq_length=64, batch_size=4, seed=seed)
    losses = [r["loss"] for r in train_here(folder, work, steps, options, precision)[0]]
    assert losses[-1] < 0.95 * losses[0], "nothing was learned"
    return sum(losses[-10:]) / 10


def check_recipes(work):
    """The largest relative difference of the last losses in FP8 from BF16's, over recipes and seeds."""
    steps, worst = 40 if SHORT else 100, 0.0
    for seed in SEEDS[:1] if SHORT else SEEDS:
        folder = work / f"recipes-{seed}"
        save(build(Qwen3MoeConfig, Qwen3MoeForCausalLM, FP8_CASE, seed), FP8_CASE, folder)
        wanted = last_loss(folder, work, steps, seed, "bf16")
        found = {r: last_loss(folder, work, steps, seed, "fp8", fp8_recipe=r) for r in RECIPES}
        print(f"seed {seed}: bf16 {wanted:.4f}", *(f"{r} {loss:.4f}" for r, loss in found.items()), flush=True)
        assert all(loss != wanted for loss in found.values()), "FP8 did not run"
        worst = max(worst, *(abs(loss - wanted) / wanted for loss in found.values()))
    return worst


def norms(folder, work, **keys):
    return [r["norm"] for r in train_here(folder, work, KEY_STEPS, dict(BRIEF, batch_size=4) | keys, "fp32")[0]]


def check_keys(work):
    """The gradients with the losses of the routers, each alone and both, against PyTorch's: the largest relative difference of the
    norms of the first steps. By the key the loss that balances experts is what the fields of config.json make it."""
    folder, worst, first = work / "plain", 0.0, [norms(work / "plain", work)[0]]
    for keys in (dict(router_aux_loss_coef=0.5), dict(router_z_loss_coef=0.1), dict(router_aux_loss_coef=0.5, router_z_loss_coef=0.1)):
        options = dict(BRIEF, batch_size=4) | keys
        here, inputs, targets = train_here(folder, work, KEY_STEPS, options, "fp32")
        there = train_there(folder, options, "fp32", [r["lr"] for r in here], inputs, targets)
        worst = max(worst, *(abs(r["norm"] / norm - 1) for r, (_, norm, _) in zip(here, there)))
        first.append(here[0]["norm"])
    assert all(abs(a / b - 1) > 5 * KEYS_REL for i, a in enumerate(first) for b in first[:i]), f"a key does nothing: {first}"
    balanced = edit(folder, work / "balanced", lambda config: config.update(output_router_logits=True, router_aux_loss_coef=0.5))
    assert norms(balanced, work) == norms(folder, work, router_aux_loss_coef=0.5), "the key and the file differ"
    assert norms(folder, work) == norms(balanced, work, router_aux_loss_coef=0), "the key did not take the file's loss away"
    return worst


def load_of(result, config):
    """The metrics of a step, counted in transformers' router logits."""
    active, tokens = config["num_experts_per_tok"], result.router_logits[0].shape[0]
    rows = torch.stack([torch.bincount(logits.topk(active).indices.flatten(), minlength=config["num_experts"])
                        for logits in result.router_logits]).double()
    found = {"fullest_share": rows.max() / tokens, "emptiest_share": rows.min() / tokens,
             "largest_load": (rows.amax(1) / rows.mean(1)).max(), "idle_experts": (rows == 0).sum(),
             "busiest_share": (rows.topk(active).values.sum(1) / rows.sum(1)).max()}
    return {f"moe/{name}": value.item() for name, value in found.items()}


def check_loads(work):
    """How many metrics of the load are as counted in the first steps of a run, of how many."""
    folder, options, counted = work / "sparse", dict(BRIEF, batch_size=2), []
    here, inputs, targets = train_here(folder, work, LOAD_STEPS, options, "fp32")
    train_there(folder, options, "fp32", [r["lr"] for r in here], inputs, targets,
                seen=lambda result: counted.append(load_of(result, CASES["sparse"]["config"])))
    assert counted[0]["moe/fullest_share"] > 2 * counted[0]["moe/emptiest_share"], "an even load shows nothing"
    pairs = [(name, found[name], value) for found, wanted in zip(here, counted) for name, value in wanted.items()]
    for name, found, wanted in pairs:
        if abs(found - wanted) > 1e-9:
            print(f"{name}: wanted {wanted}, found {found}")
    return sum(abs(found - wanted) <= 1e-9 for _, found, wanted in pairs), len(pairs)


def extra(work):
    words, good = check_whole(work, "trained", Qwen3MoeConfig, Qwen3MoeForCausalLM, CASES["trained"])
    recipes, keys = check_recipes(work), check_keys(work)
    right, loads = check_loads(work)
    return (f"{words} recipes_rel={recipes:.2e} keys_rel={keys:.2e} loads={right}/{loads}",
            good and recipes <= FP8_REL and keys <= KEYS_REL and right == loads)


if __name__ == "__main__":
    require(TOOL, TEXT)
    run_family(Qwen3MoeConfig, Qwen3MoeForCausalLM, CASES, REFUSALS, extra)
