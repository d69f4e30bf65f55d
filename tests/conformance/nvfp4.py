#!/usr/bin/env -S sh -c 'exec "$(dirname "$0")/../../.deps/venv/bin/python" "$0" "$@"'
# test: label=conformance timeout=600 gate="" measures="src/fp8"
"""NVFP4 (src/fp8/nvfp4.h) against Transformer Engine's own Python reference, ml_dtypes and torchao: codes, block scales, amax and
Hadamard transform bit for bit, on BF16 numbers of many kinds, hostile ones too; and stochastic rounding.

Transformer Engine's reference is in its wheel (pytorch/custom_recipes/reference_nvfp4.py). Its package needs CUDA; the reference needs
two empty base classes of it, which are given here. Two agreements that it cannot know of: it has no negative zero of an input that is
one (hardware and torchao have: they keep the sign), and of a NaN, which E2M1 does not have, it makes 0 where the hardware has +6.

A sum of the Hadamard transform whose terms are up to 2^120 apart (kind "wide") depends on its order in FP32, which nobody fixes. There, and
there alone, two results may be the BF16 roundings of what FP32 sums in two orders give; how many are is said.

Stochastic rounding: the rule of cvt.rs for every draw of 8 bits, stated in fractions; and whole matrices, whose mean error must be that
of the rule, -1/512 of a step, within 4 standard errors.
"""
import fractions
import importlib
import pathlib
import subprocess
import sys
import types

import ml_dtypes
import numpy as np
import torch

import fp8_formats

TOOL = fp8_formats.BUILD / "bin" / "nvfp4_tool"
LEAST_VALUES = 10_000_000
STANDARD_ERRORS = 4
VALUES = (0, 0.5, 1, 1.5, 2, 3, 4, 6)
SHAPES = ((128, 128), (16, 16), (1, 16), (48, 4096), (2048, 512), (256, 768), (17, 32), (160, 1024))
KINDS = ("normal", "outliers", "wide", "tiny", "huge", "zeros", "ties", "one")


def te_reference():
    """Transformer Engine's reference quantizer without the rest of its package."""
    folder = pathlib.Path(torch.__file__).resolve().parents[1] / "transformer_engine"

    def module(name, path=None, **content):
        made = types.ModuleType(name)
        made.__dict__.update(content)
        if path is not None:
            made.__path__ = [str(path)]
        sys.modules[name] = made

    module("transformer_engine", folder)
    module("transformer_engine.pytorch", folder / "pytorch")
    module("transformer_engine.pytorch.quantized_tensor", QuantizedTensorStorage=type("QuantizedTensorStorage", (), {}),
           Quantizer=type("Quantizer", (), {"__init__": lambda self, **_: None}))
    module("transformer_engine.pytorch.tensor", folder / "pytorch" / "tensor")
    module("transformer_engine.pytorch.tensor.utils", is_custom=lambda *_: True)
    return importlib.import_module("transformer_engine.pytorch.custom_recipes.reference_nvfp4").NVFP4QuantizerRef


def tool(*words, values):
    done = subprocess.run([TOOL, *map(str, words)], input=np.ascontiguousarray(values, np.float32).tobytes(), stdout=subprocess.PIPE,
                          check=True)
    return np.frombuffer(done.stdout, np.uint8)


def bf16(values):
    return np.asarray(values, np.float32).astype(ml_dtypes.bfloat16).astype(np.float32)


def matrix(chance, shape, kind):
    values = chance.normal(size=shape)
    if kind == "outliers":
        values[:, chance.random(shape[1]) < 0.02] *= 100
    elif kind == "wide":
        values *= np.exp2(chance.integers(-60, 60, shape))
    elif kind == "tiny":
        values *= 2.0 ** -120
    elif kind == "huge":
        values *= 2.0 ** 120
    elif kind == "zeros":
        values[chance.random(shape) < 0.7] = 0
        values[:, : shape[1] // 2] = 0
        values[chance.random(shape) < 0.1] = -0.0
    elif kind == "ties":  # many products lie at the middle of two codes
        values = chance.choice([0.25, 0.75, 1.25, 1.75, 2.5, 3.5, 5, 6, -0.25, -0.75, -5, -6], shape)
        values[0, 0] = 6
    elif kind == "one":
        values[:] = 0
        values[shape[0] // 2, shape[1] // 3] = -3e-5
    return bf16(values)


class Tally:
    def __init__(self):
        self.values = self.codes = self.scales = self.rotated = self.rotations = self.by_order = 0

    def complain(self, what, wrong):
        if np.any(wrong):
            print(f"{what}: {int(np.sum(wrong))} of {wrong.size} differ, the first at {np.flatnonzero(wrong)[:3]}")
        return int(np.sum(wrong))


def quantized(blocks, values, verb="quantize", *more):
    """(codes in bytes, scales [rows, blocks], amax)"""
    rows, columns = values.shape
    found = tool(verb, blocks, rows, columns, *more, values=values)
    packed, scales, amax = found[: values.size // 2], found[values.size // 2 : -4], found[-4:].view(np.float32)[0]
    scales = scales.reshape(-1, columns // 16)
    return packed.reshape(rows, columns // 2), scales if blocks == "1x16" else np.repeat(scales, 16, 0)[:rows], amax


def without_negative_zeros(packed, values):
    """The codes of -0.0 as Transformer Engine's reference has them."""
    zeros = (values == 0) & np.signbit(values)
    mask = np.where(zeros[:, ::2], 0xF7, 0xFF) & np.where(zeros[:, 1::2], 0x7F, 0xFF)
    return packed & mask.astype(np.uint8)


def check_matrix(tally, reference, name, blocks, values):
    packed, scales, amax = quantized(blocks, values)
    height = 16 if blocks == "16x16" else 1
    given = torch.from_numpy(values).bfloat16()
    wanted_amax = given.float().abs().max()
    codes, wanted_scales = reference._quantize_blockwise_reference(given, wanted_amax, 16, height, pow_2_scales=False, eps=0.0)
    tally.values += values.size
    tally.codes += tally.complain(f"{name}: codes", without_negative_zeros(packed, values) != codes.numpy())
    tally.scales += tally.complain(f"{name}: scales", scales != wanted_scales.view(torch.uint8).numpy())
    tally.scales += int(np.float32(wanted_amax) != amax)


def check_rotation(tally, reference, name, values):
    rotate = reference(dtype=None, with_rht=True)
    found = tool("rotate", values=values).view(np.float32).reshape(values.shape)
    # Given FP32, it sums in FP32, as the kernels do; BF16 units of a CPU take numbers below 2^-126 for zero.
    wanted = rotate._apply_rht(torch.from_numpy(values)).bfloat16().float().numpy()
    different = (found != wanted) & ~(np.isnan(found) & np.isnan(wanted))
    if name.startswith("wide") and different.any():
        explained = different & in_another_order(reference, values, wanted)
        tally.by_order += int(explained.sum())
        different &= ~explained
    tally.rotations += values.size
    tally.rotated += tally.complain(f"{name}: Hadamard transform", different)
    return found


def in_another_order(reference, values, found):
    """Whether a result is what FP32 sums of these 16 terms, in some order, may be rounded to in BF16."""
    matrix = reference._build_hadamard_matrix(16, torch.device("cpu"), torch.float64).numpy() / 4
    tiles = values.reshape(-1, 16).astype(np.float64)
    exact, slack = tiles @ matrix, 16 * 2.0 ** -24 * np.abs(tiles).sum(1, keepdims=True) / 4
    low, high = (bf16(end.reshape(values.shape)) for end in (exact - slack, exact + slack))
    return (low <= found) & (found <= high)


def check_codes(tally):
    """Every BF16 number, and float32 around the middles, against ml_dtypes and torchao."""
    from torchao.prototype.mx_formats.kernels import f32_to_f4_unpacked
    every = (np.arange(1 << 16, dtype=np.uint32) << 16).view(np.float32)
    around = np.concatenate([np.nextafter(np.float32(v), np.float32(s * 100)) for v in (*VALUES, 0.25, 0.75, 1.25, 1.75, 2.5, 3.5, 5)
                             for s in (1, -1)], axis=None).astype(np.float32)
    values = np.concatenate([every, around, -around])
    values = values[~np.isnan(values)]
    found = tool("codes", values=values)
    by_ml_dtypes = np.clip(values, -6, 6).astype(ml_dtypes.float4_e2m1fn).view(np.uint8) & 15
    by_torchao = f32_to_f4_unpacked(torch.from_numpy(np.clip(values, -6, 6))).numpy()
    tally.values += values.size
    return tally.complain("ml_dtypes", found != by_ml_dtypes) + tally.complain("torchao", found != by_torchao)


def stated_draws(value):
    """The codes of all draws by the rule, in fractions."""
    magnitude, sign = fractions.Fraction(abs(float(value))), 8 * bool(np.signbit(value))
    codes = []
    for k in range(256):
        def step(x):
            return fractions.Fraction(1, 2) if x < 2 else fractions.Fraction(1) if x < 4 else fractions.Fraction(2)
        moved = magnitude + fractions.Fraction(k, 256) * step(magnitude)
        rounded = min(moved // step(moved) * step(moved), 6)
        codes.append(VALUES.index(float(rounded)) + sign)
    return codes


def check_draws(tally, chance):
    values = np.concatenate([chance.uniform(-6.5, 6.5, 300), np.array(VALUES), [1.999, 3.999, 2.001, 1e-30, 5.9999, 100]]).astype(np.float32)
    found = tool("draws", values=values).reshape(-1, 256)
    return tally.complain("draws", found != np.array([stated_draws(value) for value in values], np.uint8))


def mean_errors(chance):
    """Of stochastic rounding in whole matrices, in steps, and of rounding to nearest, both in standard errors from the rule."""
    worst, draws = 0.0, 0
    decode = np.array([*VALUES, *(-v for v in VALUES)], np.float64)
    for seed in range(8):
        values = bf16(np.abs(chance.normal(size=(512, 1024))))
        packed, scales, amax = quantized("1x16", values, "stochastic", seed)
        codes = np.stack([packed & 15, packed >> 4], -1).reshape(values.shape)
        global_scale = np.float32(2688) / amax
        encode = np.float32(1) / (scales.view(fp8_formats.TYPES["e4m3"]).astype(np.float32) * (np.float32(1) / global_scale))
        scaled = (values * np.repeat(encode, 16, 1)).astype(np.float64)
        inside = scaled < 6
        step = np.where(scaled < 2, 0.5, np.where(scaled < 4, 1, 2))
        wrong = ((decode[codes] - scaled) / step)[inside]
        # floor(256 f) / 256 - f has the mean -1/512 over uniform f; it is taken as it is here.
        way = (scaled / step % 1)[inside]
        expected = np.floor(256 * way) / 256 - way
        spread = np.sqrt(np.sum(way * (1 - way)))
        worst = max(worst, abs(np.sum(wrong - expected)) / spread)
        draws += int(inside.sum())
    return worst, draws


def main():
    chance, tally, reference = np.random.default_rng(41), Tally(), te_reference()
    wrong_codes = check_codes(tally) + check_draws(tally, chance)
    while tally.values < LEAST_VALUES:
        for kind in KINDS:
            for shape in SHAPES:
                values, name = matrix(chance, shape, kind), f"{kind} {shape[0]} x {shape[1]}"
                check_matrix(tally, reference, f"{name} 1x16", "1x16", values)
                if shape[0] % 16 == 0:
                    check_matrix(tally, reference, f"{name} 16x16", "16x16", values)
                rotated = check_rotation(tally, reference, name, values)
                check_matrix(tally, reference, f"{name} rotated", "1x16", rotated)
    worst, draws = mean_errors(chance)
    print(f"values={tally.values} codes_different={tally.codes + wrong_codes} scales_different={tally.scales} "
          f"rotations={tally.rotations} rotations_different={tally.rotated} rotations_by_order={tally.by_order} stochastic_draws={draws} stochastic_worst_se={worst:.2f}")
    return 1 if tally.codes or wrong_codes or tally.scales or tally.rotated or worst > STANDARD_ERRORS else 0


if __name__ == "__main__":
    sys.exit(main())
