"""A linear layer under an FP8 recipe, stated in NumPy: the oracle of fp8_gemm.py. FP64, with BF16 where the layer keeps BF16.

Quantizing is by the rules of fp8_recipes.py, which are Transformer Engine's and torchao's, and ml_dtypes.
"""
import typing

import ml_dtypes
import numpy as np

import fp8_formats
import fp8_recipes as rules

F32, F64 = np.float32, np.float64
HISTORY = 1024  # the program's default


class Layer(typing.NamedTuple):
    """Of one shape: FP32 arrays of BF16 numbers, y = x w^T, and FP32 bias."""
    x: np.ndarray
    w: np.ndarray
    dy: np.ndarray
    bias: np.ndarray


# ---- numbers


def bf16(values):
    return np.asarray(values, F32).astype(ml_dtypes.bfloat16).astype(F32)


def ulp_bf16(values):
    exponent = np.where(values == 0, -126, np.frexp(values)[1] - 1)
    return np.ldexp(1.0, np.maximum(exponent, -126) - 7)


def round_bf16(values):
    """FP64 to the nearest BF16 number, ties to even, in one rounding (ml_dtypes goes through FP32)."""
    ulp = ulp_bf16(values)
    return np.rint(values / ulp) * ulp


def numbers(chance, shape, kind, gradient=1e-6):
    """Activations with outlier channels, weights as GPT-2's, gradients of tokens that matter more and less.

    wide: in all three, rows and columns differ by up to 2^16 too. Then a scale along the wrong side loses all of a result;
    with realistic numbers the copies of the recipes with powers of two hold almost the same.
    """
    tokens, inputs, outputs = shape
    x = chance.normal(size=(tokens, inputs))
    x[:, chance.random(inputs) < 0.01] *= 30
    w = 0.02 * chance.normal(size=(outputs, inputs))
    dy = gradient * chance.normal(size=(tokens, outputs)) * np.exp(chance.normal(size=(tokens, 1)))
    if kind == "wide":
        x, w, dy = (part * np.exp2(chance.integers(-8, 9, (len(part), 1)) + chance.integers(-8, 9, part.shape[1]))
                    for part in (x, w, dy))
    return Layer(bf16(x), bf16(w), bf16(dy), (0.1 * chance.normal(size=outputs)).astype(F32))


# ---- the recipes


class Operand(typing.NamedTuple):
    codes: np.ndarray
    decode: np.ndarray  # per block
    values: np.ndarray  # FP64 [rows, columns], codes times decode
    stored: np.ndarray  # what the rehearsal multiplies: without a scale that is no power of two


VALUES = {name: np.arange(256, dtype=np.uint8).view(fp8_formats.TYPES[name]).astype(F64) for name in fp8_formats.FLOATS}


def quantized(recipe, choice, role, direction, values, given):
    name = rules.stated_format(choice, role, direction)
    turned = values if direction == "row" else np.ascontiguousarray(values.T)
    block = rules.block_of(recipe, role, turned.shape)
    made, _ = rules.stated(recipe, name, block, turned, F32(given))
    own = VALUES[name][made.codes]
    decoded = own * rules.spread(made.decode, block, turned.shape)
    stored = own if recipe in ("delayed", "current") else decoded
    parts = (made.codes, made.decode, decoded, stored)
    return Operand(*(parts if direction == "row" else (part.T for part in parts)))


def exact_gemm(a, b):
    """Of [M, K] and [K, N]: the truth, and sum|a_i b_i| (by FP32 sums, and so a little more)."""
    size = np.abs(a).astype(F32) @ np.abs(b).astype(F32)
    return a @ b, size.astype(F64) * (1 + 2.0 ** -10)


def accumulation_bound(terms, size):
    """What FP32 sums explain: B of fp8_gemm.py."""
    return (2 * np.sqrt(terms) + 3) * 2.0 ** -24 * size


def gemms_of(x, w, dy):
    """{GEMM: (K, the two matrices)} from (row, column) pairs."""
    return {"y": (x[0].shape[1], x[0], w[0].T), "dx": (dy[0].shape[1], dy[0], w[1]), "dw": (dy[1].shape[0], dy[1].T, x[1])}


# ---- a layer in training

SQRT_2_OVER_PI, CUBIC = np.sqrt(2 / np.pi), 0.044715


def gelu(x):
    """GPT-2's, and its slope."""
    t = np.tanh(SQRT_2_OVER_PI * (x + CUBIC * x ** 3))
    slope = 0.5 * (1 + t) + 0.5 * x * (1 - t * t) * SQRT_2_OVER_PI * (1 + 3 * CUBIC * x * x)
    return 0.5 * x * (1 + t), slope


class Wanted(typing.NamedTuple):
    exact: np.ndarray
    bound: np.ndarray  # what FP32 sums may add


class Model:
    """A linear layer under one recipe, with or without GELU after it: its micro-batches and its scaling state."""

    def __init__(self, recipe, choice, with_gelu):
        self.recipe, self.choice, self.with_gelu = recipe, choice, with_gelu
        # Delayed: a copy in another format has a factor of its own.
        self.names, self.slots, self.largest = [], {}, []
        for role in rules.ROLES:
            row, column = (rules.stated_format(choice, role, direction) for direction in rules.DIRECTIONS)
            for direction, name, format_name in (("row", role, row), ("column", role + ".column", column)):
                if direction == "row" or row != column:
                    self.names.append(name)
                    self.largest.append(fp8_formats.limit(format_name))
                self.slots[role, direction] = len(self.names) - 1
        self.factors = np.ones(len(self.names), F32)
        self.history = np.zeros((HISTORY, len(self.names)), F32)
        self.weight = None

    def quantize(self, role, values):
        """(row, column), and the largest magnitude goes to row 0 of the history."""
        pair = []
        for direction in rules.DIRECTIONS:
            slot = self.slots[role, direction]
            pair.append(quantized(self.recipe, self.choice, role, direction, values, self.factors[slot]).values)
            self.history[0, slot] = max(self.history[0, slot], np.abs(values).max())
        return pair

    def micro_batch(self, x, w, bias, dy):
        """{y, dx, dw, db: Wanted}. A weight is quantized in the first of a step, as with Transformer Engine's is_first_microbatch."""
        if self.weight is None:
            self.weight = self.quantize("weight", w)
        x, w = self.quantize("input", x), self.weight
        h, size = exact_gemm(x[0], w[0].T)
        wanted = {"y": Wanted(h + bias, accumulation_bound(w[0].shape[1], size + np.abs(bias)))}
        if self.with_gelu:
            y, slope = gelu(round_bf16(wanted["y"].exact))
            wanted["y"], dy = Wanted(y, 0 * y), round_bf16(dy * slope).astype(F32)
        pairs = gemms_of(x, w, self.quantize("gradient", dy))
        for gemm in ("dx", "dw"):
            terms, a, b = pairs[gemm]
            exact, size = exact_gemm(a, b)
            wanted[gemm] = Wanted(exact, accumulation_bound(terms, size))
        dy = dy.astype(F64)
        wanted["db"] = Wanted(dy.sum(0), accumulation_bound(len(dy), np.abs(dy).sum(0)))
        self.update()
        return wanted

    def update(self):
        """Transformer Engine: forward tensors when the autocast of a micro-batch ends, gradients when its backward pass does."""
        if self.recipe == "delayed":
            self.history, self.factors = rules.te_history_step(self.history, self.factors, np.array(self.largest, F32), "max", 0)

    def finish_step(self):
        """The state as the program names it."""
        self.weight = None
        if self.recipe != "delayed":
            return {}
        state = {f"factor.layer.{name}": self.factors[i : i + 1] for i, name in enumerate(self.names)}
        return state | {f"amax_history.layer.{name}": self.history[:, i] for i, name in enumerate(self.names)}
