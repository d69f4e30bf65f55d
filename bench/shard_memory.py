#!/usr/bin/env -S sh -c 'exec "$(dirname "$0")/../.deps/venv/bin/python" "$0" "$@"'
# bench:
"""What a rank keeps between two steps (parameters, gradients, optimizer state), measured by the allocator
(memory/kept_bytes of metrics.jsonl), against the formula: of each parameter 2 bytes to compute with,
4 of the master, 8 of the moments and 4 of the gradient, divided by the ranks where the mode divides them.

Four ranks over Gloo and one alone. fsdp_full keeps at most 0.28 of what one rank does; every mode is within 2% of its
formula.

Last line: modes=N fsdp_full=X zero1=X zero1_formula=X worst_percent=X failed=0
"""
import json
import pathlib
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "tests/integration"))
import ranks  # noqa: E402

RANKS, STEPS = 4, 8
MOST_FULL, MOST_ERROR = 0.28, 0.02
# Large enough that what is no state is small beside it, with sizes that the allocator's size classes do not round.
MODEL = {"hidden_size": 512, "intermediate_size": 2048, "num_hidden_layers": 4, "num_attention_heads": 8,
         "num_key_value_heads": 4, "vocab_size": 4096}
WEIGHT, MASTER, MOMENTS, GRADIENT = 2, 4, 8, 4
DIVIDED = {"ddp": 0, "zero1": MASTER + MOMENTS, "zero2": MASTER + MOMENTS + GRADIENT,
           "fsdp_full": WEIGHT + MASTER + MOMENTS + GRADIENT}


def kept(job):
    """After the step with the least: zero1's and zero2's gathers of new weights are under way then, with buffers of their
    own for as long as they take."""
    lines = (job.path / "runs" / "run" / "metrics.jsonl").read_text().splitlines()
    return min(record["memory/kept_bytes"] for record in map(json.loads, lines) if "memory/kept_bytes" in record)


def main():
    shares, worst, failed = {}, 0.0, 0
    whole = WEIGHT + MASTER + MOMENTS + GRADIENT
    with tempfile.TemporaryDirectory(prefix="octavo-shards-") as folder:
        work = pathlib.Path(folder)
        ranks.prepared(work)
        model = ranks.write_model(work / "wide", **MODEL)
        alone = kept(ranks.Job(work / "one", model, steps=STEPS, batch_size=RANKS, mixed_precision="bf16").finish(1))
        print(f"{'one rank':12}{alone:14.0f} bytes")
        for mode, divided in DIVIDED.items():
            job = ranks.Job(work / mode, model, steps=STEPS, batch_size=1, mixed_precision="bf16", sharding_mode=mode)
            found = kept(job.finish(RANKS))
            formula = (whole - divided + divided / RANKS) / whole
            shares[mode] = found / alone
            error = abs(shares[mode] - formula) / formula
            worst = max(worst, error)
            failed += error > MOST_ERROR
            print(f"{mode:12}{found:14.0f} bytes, {shares[mode]:.4f} of one rank's; formula {formula:.4f}, "
                  f"{100 * error:.2f}% off", flush=True)
    failed += shares["fsdp_full"] > MOST_FULL
    zero1 = (whole - DIVIDED["zero1"] * (1 - 1 / RANKS)) / whole
    print(f"modes={len(shares)} fsdp_full={shares['fsdp_full']:.4f} zero1={shares['zero1']:.4f} zero1_formula={zero1:.4f} "
          f"worst_percent={100 * worst:.2f} failed={failed}")
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
