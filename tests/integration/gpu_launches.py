#!/usr/bin/env -S sh -c 'exec "$(dirname "$0")/../../.deps/venv/bin/python" "$0" "$@"'
# test: label=integration timeout=300 gate=""
"""What a step asks of a GPU, counted: kernels, GEMMs, memsets, copies and waits of the fourth step of a few models on the fake CUDA
device, beside gpu_launches.json. No clock is read, so one launch more is seen on any machine. More of anything fails; less is printed,
and is to be taken over.

usage: gpu_launches.py [--write]    --write: takes the numbers over
Last line: cases=N failed=0 fewer=N
"""
import dataclasses
import json
import pathlib
import sys
import tempfile

import fake_cuda
import gpu_cases
from common import BUILD, ROOT
from gpu_cases import Case

STEP = BUILD / "bin" / "step_bench"
KEPT = pathlib.Path(__file__).with_suffix(".json")
COUNTED = ("launches", "gemms", "memsets", "to_device", "to_host", "host_waits", "graph_launches")
MIXTURE = ("--dataset_weights", "0.7,0.3", "--max_steps", "8")
ACCUMULATION = ("--gradient_accumulation_steps", "3")
LOW_BIT = ("--master_dtype", "bf16", "--moment_dtype", "fp8", "--gradient_dtype", "bf16", "--gradient_checkpointing", "true")


@dataclasses.dataclass(frozen=True)
class Counted(Case):
    more: tuple = ()

    @property
    def name(self):
        return " ".join([super().name, *self.more])

    def flags(self, work, *more):
        flags = super().flags(work, *self.more, *more)
        if MIXTURE[0] in flags:
            flags[flags.index("--dataset") + 1] = f"{work / 'text.txt'},{work / 'other.txt'}"
        return flags


def counted_cases():
    cases = [Counted(90, model, "", "", "all") for model in gpu_cases.MODELS]
    cases += [Counted(90, model, "delayed", backend, "all") for model in ("gpt2", "llama") for backend in gpu_cases.BACKENDS]
    cases += [Counted(90, "llama", recipe, "te", "all") for recipe in ("current", "blockwise")]
    cases += [Counted(100, "llama", recipe, "te", "all") for recipe in ("delayed", "blockwise", "mxfp8")]
    cases += [Counted(120, "qwen2", "delayed", "te", "all"), Counted(89, "llama", "delayed", "te", "adapters"),
              Counted(90, "llama", "delayed", "te", "recomputed"), Counted(90, "llama", "", "", "all", LOW_BIT),
              Counted(90, "llama", "", "", "all", ("--deterministic", "true"))]
    # Beside those without a mixture: what the losses of its sources take.
    cases += [Counted(90, model, "", "", "all", MIXTURE) for model in ("gpt2", "llama")]
    cases += [Counted(90, "llama", "", "", "all", ACCUMULATION + more) for more in ((), MIXTURE)]
    return cases


def main():
    fake_cuda.require_libraries()
    with tempfile.TemporaryDirectory(prefix="octavo-gpu-launches-") as folder:
        work = pathlib.Path(folder)
        gpu_cases.prepare(work)
        (work / "other.txt").write_text((ROOT / "docs" / "reference" / "metrics.md").read_text())
        results = gpu_cases.run(work, STEP, ["cases", 4], counted_cases())
    found = {}
    for case, result in results:
        if "error" in result:
            sys.exit(f"{case.name}: {result['error'][:3000]}")
        found[case.name] = {key: result["steps"][-1][key] for key in COUNTED}
    if "--write" in sys.argv:
        KEPT.write_text(json.dumps(found, indent=1) + "\n")
    kept = json.loads(KEPT.read_text())
    failed = fewer = 0
    for name in sorted(set(kept) | set(found)):
        before, now = kept.get(name, {}), found.get(name, {})
        more = {key: (before.get(key), now.get(key)) for key in COUNTED if before.get(key) is None or now.get(key) is None or
                now[key] > before[key]}
        less = {key: (before[key], now[key]) for key in COUNTED if key not in more and now[key] < before[key]}
        print(f"{'FAILED' if more else 'fewer ' if less else 'ok    '} {name}: {now}"
              f"{f'; more than kept: {more}' if more else ''}{f'; less than kept: {less}' if less else ''}")
        failed += bool(more)
        fewer += bool(less)
    if fewer:
        print("take the smaller numbers over: tests/integration/gpu_launches.py --write")
    print(f"cases={len(found)} failed={failed} fewer={fewer}")
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
