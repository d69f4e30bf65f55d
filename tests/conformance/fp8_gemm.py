#!/usr/bin/env -S sh -c 'exec "$(dirname "$0")/../../.deps/venv/bin/python" "$0" "$@"'
# test: label=conformance timeout=600 gate="" measures="src/fp8 src/engine src/nn"
"""FP8 GEMMs of a linear layer against FP64, its gradients against a NumPy model of the recipe, its SQNR beside torchao's.

1. GEMMs. Every operand is quantized here by the rules of fp8_recipes.py (NumPy and ml_dtypes); what the program quantized
   must be the same, bit for bit. Their GEMM in FP64 is the truth v. Wanted: at least 99.9% of the BF16
   results are v rounded to nearest even, none is more than 1 ulp outside the BF16 roundings of v - B and v + B, and the FP32
   weight gradient is within B, where B is what FP32 sums explain. For K terms a_i b_i, added in any order, that is
   K 2^-24 sum|a_i b_i| if all roundings conspire, and in the order of sqrt(K) 2^-24 sum|a_i b_i| as they are (Higham and
   Mary, 2019). B = (2 sqrt(K) + 3) 2^-24 sum|a_i b_i|; 3: the product of the scales, their application and the bias.
2. Layers. nn::linear and nn::linear_gelu in training: three steps of two micro-batches, so that factors of delayed come from
   history, which moves on after every micro-batch in Transformer Engine's order, and gradients accumulate. The same recipe is
   stated in NumPy in fp8_gemm_model.py.
   Without GELU the bounds are those of 1. With it, a BF16 rounding that falls the other way may change an FP8 code: the
   difference is measured against the model's norm.
3. SQNR, 20 log10(|v| / |v - result|) with v the FP64 GEMM of the numbers before quantizing, beside torchao 0.18: the least
   that its tests ask for, and what it reaches itself on the same data (emulated, on a CPU).
"""
import collections
import dataclasses
import logging
import os
import pathlib
import subprocess
import sys
import tempfile
import time
import warnings

os.environ.setdefault("OMP_WAIT_POLICY", "passive")  # spinning threads crawl on a machine that is shared

import numpy as np
import torch
from safetensors.torch import load_file, save_file

import fp8_formats
import fp8_recipes as rules
from fp8_gemm_model import (F32, F64, Layer, Model, Wanted, accumulation_bound, bf16, exact_gemm, numbers, gemms_of,
                            quantized, round_bf16, ulp_bf16)

TOOL = fp8_formats.BUILD / "bin" / "fp8_gemm_tool"

CASES = [(recipe, choice) for recipe in ("delayed", "current") for choice in rules.CHOICES]
CASES += [(recipe, "e4m3") for recipe in ("rowwise", "blockwise", "mxfp8")]
# (tokens, inputs, outputs), with bias, of which numbers: small ones with ragged blocks, and the four layers of a GPT-2 block.
SHAPES = [((16, 16, 16), True, "wide"), ((7, 33, 129), False, "wide"), ((160, 128, 256), True, "wide"),
          ((256, 768, 2304), True, "realistic"), ((256, 768, 768), True, "realistic"),
          ((256, 768, 3072), False, "realistic"), ((256, 3072, 768), False, "realistic")]
LAYER_SHAPE = (160, 256, 384)  # legal in every recipe; the last block of 128 tokens is short
STEPS, MICRO_BATCHES = 3, 2

LEAST_CORRECT = 0.999
MOST_EXCESS = 1.0  # BF16 ulps
MOST_GELU_DIFFERENCE = 5e-4  # a forgotten rounding to BF16 makes 2e-3
MOST_BEHIND = 0.5  # dB below torchao on the same numbers


# ---- the judgement of results


def distinct_share(matrix):
    """Of its numbers, when rows or columns repeat: torchao's gradient is one row 256 times, and so is what follows from it."""
    share = 1.0
    for axis, length in enumerate(matrix.shape):
        share *= np.unique(matrix, axis=axis).shape[axis] / length
    return share


class Count:
    """Results of one kind: BF16 results in the first line of fields, FP32 results in the second."""

    def __init__(self):
        self.results = self.correct = self.certain = self.certain_correct = self.independent = 0
        self.excess = self.off = 0.0
        self.sums, self.used = 0, 0.0

    def bf16(self, found, exact, bound):
        nearest, ulp = round_bf16(exact), ulp_bf16(exact)
        counted = exact != 0  # a zero that is a zero proves nothing; another number in its place is judged by B
        correct, certain = counted & (found == nearest), counted & (bound < 0.5 * ulp)
        outside = np.maximum(found - round_bf16(exact + bound), round_bf16(exact - bound) - found)
        self.results += int(counted.sum())
        self.independent += int(counted.sum() * distinct_share(found))
        self.correct += int(correct.sum())
        self.certain += int(certain.sum())
        self.certain_correct += int((correct & certain).sum())
        self.excess = worse(self.excess, outside / ulp)
        self.off = worse(self.off, np.abs(found - nearest) / ulp)

    def fp32(self, found, exact, bound):
        wrong, bound = np.abs(found - exact), bound + 2.0 ** -24 * np.abs(exact)  # its own rounding
        self.sums += found.size
        self.used = worse(self.used, np.where(wrong > 0, wrong / np.where(bound > 0, bound, 2.0 ** -149), 0))

    def add(self, other):
        for name in ("results", "independent", "correct", "certain", "certain_correct", "sums"):
            setattr(self, name, getattr(self, name) + getattr(other, name))
        for name in ("excess", "off", "used"):
            setattr(self, name, worse(getattr(self, name), getattr(other, name)))

    def share(self):
        return self.correct / self.results if self.results else 1.0

    def line(self):
        parts = []
        if self.results:
            sure = self.certain_correct / max(self.certain, 1)
            parts.append(f"{self.results} BF16 results, {100 * self.share():.4f}% correctly rounded ({100 * sure:.4f}% of the "
                         f"{100 * self.certain / self.results:.1f}% with B < ulp / 2), at most {self.off:.3g} ulp off and "
                         f"{self.excess:.3g} ulp beyond B")
        if self.sums:
            parts.append(f"{self.sums} FP32 results, off by at most {self.used:.3g} B")
        return "; ".join(parts)


def worse(so_far, values):
    """The larger; NaN, which no comparison sees, is the worst of all."""
    worst = float(np.max(values))
    return max(so_far, np.inf if np.isnan(worst) else worst)


def different(wanted, found):
    """How many numbers differ."""
    if wanted.size != found.size:
        return max(wanted.size, found.size)
    return int(np.sum(wanted.astype(F64).ravel() != found.astype(F64).ravel()))


# ---- the program


def tensor(values, kind=None):
    made = torch.from_numpy(np.ascontiguousarray(values, F32))
    return made if kind is None else made.to(kind)


def array(made):
    return made.float().numpy() if made.dtype == torch.bfloat16 else made.numpy()


class Tool:
    def __init__(self, folder):
        self.folder = pathlib.Path(folder)
        self.process = subprocess.Popen([TOOL], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def run(self, job, tensors):
        source, result = self.folder / "in.safetensors", self.folder / "out.safetensors"
        save_file(tensors, source)
        self.process.stdin.write(f"{job} {source} {result}\n")
        self.process.stdin.flush()
        answer = self.process.stdout.readline()
        if answer != "done\n":
            sys.exit(f"{TOOL.name}: {job}: wanted 'done', found {answer!r}; exit code {self.process.wait()}")
        return {name: array(made) for name, made in load_file(result).items()}

    def close(self):
        self.process.stdin.close()
        assert self.process.wait() == 0


# ---- 1: GEMMs


class Gemms:
    """All recipes on the numbers of one layer, and what they must give."""

    def __init__(self, tool, layer, with_bias, headroom):
        self.tool, self.layer, self.with_bias, self.headroom = tool, layer, with_bias, headroom
        self.roles = dict(zip(rules.ROLES, (layer.x, layer.w, layer.dy)))
        self.largest = {role: np.abs(values).max() for role, values in self.roles.items()}
        self.recipe, self.stated = None, {}

    def factor(self, recipe, choice, role, direction):
        """Delayed: as if the largest magnitude of earlier steps had been `headroom` times today's."""
        if recipe != "delayed":
            return F32(1)
        return F32(fp8_formats.limit(rules.stated_format(choice, role, direction)) / (self.headroom * self.largest[role]))

    def operand(self, recipe, choice, role, direction):
        if recipe != self.recipe:  # only the formats of one recipe share operands
            self.recipe, self.stated = recipe, {}
        key = (role, direction, rules.stated_format(choice, role, direction))
        if key not in self.stated:
            self.stated[key] = quantized(recipe, choice, role, direction, self.roles[role],
                                         self.factor(recipe, choice, role, direction))
        return self.stated[key]

    def run(self, recipe, choice):
        """What the program gives: y, dx, dw and the operands."""
        sent = {name: tensor(getattr(self.layer, name), torch.bfloat16) for name in ("x", "w", "dy")}
        for role in rules.ROLES:
            for direction in rules.DIRECTIONS:
                sent[f"factor.{role}.{direction}"] = tensor([self.factor(recipe, choice, role, direction)])
        if self.with_bias:
            sent["bias"] = tensor(self.layer.bias)
        return self.tool.run(f"gemms {recipe} {choice}", sent)

    def operand_differences(self, recipe, choice, found):
        """Codes, scales and values that are not those stated here; every copy must be there in some form."""
        count = 0
        for role in rules.ROLES:
            for direction in rules.DIRECTIONS:
                operand = self.operand(recipe, choice, role, direction)
                copy = {kind: found.get(f"{role}.{direction}.{kind}") for kind in ("codes", "scales", "values")}
                assert copy["codes"] is not None or copy["values"] is not None, f"{role} {direction}: not quantized"
                if copy["scales"].dtype == np.uint8:
                    copy["scales"] = np.ldexp(1.0, copy["scales"].astype(int) - 127)  # E8M0
                wanted = {"codes": operand.codes, "scales": operand.decode, "values": operand.stored}
                count += sum(different(wanted[kind], got) for kind, got in copy.items() if got is not None)
        return count

    def judge(self, recipe, choice, found):
        """{GEMM: Count}"""
        pairs = [[self.operand(recipe, choice, role, direction).values for direction in rules.DIRECTIONS]
                 for role in rules.ROLES]
        counts = {}
        for gemm, (terms, a, b) in gemms_of(*pairs).items():
            exact, size = exact_gemm(a, b)
            if gemm == "y" and self.with_bias:
                exact, size = exact + self.layer.bias, size + np.abs(self.layer.bias)
            counts[gemm] = Count()
            compare = counts[gemm].fp32 if gemm == "dw" else counts[gemm].bf16
            compare(found[gemm], exact, accumulation_bound(terms, size))
        return counts


class Tally:
    def __init__(self):
        self.counts = collections.defaultdict(Count)
        self.operands_different = self.state_different = 0
        self.worst_share, self.worst_case = 1.0, "none"
        self.gradients, self.with_gelu = 0, collections.defaultdict(float)  # {(recipe, result): difference}

    def gemms(self, gemms, recipe, choice):
        """Runs and judges one case; returns what the program gave."""
        found = gemms.run(recipe, choice)
        self.operands_different += gemms.operand_differences(recipe, choice, found)
        shape = (*gemms.layer.x.shape, gemms.layer.w.shape[0])
        for gemm, count in gemms.judge(recipe, choice, found).items():
            self.counts[recipe, gemm].add(count)
            self.case(f"{recipe} {choice} {gemm} {shape}", count)
        return found

    def case(self, name, count):
        """The worst of the cases that are large enough for 99.9% to mean something."""
        if count.independent >= 10_000 and count.share() < self.worst_share:
            self.worst_share, self.worst_case = count.share(), name

    def total(self):
        total = Count()
        for count in self.counts.values():
            total.add(count)
        return total


# ---- 2: layers in training


def training_data(chance, kind):
    """{name: array} of all steps. Sizes change with every micro-batch, so that factors from history are not today's, and not
    those of an update at another time.

    The largest dy meets a slope of GELU of exactly 1, so that its amax does not hang on how the slope is rounded.
    """
    data = {}
    for step, of_step in zip(range(1, STEPS + 1), (1, 4, 0.7)):
        for micro in range(1, MICRO_BATCHES + 1):
            size = of_step * (0.5 + micro / 4)
            layer = numbers(chance, LAYER_SHAPE, kind, 1e-6 * size)
            layer.dy[0, 0] = bf16(4 * np.abs(layer.dy).max())
            data |= {f"x.{step}.{micro}": bf16(layer.x * size), f"dy.{step}.{micro}": layer.dy}
        layer.bias[0] = 40
        data |= {f"w.{step}": layer.w, f"bias.{step}": layer.bias}
    return data


def check_layer(tool, tally, kind, recipe, choice, data):
    sent = {name: tensor(values, torch.bfloat16 if name[:2] in ("x.", "dy") else None) for name, values in data.items()}
    found = tool.run(f"train {kind} {recipe} {choice}", sent)
    model = Model(recipe, choice, kind == "linear_gelu")
    for step in range(1, STEPS + 1):
        sums = {}
        for micro in range(1, MICRO_BATCHES + 1):
            batch = f"{step}.{micro}"
            wanted = model.micro_batch(data[f"x.{batch}"], data[f"w.{step}"], data[f"bias.{step}"], data[f"dy.{batch}"])
            for name in ("dw", "db"):
                before = sums.get(name, Wanted(0, 0))
                exact = before.exact + wanted[name].exact
                sums[name] = Wanted(exact, before.bound + wanted[name].bound + 2.0 ** -24 * np.abs(exact))
            for name in ("y", "dx"):
                judge_layer(tally, kind, recipe, choice, name, found.pop(f"{name}.{batch}"), wanted[name])
        for name in ("dw", "db"):
            judge_layer(tally, kind, recipe, choice, name, found.pop(f"{name}.{step}"), sums[name])
        for name, values in model.finish_step().items():
            tally.state_different += different(values, found.pop(f"{step}.{name}"))
    assert not found, f"{recipe} {choice}: not compared: {list(found)}"


def judge_layer(tally, kind, recipe, choice, name, found, wanted):
    tally.gradients += name != "y"
    rounded = name in ("y", "dx")
    if kind == "linear":
        count = Count()
        (count.bf16 if rounded else count.fp32)(found, wanted.exact, wanted.bound)
        tally.counts[recipe, f"layer's {name}"].add(count)
        tally.case(f"{recipe} {choice} layer's {name}", count)
        return
    nearest = round_bf16(wanted.exact) if rounded else wanted.exact
    wrong, size = np.linalg.norm(found - nearest), np.linalg.norm(nearest)
    share = wrong / size if size > 0 else wrong > 0 and np.inf
    tally.with_gelu[recipe, name] = worse(tally.with_gelu[recipe, name], share)


def check_layers(tool, tally):
    data = {"linear": training_data(np.random.default_rng(51), "wide"),
            "linear_gelu": training_data(np.random.default_rng(52), "realistic")}
    for recipe, choice in CASES:
        for layer, arrays in data.items():
            check_layer(tool, tally, layer, recipe, choice, arrays)


# ---- 3: SQNR

# The least that torchao's tests ask for (v0.18.0), of y, dx and dw.
#   FLOAT8            test/float8/test_numerics_integration.py: outputs and gradients of parameters of three layers
#                     (test_base.py asks for 18 and 17 of one layer); of the input gradient there is none, it gets the same
#   BLOCKWISE_RANDOM  test/prototype/blockwise_fp8_training/test_blockwise_kernels.py: random operands
#   BLOCKWISE_ONES    …/test_blockwise_linear.py: the output gradient is 1 everywhere, which costs nothing to quantize
#   MX                test/prototype/moe_training/test_mxfp8_linear.py
FLOAT8, BLOCKWISE_RANDOM, BLOCKWISE_ONES, MX = (20, 20, 20), (28, 28, 28), (25, 30, 30), (27, 25, 24)


def least_sqnr(recipe, data):
    if recipe == "blockwise":
        return BLOCKWISE_RANDOM if data == "realistic" else BLOCKWISE_ONES
    return MX if recipe == "mxfp8" else FLOAT8


class Torchao:
    """Its linear layers, emulated on the CPU."""

    def __init__(self):
        logging.getLogger("torch.utils._pytree").setLevel(logging.ERROR)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            from torchao.float8.config import Float8LinearConfig
            from torchao.float8.float8_linear import Float8Linear
            from torchao.prototype.moe_training.mxfp8_linear import mx_mm
            from torchao.prototype.mx_formats import config as mx
            from torchao.quantization.quantize_.common.kernel_preference import KernelPreference
        self.config, self.linear, self.mx_mm = Float8LinearConfig, Float8Linear, mx_mm
        e4m3 = torch.float8_e4m3fn
        self.mx_options = (e4m3, e4m3, e4m3, 32, KernelPreference.EMULATED, mx.MXFP8Dim0CastKernelChoice.TORCH,
                           mx.MXFP8Dim1CastKernelChoice.TORCH, mx.ScaleCalculationMode.RCEIL, False)

    def run(self, name, layer):
        """{GEMM: result} of tensorwise, rowwise or mxfp8."""
        x = tensor(layer.x, torch.bfloat16).requires_grad_()
        w = torch.nn.Parameter(tensor(layer.w, torch.bfloat16))
        if name == "mxfp8":
            y = self.mx_mm.apply(x, w, *self.mx_options)
        else:
            plain = torch.nn.Linear(w.shape[1], w.shape[0], bias=False, dtype=torch.bfloat16)
            plain.weight = w
            y = self.linear.from_float(plain, dataclasses.replace(self.config.from_recipe_name(name), emulate=True))(x)
        y.backward(tensor(layer.dy, torch.bfloat16))
        return {"y": array(y.detach()), "dx": array(x.grad), "dw": array(w.grad)}


class Noise:
    """Ours beside torchao's and beside the least, on one layer's numbers."""

    # What of torchao does the same. It dropped delayed scaling; its blockwise kernels need a GPU.
    TWINS = {("delayed", "hybrid"): "tensorwise", ("current", "hybrid"): "tensorwise", ("rowwise", "e4m3"): "rowwise",
             ("mxfp8", "e4m3"): "mxfp8"}

    def __init__(self, torchao, layer, data):
        self.torchao, self.layer, self.data, self.theirs = torchao, layer, data, {}
        x, w, dy = (part.astype(F64) for part in (layer.x, layer.w, layer.dy))
        self.truth = {gemm: a @ b for gemm, (_, a, b) in gemms_of((x, x), (w, w), (dy, dy)).items()}

    def sqnr(self, found):
        return {gemm: 20 * np.log10(np.linalg.norm(truth) / np.linalg.norm(truth - found[gemm]))
                for gemm, truth in self.truth.items()}

    def compare(self, recipe, choice, found):
        """(the least of ours, how many are short)"""
        ours, twin = self.sqnr(found), self.TWINS.get((recipe, choice))
        if twin is not None and twin not in self.theirs:
            self.theirs[twin] = self.sqnr(self.torchao.run(twin, self.layer))
        cells, short = [], 0
        for (gemm, mine), least in zip(ours.items(), least_sqnr(recipe, self.data)):
            limit = max(least, self.theirs[twin][gemm] - MOST_BEHIND) if twin else least
            short += not mine >= limit
            theirs = f"torchao {self.theirs[twin][gemm]:.2f}, " if twin else ""
            cells.append(f"{gemm} {mine:.2f}{'' if mine >= limit else ' SHORT'} ({theirs}asks {least})")
        shape = f"{self.layer.x.shape[1]} -> {self.layer.w.shape[0]}"
        print(f"SQNR in dB, {self.data} numbers {shape}, {recipe} {choice}: " + ", ".join(cells), flush=True)
        return min(ours.values()), short


def torchao_numbers(chance, gradient):
    """As in its tests: normal inputs, nn.Linear's weights, the gradient of a sum or of a mean squared error from 1 (MX)."""
    tokens, inputs, outputs = 256, 1024, 2048
    x = bf16(chance.normal(size=(tokens, inputs)))
    w = bf16(chance.uniform(-1, 1, (outputs, inputs)) / np.sqrt(inputs))
    dy = np.ones((tokens, outputs)) if gradient == "sum" else 2 / (tokens * outputs) * (bf16(x @ w.T) - 1)
    return Layer(x, w, bf16(dy), np.zeros(outputs, F32))


def check_gemms(tool, tally, torchao):
    """Also the SQNR: [(least, short)]"""
    chance, noises = np.random.default_rng(50), []
    for shape, with_bias, kind in SHAPES:
        layer = numbers(chance, shape, kind)
        gemms = Gemms(tool, layer, with_bias, headroom=0.7 if with_bias else 1.3)  # 0.7: some values saturate
        noise = Noise(torchao, layer, kind) if kind == "realistic" and not with_bias else None
        for recipe, choice in CASES:
            found = tally.gemms(gemms, recipe, choice)
            if noise:
                noises.append(noise.compare(recipe, choice, found))
    for gradient in ("sum", "error"):
        layer = torchao_numbers(chance, gradient)
        # Its tests run the same numbers twice: the history has today's amax.
        gemms, noise = Gemms(tool, layer, False, headroom=1), Noise(torchao, layer, "torchao's")
        for recipe, choice in CASES:
            if (recipe == "mxfp8") == (gradient == "error"):
                noises.append(noise.compare(recipe, choice, tally.gemms(gemms, recipe, choice)))
    return noises


def main():
    if not TOOL.exists():
        sys.exit(f"wanted {TOOL}, found none; build it: ninja -C {fp8_formats.BUILD} {TOOL.name}")
    if len(sys.argv) > 1:
        sys.exit(f"wanted no arguments, found {sys.argv[1:]}")
    np.seterr(all="ignore")  # rules.stated divides by amax 0
    began, tally = time.time(), Tally()
    with tempfile.TemporaryDirectory() as folder:
        tool = Tool(folder)
        check_layers(tool, tally)
        noises = check_gemms(tool, tally, Torchao())
        tool.close()
    for (recipe, gemm), count in tally.counts.items():
        print(f"{recipe} {gemm}: {count.line()}")
    for recipe in rules.RECIPES:
        print(f"{recipe} linear_gelu, |ours - model| / |model|: " +
              ", ".join(f"{name} {tally.with_gelu[recipe, name]:.1e}" for name in ("y", "dx", "dw", "db")))
    total, short = tally.total(), sum(count for _, count in noises)
    print(f"the least share correctly rounded in one case: {tally.worst_share:.6f}, {tally.worst_case}")
    gelu_difference = max(tally.with_gelu.values())
    print(f"correctly_rounded={total.share():.6f} worst_case={tally.worst_share:.6f} worst_excess_ulp={total.excess:.3g} "
          f"fp32_error_of_bound={total.used:.3g} operands_different={tally.operands_different} "
          f"sqnr_min_db={min(least for least, _ in noises):.2f} sqnr_short={short} gradients_checked={tally.gradients} "
          f"gelu_difference={gelu_difference:.1e} state_different={tally.state_different} seconds={time.time() - began:.0f}")
    good = (tally.worst_share >= LEAST_CORRECT and total.excess <= MOST_EXCESS and total.used <= 1 and short == 0 and
            gelu_difference <= MOST_GELU_DIFFERENCE and tally.operands_different == tally.state_different == 0)
    sys.exit(0 if good else 1)


if __name__ == "__main__":
    main()
