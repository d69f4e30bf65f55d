"""Every architecture: {8.9, 9.0, 10.0, 10.3, 12.0} x {GPT-2, Llama, Qwen2.5} x {BF16, every recipe by both backends} x {all weights,
adapters, recomputed}, and what must run in each. te_calls.py, gpu_gemms.py, gpu_step.py, gpu_graph.py and gpu_launches.py take their
cases from here and run them on the fake CUDA device, many in one process."""
import dataclasses
import json
import subprocess

import fake_cuda
from common import ROOT

CAPABILITIES = (89, 90, 100, 103, 120)  # that have FP8
SHORT_CAPABILITIES = (90, 100, 120)     # one for each way that GEMMs are called
RECIPES = ("delayed", "current", "rowwise", "blockwise", "mxfp8")
ALL_RECIPES = (*RECIPES, "nvfp4")  # whose draws are numbers of the host: no graphs of it
BACKENDS = ("te", "aten")
MODELS = ("gpt2", "llama", "qwen2")
WAYS = ("all", "adapters", "recomputed")
# First and last compute capability with kernels for a recipe; written down again, not read from src/fp8.
NEWEST = 999
TE = {"delayed": (89, NEWEST), "current": (89, NEWEST), "blockwise": (90, 119), "mxfp8": (100, 119), "nvfp4": (100, 103)}
ATEN = {"delayed": (89, NEWEST), "current": (89, NEWEST), "rowwise": (90, NEWEST), "blockwise": (90, 90), "mxfp8": (100, 119)}
SIZES = {"hidden_size": 256, "intermediate_size": 512, "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2,
         "vocab_size": 512, "max_position_embeddings": 2048, "rms_norm_eps": 1e-5, "rope_theta": 10000.0, "hidden_act": "silu"}
CONFIGS = {"llama": SIZES | {"model_type": "llama", "architectures": ["LlamaForCausalLM"], "head_dim": 64, "tie_word_embeddings": False,
                             "attention_bias": False, "mlp_bias": False},
           "qwen2": SIZES | {"model_type": "qwen2", "architectures": ["Qwen2ForCausalLM"], "tie_word_embeddings": True,
                             "use_sliding_window": False}}


def has(kernels, capability, recipe):
    first, last = kernels.get(recipe, (NEWEST, 0))
    return first <= capability <= last


def what_runs(capability, recipe, backend):
    """Recipe and backend that must run, ("", "") for BF16."""
    if not recipe:
        return "", ""
    preferred, other = ((TE, "te"), (ATEN, "aten")) if backend == "te" else ((ATEN, "aten"), (TE, "te"))
    for kernels, name in (preferred, other):
        if has(kernels, capability, recipe):
            return recipe, name
    # On a GPU without them mxfp8 and nvfp4 become delayed, and every other recipe BF16.
    return ("delayed", backend) if recipe in ("mxfp8", "nvfp4") else ("", "")


@dataclasses.dataclass(frozen=True)
class Case:
    capability: int
    model: str
    recipe: str   # "": BF16
    backend: str  # "" for BF16
    way: str

    @property
    def name(self):
        return f"{self.capability / 10} {self.model} {self.recipe or 'BF16'} {self.backend} {self.way}".replace("  ", " ")

    @property
    def runs(self):
        return what_runs(self.capability, self.recipe, self.backend)

    @property
    def attention(self):
        return "aten/cudnn" if self.capability in (90, 100, 103) else "aten/flash"

    def flags(self, work, *more):
        model = ["custom", "--n_layer", 2, "--n_head", 4, "--n_embd", 256] if self.model == "gpt2" else [work / self.model]
        flags = ["--model_name", *model, "--dataset", work / "text.txt", "--tokenizer", "bytes", "--data_cache", work / "data",
                 "--batch_size", 2, "--max_seq_length", 128, "--device", "cuda"]
        if self.recipe:
            flags += ["--mixed_precision", "fp8", "--fp8_recipe", self.recipe, "--fp8_backend", self.backend, "--fp8_stats_freq", 0]
        if self.way == "adapters":
            flags += ["--lora_rank", 8]
        if self.way == "recomputed":
            flags += ["--gradient_checkpointing", "true"]
        return [str(flag) for flag in [*flags, *more]]


def all_cases(recipes=RECIPES):
    kinds = [("", "")] + [(recipe, backend) for recipe in recipes for backend in BACKENDS]
    return [Case(capability, model, recipe, backend, way) for capability in CAPABILITIES for model in MODELS
            for recipe, backend in kinds for way in WAYS]


def short_cases(recipes=RECIPES):
    """Each capability, recipe and backend once, with models and ways in turn."""
    chosen, turn = [], 0
    for case in all_cases(recipes):
        if case.capability in SHORT_CAPABILITIES and (case.model, case.way) == (MODELS[0], WAYS[0]):
            chosen.append(dataclasses.replace(case, model=MODELS[turn % 3], way=WAYS[turn // 3 % 3]))
            turn += 1
    return chosen


def prepare(work):
    """What the flags of cases name."""
    (work / "text.txt").write_text((ROOT / "docs" / "reference" / "configuration.md").read_text() * 4)
    for model, config in CONFIGS.items():
        (work / model).mkdir(exist_ok=True)
        (work / model / "config.json").write_text(json.dumps(config))


def run(work, tool, words, cases, *more):
    """A line of JSON for each case, in their order: one process for each compute capability."""
    found = {}
    for capability in sorted({case.capability for case in cases}):
        chosen = [case for case in cases if case.capability == capability]
        lines = "".join(json.dumps(case.flags(work, *more)) + "\n" for case in chosen)
        done = subprocess.run([tool, *map(str, words)], input=lines, cwd=work, text=True, capture_output=True, check=False,
                              env=fake_cuda.environment(capability=capability) | {"OMP_WAIT_POLICY": "passive"})
        answers = [json.loads(line) for line in done.stdout.splitlines() if line[:1] in ("{", "[")]
        said = f"the process ended with {done.returncode} before this case: {done.stderr[-1500:]}"
        answers += [{"error": said}] * (len(chosen) - len(answers))
        found |= dict(zip(chosen, answers))
    return [(case, found[case]) for case in cases]
