#!/usr/bin/env -S sh -c 'exec "$(dirname "$0")/../.deps/venv/bin/python" "$0" "$@"'
# bench:
"""Fine-tuning SmolLM2-135M on GSM8K in BF16: `octavo train` and a plain transformers + PyTorch loop take turns, as
beside_transformers.py has it, on the same packed batches."""
import os
import pathlib
import sys
import tempfile

from beside_transformers import TARGET_LOSS, Comparison, require
from step_process import ROOT, StepProcess

sys.path.insert(0, str(ROOT / "tests" / "conformance"))
import smollm2_model

ROWS = smollm2_model.DATA / "data/sft/gsm8k_train.jsonl"
BATCH, LENGTH, TURNS = int(os.environ.get("BATCH", "4")), 512, int(os.environ.get("TURNS", "5"))
TARGET_RATIO = 1.4


def main():
    require(ROWS)
    folder = smollm2_model.folder()
    with tempfile.TemporaryDirectory(prefix="octavo-sft-") as temporary:
        found = Comparison(folder, dict(tokenizer=folder, dataset=ROWS), BATCH, LENGTH, turns=TURNS).run(pathlib.Path(temporary))
    ours, theirs = found.rates()
    print(f"ratio={found.ratio():.3f} octavo_tok_s={ours:.0f} transformers_tok_s={theirs:.0f} loss_rel={found.loss_rel():.2e} "
          f"steps={found.compared()} turns={TURNS} batch={BATCH}x{LENGTH} taken_again={StepProcess.taken_again}")
    return 0 if found.ratio() >= TARGET_RATIO and found.loss_rel() <= TARGET_LOSS else 1


if __name__ == "__main__":
    sys.exit(main())
