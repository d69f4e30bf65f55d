#!/usr/bin/env -S sh -c 'exec "$(dirname "$0")/../../.deps/venv/bin/python" "$0" "$@"'
# test: label=conformance timeout=600 gate="" measures="src/fp8"
"""The recipes of src/fp8 against torchao and against Transformer Engine's rules, bit for bit: codes, scales, history.

Transformer Engine (TE) needs a GPU, so its rules are stated below in NumPy, from its source (commit d0067d0d), not from our
C++; FP8 rounding is ml_dtypes'. torchao (0.18) itself runs. Every recipe, format, role and direction; the column copy is the
row copy of the transpose.

Where torchao and TE differ is written down here and checked to be exactly so, or this script fails:
1. torchao clamps amax at 1e-12. `rowwise` follows it, `current` follows TE: below 1e-12 (and for zeros) torchao's scale is
   MAX / 1e-12, TE's and ours MAX / amax (1 for zeros); the codes of zeros are the same.
2. An infinite amax: torchao's tensorwise scale is 0, TE's and ours 1. (`rowwise` follows torchao: 0, the row is lost.)
3. A NaN: TE's amax passes over it and only its own code is NaN; so do delayed, current, blockwise. torchao's amax is NaN,
   and so is every code under it; so do rowwise and mxfp8, where TE's MXFP8 would lose the one element only.
4. torchao's to_mx multiplies by 1 instead of 2^127 when the exponent code is 0. TE and ours: 2^127.
5. torchao takes log2 in float32 to round to a power of two. Where that log2 rounds to a whole number and the true one is not
   whole, its scale is twice (rowwise) or half (MX) the right one. No BF16 amax is such a case; FP32 ones are put in.
A NaN code is compared without its sign, which IEEE 754 leaves open in a product; which bits make a NaN is fp8_formats' job.
"""
import subprocess
import sys
import time
import typing
import warnings

import ml_dtypes
import numpy as np

import fp8_formats

TOOL = fp8_formats.BUILD / "bin" / "fp8_recipes_tool"
# In the order of the enums of C++.
RECIPES = ("delayed", "current", "rowwise", "blockwise", "mxfp8")
CHOICES = ("hybrid", "e4m3", "e5m2")
ROLES = ("input", "weight", "gradient")
DIRECTIONS = ("row", "column")
FORMATS = ("e4m3", "e5m2")
EPSILON = 1e-12  # torchao's smallest amax
F32 = np.float32
MOST = np.finfo(F32).max

SHAPES = [(1, 1), (7, 5), (33, 129), (128, 128), (130, 257), (300, 96), (1, 300), (300, 1), (160, 64)]
HISTORY_LENGTHS = (1, 2, 3, 16, 1024)


class Quantized(typing.NamedTuple):
    codes: np.ndarray  # uint8 [rows, columns]
    encode: np.ndarray  # float32 [grid rows, grid columns]
    decode: np.ndarray


class Tally:
    def __init__(self):
        self.counts = dict.fromkeys(("codes", "scales", "sides", "incidents", "history"), 0)
        self.elements = 0
        self.seen = {}  # exceptions of the list above that occurred

    def compare(self, kind, what, found, wanted):
        """Arrays of one shape; floats by their bits, with all NaN alike."""
        assert found.shape == wanted.shape and found.dtype == wanted.dtype, f"{what}: {found.shape} {wanted.shape}"
        if kind == "codes":
            self.elements += found.size
        different = found != wanted
        if found.dtype == F32:
            different = (np.signbit(found) != np.signbit(wanted)) | different
            different &= ~(np.isnan(found) & np.isnan(wanted))
        count = int(different.sum())
        if count == 0:
            return
        if self.counts[kind] < 20:
            at = tuple(int(i) for i in np.argwhere(different)[0])
            print(f"{what}: {count} {kind} differ, first at {at}: wanted {wanted[at]!r}, found {found[at]!r}")
        self.counts[kind] += count

    def exception(self, name, count):
        self.seen[name] = self.seen.get(name, 0) + int(count)


# ---- FP8 codes


def unsigned_nan(name, codes):
    """Every NaN as 0x7F."""
    nan = (codes & 0x7F) > (0x7E if name == "e4m3" else 0x7C)
    return np.where(nan, np.uint8(0x7F), codes)


def codes_of(name, scaled):
    """The cast of TE and torchao: saturating, infinities too."""
    largest = fp8_formats.limit(name)
    return unsigned_nan(name, fp8_formats.native_codes(name, np.clip(scaled, -largest, largest)))


# ---- Transformer Engine, by file of transformer_engine/common


def te_scale(amax, largest, power_of_two):
    """recipe/recipe_common.cuh, compute_scale_from_amax, with epsilon 0 and value_for_inf the largest float32."""
    scale = F32(largest) / amax
    scale = np.where(np.isinf(scale), MOST, scale)
    if power_of_two:
        scale = (scale.view(np.uint32) & np.uint32(0xFF800000)).view(F32)
    return np.where(np.isinf(amax) | (amax == 0) | np.isnan(amax), F32(1), scale)


def te_float_to_e8m0(value):
    """util/ptx_arch_spec.cuh, float_to_e8m0 without the instruction."""
    bits = value.view(np.uint32)
    exponent, mantissa = (bits >> np.uint32(23)).astype(np.int32), bits & np.uint32(0x7FFFFF)
    up = (mantissa > 0) & (exponent != 0xFE) & ~((exponent == 0) & (mantissa <= 0x400000))
    code = np.where(np.isinf(value), 0xFE, exponent + up)
    return np.where(np.isnan(value), 0xFF, code).astype(np.int32)


def te_mx_code(amax, largest):
    """cast/mxfp8/quantize_mxfp8.cuh: float_to_e8m0(amax * max_norm_rcp), the reciprocal a float32 made in double."""
    return te_float_to_e8m0(amax * F32(1.0 / largest))


def te_exp2f(code):
    """util/ptx.cuh, exp2f."""
    bits = np.where(code == 0, 0x00400000, code << 23)
    return np.where(code == 255, 0x7FFFFFFF, bits).astype(np.uint32).view(F32)


def te_exp2f_rcp(code):
    """util/ptx.cuh, exp2f_rcp."""
    bits = np.where(code == 254, 0x00400000, (254 - code) << 23)
    return np.where(code == 255, 0x7FFFFFFF, bits).astype(np.uint32).view(F32)


def te_history_step(history, scales, largest, algo, margin):
    """recipe/delayed_scaling.cu, kernel_bulk, without a reduction buffer: new history and scales."""
    last = history[0]
    moved = np.concatenate([history[1:], last[None]])
    amax = np.fmax.reduce(moved, axis=0, initial=F32(0))  # fmaxf
    moved[0] = 0
    ran = last != 0
    amax = last if algo == "most_recent" else np.where(ran, amax, F32(0))
    scaled_max = (largest * F32(2) ** F32(-margin)).astype(F32)
    scale = np.where(np.isfinite(amax) & (amax > 0), scaled_max / amax, scales)
    return np.where(ran, moved, history), np.where(np.isinf(scale), MOST, scale)


# ---- the recipes of one row copy


def rowwise_factor(amax, largest):
    """torchao float8_utils.py, amax_to_scale, before it rounds to a power of two."""
    return (largest / np.maximum(amax.astype(np.float64), EPSILON)).astype(F32)


def power_of_two_below(factor):
    """By frexp, exact: m 2^e with m in [0.5, 1)."""
    ordinary = np.isfinite(factor) & (factor > 0)
    return np.where(ordinary, np.ldexp(F32(0.5), np.frexp(np.where(ordinary, factor, 1))[1]), factor)


def scales_of(recipe, name, amax, nan):
    """(encode, decode) from the amax of each block, which passes over NaN; `nan`: the blocks that have one."""
    largest = fp8_formats.limit(name)
    if recipe == "mxfp8":
        code = np.where(nan, 255, te_mx_code(amax, largest))
        return te_exp2f_rcp(code), te_exp2f(code)
    if recipe == "rowwise":
        encode = np.where(nan, F32(np.nan), power_of_two_below(rowwise_factor(amax, largest)))
    else:
        encode = te_scale(amax, largest, recipe == "blockwise")
    return encode, F32(1) / encode  # __frcp_rn, and 1.0 / scale where it is a power of two


def block_of(recipe, role, shape):
    """(rows, columns) of a block of the row copy."""
    return {"delayed": shape, "current": shape, "rowwise": (1, shape[1]), "mxfp8": (1, 32),
            "blockwise": (128, 128) if role == "weight" else (1, 128)}[recipe]


def blocks(values, block):
    """[grid rows, grid columns, block elements]; the edges filled up with zeros."""
    grid = [-(-size // side) for size, side in zip(values.shape, block)]
    padded = np.zeros([count * side for count, side in zip(grid, block)], values.dtype)
    padded[: values.shape[0], : values.shape[1]] = values
    apart = padded.reshape(grid[0], block[0], grid[1], block[1]).swapaxes(1, 2)
    return apart.reshape(grid[0], grid[1], block[0] * block[1])


def spread(scales, block, shape):
    """The scale of every element."""
    return np.repeat(np.repeat(scales, block[0], axis=0), block[1], axis=1)[: shape[0], : shape[1]]


def stated(recipe, name, block, values, given):
    apart = blocks(values, block)
    amax = np.fmax.reduce(np.abs(apart), axis=2, initial=F32(0))  # fmaxf from 0
    encode, decode = scales_of(recipe, name, amax, np.isnan(apart).any(axis=2))
    if recipe == "delayed":
        encode = np.full_like(amax, given)
        decode = F32(1) / encode
    factors = spread(encode, block, values.shape)
    codes = codes_of(name, values * factors)
    return Quantized(codes, encode, decode), incidents_of(name, values, factors, codes)


def incidents_of(name, values, factors, codes):
    """nan, inf, saturated, underflowed, seen on the values (formats.h). Under a factor of 0 or NaN, only the first two: what
    is lost there is lost to the infinity or NaN that made the factor."""
    scaled = np.abs(values * factors)
    past = scaled > 464 if name == "e4m3" else scaled >= 61440  # a tie goes to the even code
    zero = (values != 0) & ((codes & 0x7F) == 0) & (factors != 0)
    return np.array([mask.sum() for mask in (np.isnan(values), np.isinf(values), past & np.isfinite(values), zero)])


def stated_format(choice, role, direction):
    """e5m2 is not for weights, nor for the input of the weight gradient: no GEMM may be E5M2 x E5M2."""
    if choice == "hybrid":
        return "e5m2" if role == "gradient" else "e4m3"
    if choice == "e4m3" or role == "weight" or (role, direction) == ("input", "column"):
        return "e4m3"
    return "e5m2"


# ---- torchao


class Torchao:
    """What it makes of a row copy, and the comparison of ours with it."""

    def __init__(self, tally):
        import torch
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            from torchao.float8.config import ScalingGranularity
            from torchao.float8.float8_scaling_utils import hp_tensor_to_float8_dynamic
            from torchao.float8.float8_training_tensor import LinearMMConfig
            from torchao.prototype.mx_formats.config import ScaleCalculationMode
            from torchao.prototype.mx_formats.mx_tensor import to_mx
        torch.set_num_threads(1)  # small matrices; the tool works at the same time
        self.torch, self.tally = torch, tally
        self.types = {"e4m3": torch.float8_e4m3fn, "e5m2": torch.float8_e5m2}
        self.to_float8, self.gemm_config, self.granularity = hp_tensor_to_float8_dynamic, LinearMMConfig(), ScalingGranularity
        self.to_mx, self.round_up = to_mx, ScaleCalculationMode.RCEIL

    def codes(self, name, tensor, shape):
        return unsigned_nan(name, tensor.contiguous().view(self.torch.uint8).numpy()[: shape[0], : shape[1]])

    def float8(self, recipe, name, values):
        row = recipe == "rowwise"
        result = self.to_float8(
            self.torch.from_numpy(values), self.types[name], self.gemm_config, round_scales_to_power_of_2=row,
            scaling_granularity=self.granularity.AXISWISE if row else self.granularity.TENSORWISE,
            axiswise_dim=-1 if row else None)
        scale = result._scale.reshape(-1, 1)
        return Quantized(self.codes(name, result._data, values.shape), scale.numpy(), scale.reciprocal().numpy())

    def mx(self, name, values):
        """The columns filled up to a multiple of 32, which it wants: zeros change no amax. Also its exponent codes."""
        padded = np.pad(values, ((0, 0), (0, -values.shape[1] % 32)))
        exponents, data = self.to_mx(self.torch.from_numpy(padded), self.types[name], 32, self.round_up)
        code = exponents.view(self.torch.uint8).numpy().reshape(len(values), -1).astype(np.int32)
        return Quantized(self.codes(name, data, values.shape), te_exp2f_rcp(code), te_exp2f(code)), code

    def compare(self, recipe, name, block, values, ours):
        what = f"torchao {recipe} {name} {values.shape}"
        apart = blocks(values, block)
        amax = np.abs(apart).max(axis=2)  # NaN stays
        if recipe == "mxfp8":
            theirs, code = self.mx(name, values)
            expected = self.mx_exceptions(name, block, values, amax, ours, code)
        else:
            theirs = self.float8(recipe, name, values)
            expected = (self.tensorwise_exceptions if recipe == "current" else self.rowwise_exceptions)(
                name, block, values, amax, ours, theirs.encode)
        self.tally.compare("codes", what, theirs.codes, expected.codes)
        self.tally.compare("scales", what + " encode", theirs.encode, expected.encode)
        self.tally.compare("scales", what + " decode", theirs.decode, expected.decode)

    # What torchao must have made: ours, but for the exceptions in the list at the top.

    def tensorwise_exceptions(self, name, block, values, amax, ours, _):
        largest, a = fp8_formats.limit(name), amax[0, 0]
        if EPSILON <= a < np.inf:
            return ours
        if np.isnan(a):
            self.tally.exception("nan", 1)
            encode = F32(np.nan)
        elif a < EPSILON:
            self.tally.exception("epsilon", 1)
            encode = F32(largest / EPSILON)
        else:
            self.tally.exception("infinite", 1)
            encode = F32(0)
        codes = codes_of(name, values * encode)
        if a == 0:
            assert np.array_equal(codes, ours.codes) and ours.encode[0, 0] == 1, "zeros must have equal codes"
        encode = np.full((1, 1), encode)
        return Quantized(codes, encode, F32(1) / encode)

    def rowwise_exceptions(self, name, block, values, amax, ours, found):
        factor = rowwise_factor(amax, fp8_formats.limit(name))
        blurred = self.blurred(amax, factor, found != ours.encode)
        if not blurred.any():
            return ours
        encode = np.where(blurred, 2 * ours.encode, ours.encode)
        codes = codes_of(name, values * spread(encode, block, values.shape))
        return Quantized(codes, encode, F32(1) / encode)

    def blurred(self, amax, argument, different):
        blurred = blurred_log2(argument) & different
        assert np.all(amax[blurred].view(np.uint32) & np.uint32(0xFFFF)), "log2 in float32 must be enough for a BF16 amax"
        self.tally.exception("log2", blurred.sum())
        return blurred

    def mx_exceptions(self, name, block, values, amax, ours, found):
        """`found`: its exponent codes."""
        largest = fp8_formats.limit(name)
        code = np.where(np.isnan(amax), 255, te_mx_code(amax, largest))
        blurred = self.blurred(amax, amax / F32(largest), found != code)
        code = code - blurred
        self.tally.exception("code_0", ((code == 0) & (amax > 0)).sum())
        factor = np.where(code == 0, F32(1), te_exp2f_rcp(code))
        changed = spread((code == 0) | blurred, block, values.shape)
        codes = np.where(changed, codes_of(name, values * spread(factor, block, values.shape)), ours.codes)
        return Quantized(codes, np.where(blurred, te_exp2f_rcp(code), ours.encode),
                         np.where(blurred, te_exp2f(code), ours.decode))


def blurred_log2(value):
    """Where log2 in float32 may give a whole number for a value that is no power of two: within one ulp of that number."""
    ordinary = np.isfinite(value) & (value > 0)
    exact = np.log2(np.where(ordinary, value, 1).astype(np.float64))
    whole = np.rint(exact)
    within = np.abs(exact - whole) <= np.spacing(np.maximum(np.abs(whole), 1).astype(F32))
    return ordinary & (exact != whole) & within


# ---- inputs


def mixed(chance, shape, low, high):
    return chance.normal(size=shape) * np.exp2(chance.integers(low, high, shape))


def sprinkled(chance, values, what, share):
    return np.where(chance.random(values.shape) < share, np.asarray(what)[chance.integers(0, len(what), values.shape)], values)


def zeroed(chance, shape):
    """Whole rows, columns and blocks of zeros, some negative."""
    values = chance.normal(size=shape)
    values[chance.random(shape[0]) < 0.3] = 0
    values[:, chance.random(shape[1]) < 0.2] = -0.0
    values[-32:, -32:] = 0
    values[:128, -128:] *= chance.random() < 0.5  # a square of 128, or what the edge leaves of it
    return values


def with_ties(chance, shape):
    """Middles between two E4M3 or E5M2 codes and their neighbours, times powers of two; 448 2^k fixes the scale of a row."""
    values = chance.integers(16, 64, shape) * np.exp2(chance.integers(-20, 4, shape)) * chance.choice([-1, 1], shape)
    values += (chance.integers(-1, 2, shape) * values * 2.0 ** -23)
    values[:, 0] = 448
    return values


def near_powers(chance, shape):
    """Every row has an amax within a few ulps of 7 2^k: where scales that are powers of two change."""
    values = chance.uniform(-1, 1, shape)
    top = 7 * np.exp2(chance.integers(-60, 60, (shape[0], 1))) * (1 + chance.integers(-6, 7, (shape[0], 1)) * 2.0 ** -22)
    values *= top
    values[:, ::16] = top
    return values


INFINITIES = [np.inf, -np.inf]
KINDS = {
    "normal": lambda c, s: c.normal(size=s),
    "weights": lambda c, s: c.normal(size=s) * 0.02,
    "gradients": lambda c, s: c.normal(size=s) * 1e-6,
    "mixed": lambda c, s: mixed(c, s, -30, 30),
    "all magnitudes": lambda c, s: mixed(c, s, -148, 126),
    "zeros": lambda c, s: np.zeros(s) * c.choice([-1, 1], s),
    "zero blocks": zeroed,
    "denormals": lambda c, s: c.normal(size=s) * 1e-39,
    "tiny": lambda c, s: c.normal(size=s) * np.exp2(c.integers(-45, -36, (s[0], 1))),  # on both sides of 1e-12
    "huge": lambda c, s: c.uniform(-1, 1, s) * 3.3e38,
    "outliers": lambda c, s: sprinkled(c, c.normal(size=s), [1e4, -1e4], 0.01),
    "infinities": lambda c, s: sprinkled(c, c.normal(size=s), INFINITIES, 0.003),
    "all infinite": lambda c, s: sprinkled(c, np.zeros(s), INFINITIES, 1),
    "nan": lambda c, s: sprinkled(c, c.normal(size=s), [np.nan, -np.nan, np.inf, 0], 0.004),
    "all nan": lambda c, s: sprinkled(c, np.zeros(s), [np.nan, -np.nan], 1),
    "ties": with_ties,
    "near powers": near_powers,
}


def every_turning_point():
    """One column, so that each value is an amax of its own: all exponents, and 8 ulps around 2^k and 7 2^k.

    A scale that is a power of two falls or stays as the amax grows, in every rule. MAX is 7 2^6 or 7 2^13, so it changes near
    7 2^k and nowhere else: rules that agree on these values agree on all.
    """
    around = np.arange(-8, 9)
    mantissas = np.unique(np.concatenate([around, 0x600000 + around, 0x400000 + around]) % (1 << 23)).astype(np.uint32)
    exponents = np.arange(255, dtype=np.uint32) << np.uint32(23)
    return (exponents[:, None] | mantissas[None]).reshape(-1, 1).view(F32)


def inputs():
    """(label, values, factor of delayed): BF16 values, which the program has, and FP32 values."""
    chance = np.random.default_rng(40)
    yield "every turning point", every_turning_point(), F32(0.3)
    for shape in SHAPES:
        for kind, make in KINDS.items():
            values = make(chance, shape).astype(F32)
            factors = [1, 2.0 ** 10, F32(chance.uniform(0.01, 500)), F32(chance.uniform(0.5, 2) * 1e-6), MOST, 2.0 ** -120]
            given = F32(factors[chance.integers(len(factors))])
            yield f"{kind} fp32 {shape}", values, given
            yield f"{kind} bf16 {shape}", values.astype(ml_dtypes.bfloat16).astype(F32), given


# ---- checks


class Tool:
    def __init__(self):
        self.process = subprocess.Popen([TOOL, "quantize"], stdin=subprocess.PIPE, stdout=subprocess.PIPE)

    def read(self, kind, count):
        size = count * np.dtype(kind).itemsize
        data = self.process.stdout.read(size)
        assert len(data) == size, f"{TOOL.name}: wanted {size} bytes more, found {len(data)}"
        return np.frombuffer(data, kind)

    def quantize(self, values, given):
        """Of every recipe, format, role and direction: format, grid, incidents, has_nan, amax, Quantized."""
        self.process.stdin.write(np.array(values.shape, np.int64).tobytes() + given.tobytes() + values.tobytes())
        self.process.stdin.flush()
        for recipe in RECIPES:
            for choice in CHOICES:
                for role in ROLES:
                    for direction in DIRECTIONS:
                        head = [int(number) for number in self.read(np.int64, 10)]
                        amax = self.read(F32, 1)
                        codes = self.read(np.uint8, values.size).reshape(values.shape)
                        scales = self.read(F32, 2 * head[3] * head[4]).reshape(head[3], head[4], 2)
                        found = Quantized(codes, scales[..., 0], scales[..., 1])
                        yield (recipe, choice, role, direction), head, amax, found

    def close(self):
        self.process.stdin.close()
        assert self.process.wait() == 0


def check_tensors(tally, torchao):
    tool, tensors = Tool(), 0
    for label, values, given in inputs():
        tensors += 1
        cache = {}
        amax = np.fmax.reduce(np.abs(values), axis=None, initial=F32(0)).reshape(1)
        for (recipe, choice, role, direction), head, found_amax, found in tool.quantize(values, given):
            what = f"{recipe} {choice} {role} {direction}, {label}"
            name = stated_format(choice, role, direction)
            turned = values if direction == "row" else np.ascontiguousarray(values.T)
            block = block_of(recipe, role, turned.shape)
            key = (recipe, name, block, direction)
            first = key not in cache
            if first:
                cache[key] = stated(recipe, name, block, turned, given)
            wanted, incidents = cache[key]
            sides = block if direction == "row" else block[::-1]
            grid = [-(-size // side) for size, side in zip(values.shape, sides)]
            tally.compare("sides", what, np.array(head[:5] + head[9:]),
                          np.array([FORMATS.index(name), *sides, *grid, np.isnan(values).any()], np.int64))
            tally.compare("scales", what + " amax", found_amax, amax)
            if [head[3], head[4]] != grid:
                continue  # counted; nothing else can be compared
            found = Quantized(unsigned_nan(name, found.codes), found.encode, found.decode)
            if direction == "column":
                found = Quantized(*(part.T for part in found))
            tally.compare("codes", what, found.codes, wanted.codes)
            tally.compare("scales", what + " encode", found.encode, wanted.encode)
            tally.compare("scales", what + " decode", found.decode, wanted.decode)
            tally.compare("incidents", what, np.array(head[5:9]), incidents)
            if first and recipe in ("current", "rowwise", "mxfp8"):
                torchao.compare(recipe, name, block, turned, found)
    tool.close()
    return tensors


def history_run(chance, length, slots, steps, interval):
    """Formats, factors and history at the start; per step recompute and the new amax, with zeros, infinities and NaN."""
    amax = np.exp2(chance.uniform(-130, 127, (steps + length, slots))).astype(F32)
    ordinary = np.exp2(chance.normal(size=amax.shape)).astype(F32)
    amax = np.where(chance.random(amax.shape) < 0.3, amax, ordinary)
    amax = sprinkled(chance, amax, np.array([0, np.inf, np.nan, 0, 1e-45, 1e-38, MOST], F32), 0.15)
    formats = chance.integers(0, 2, slots)
    factors = np.exp2(chance.integers(-10, 10, slots)).astype(F32)
    recompute = np.arange(1, steps + 1) % interval == 0
    return formats, factors, amax[:length], recompute, amax[length:]


def check_history(tally):
    """Compared after every step: factors and the whole history."""
    chance, slots, total = np.random.default_rng(41), 6, 0
    cases = [(length, algo, margin, interval) for length in HISTORY_LENGTHS for algo in ("max", "most_recent")
             for margin in range(4) for interval in (1, 2, 7)]
    for length, algo, margin, interval in cases:
        steps = 60 if length < 1024 else 1100 if (margin, interval) == (0, 1) else 40  # 1100: all of it replaced
        formats, scales, history, recompute, amax = history_run(chance, length, slots, steps, interval)
        head = np.array([length, slots, steps, algo == "most_recent", margin, *formats], np.int64)
        data = head.tobytes() + scales.tobytes() + history.tobytes()
        data += b"".join(np.int64(flag).tobytes() + row.tobytes() for flag, row in zip(recompute, amax))
        done = subprocess.run([TOOL, "history"], input=data, stdout=subprocess.PIPE, check=True)
        found = np.frombuffer(done.stdout, F32).reshape(steps, length + 1, slots)
        largest = np.array([fp8_formats.limit(FORMATS[index]) for index in formats], F32)
        for step in range(steps):
            history = np.concatenate([amax[step][None], history[1:]])
            history, fresh = te_history_step(history, scales, largest, algo, margin)
            scales = fresh if recompute[step] else scales
            tally.compare("history", f"length {length}, {algo}, margin {margin}, interval {interval}, step {step}",
                          found[step], np.concatenate([scales[None], history]))
        total += steps
    return total


def main():
    if not TOOL.exists():
        sys.exit(f"wanted {TOOL}, found none; build it: ninja -C {fp8_formats.BUILD} {TOOL.name}")
    if len(sys.argv) > 1:
        sys.exit(f"wanted no arguments, found {sys.argv[1:]}")
    np.seterr(all="ignore")  # infinities, NaN and divisions by zero are part of the test
    began, tally = time.time(), Tally()
    steps = check_history(tally)
    tensors = check_tensors(tally, Torchao(tally))
    print("torchao went its own way: " + " ".join(f"{name}={count}" for name, count in sorted(tally.seen.items())))
    missing = {"nan", "epsilon", "infinite", "log2", "code_0"} - {name for name, count in tally.seen.items() if count}
    assert not missing, f"these exceptions did not occur and so were not checked: {missing}"
    counts = tally.counts
    print(f"tensors={tensors} elements={tally.elements} codes_different={counts['codes']} "
          f"scales_different={counts['scales']} sides_different={counts['sides']} "
          f"incidents_different={counts['incidents']} history_steps={steps} history_different={counts['history']} "
          f"seconds={time.time() - began:.0f}")
    sys.exit(1 if any(counts.values()) else 0)


if __name__ == "__main__":
    main()
