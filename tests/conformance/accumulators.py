#!/usr/bin/env -S sh -c 'exec "$(dirname "$0")/../../.deps/venv/bin/python" "$0" "$@"'
# test: label=conformance timeout=600 gate="" measures="src/fp8"
"""The sums of Hopper's FP8 tensor cores (src/fp8/accumulator.h), bit for bit: against MMA-Sim, and against its model in NumPy.

usage: accumulators.py                    the test
       accumulators.py --errors           how large the differences are: the table of docs/concepts/rehearsal-and-gpus.md
       accumulators.py --mmasim FOLDER    runs MMA-Sim (`pip install --target FOLDER mmasim`) and writes accumulators_mmasim.json

MMA-Sim (microsoft/MMA-Sim) is no dependency of this project: what it gave was kept, as a hash of each case's results. Cases are
GEMMs of 64 x 8 results, one warp group's instruction, of K 32 to 16384. Their codes come out of SHAKE-256, so that they are the same
everywhere. The model is stated here again, in FP64, which holds every number of it: where a hash differs, it names the first results
that are wrong; and it also covers sums that are no multiple of 32.
"""
import argparse
import hashlib
import json
import pathlib
import subprocess
import sys
import typing

import ml_dtypes
import numpy as np

import fp8_formats

HERE = pathlib.Path(__file__).resolve().parent
KEPT = HERE / "accumulators_mmasim.json"
TOOL = fp8_formats.BUILD / "bin" / "accumulators_tool"
ROWS_A, ROWS_B, GROUP, SPAN, BITS = 64, 8, 32, 128, 13
LEAST_DOTS = 100_000
WHEEL = "5b3705b550814dd3011c60042e996ed1cd84ce01e179ad43fe9fbd96b2b17c4a"  # SHA-256 of mmasim 2.1.1 on PyPI

# How many cases of each K; of the last three none is MMA-Sim's, whose instructions take 32 terms.
CASES_OF = {32: 30, 64: 30, 96: 20, 128: 30, 160: 10, 256: 24, 512: 20, 1024: 16, 2048: 10, 4096: 6, 8192: 3, 16384: 2,
            1: 3, 33: 6, 1000: 6}
FORMATS = (("e4m3", "e4m3"), ("e5m2", "e4m3"), ("e4m3", "e5m2"))
KINDS = ("any", "near", "cancel", "tiny", "special", "gauss")
SMALLEST = {"e4m3": -6, "e5m2": -14}  # exponent of a normal number


class Case(typing.NamedTuple):
    terms: int
    number: int

    @property
    def formats(self):
        return FORMATS[self.number % 3]

    @property
    def kind(self):
        return KINDS[(self.number // 3 + self.number) % len(KINDS)]

    @property
    def promoted(self):
        return self.number % 2 == 1

    @property
    def name(self):
        mode = "promoted" if self.promoted else "fast"
        return f"{self.terms}.{self.number}.{'x'.join(self.formats)}.{self.kind}.{mode}"


def cases():
    return [Case(terms, number) for terms, count in CASES_OF.items() for number in range(count)]


# ---- codes


def largest_code(name):
    return {"e4m3": 0x7E, "e5m2": 0x7B}[name]


def codes_of(case, side):
    """[rows, K] bytes."""
    rows, name = ((ROWS_A, case.formats[0]), (ROWS_B, case.formats[1]))[side]
    count = rows * case.terms
    drawn = np.frombuffer(hashlib.shake_256(f"{case.name}.{side}".encode()).digest(4 * count), np.uint8).reshape(4, rows, case.terms)
    signs, most = drawn[0] & 0x80, largest_code(name)
    if case.kind in ("any", "special"):
        codes = signs | (drawn[1] % (most + 1)).astype(np.uint8)
    elif case.kind == "near":  # four binades below the largest
        span = 32 if name == "e4m3" else 16
        codes = signs | (most - drawn[1] % span).astype(np.uint8)
    elif case.kind == "tiny":  # zeros, subnormals and the smallest normals
        codes = signs | (drawn[1] % 12).astype(np.uint8)
    else:  # sums of uniform numbers, as activations are after scaling; in "cancel" each is followed by its negative
        values = drawn.astype(np.float32).sum(0) - 510
        codes = values.astype(fp8_formats.TYPES[name]).view(np.uint8)
        if case.kind == "cancel" and side == 0:
            codes = codes.copy()
            half = case.terms // 2
            codes[:, half:2 * half] = codes[:, :half][:, ::-1] ^ 0x80
        elif case.kind == "cancel":
            codes = codes.copy()
            half = case.terms // 2
            codes[:, half:2 * half] = codes[:, :half][:, ::-1]
    if case.kind == "special":  # a NaN in one row, of E5M2 infinities in two others
        codes = codes.copy()
        codes[0, 0] = 0x7F
        if name == "e5m2":
            codes[1, -1], codes[2, 0], codes[2, -1] = 0x7C, 0x7C, 0xFC
    return codes


# ---- the model


def parts(name, codes):
    """Significand and exponent; a subnormal has the smallest exponent, a zero one that counts for nothing."""
    values = codes.view(fp8_formats.TYPES[name]).astype(np.float64)
    finite = np.where(np.isfinite(values), values, 0)
    exponents = np.maximum(np.frexp(finite)[1] - 1, SMALLEST[name])
    return values, np.ldexp(finite, -exponents), np.where(finite == 0, -500, exponents)


def cut(values, exponents):
    """`values` as multiples of 2^(exponents - 13), towards zero."""
    return np.ldexp(np.trunc(np.ldexp(values, BITS - exponents)), exponents - BITS)


def instruction(c, a, a_exponents, b, b_exponents):
    """[M, N] accumulators and the [M, 32] and [N, 32] significands and exponents of one group."""
    exponents = a_exponents[:, None, :] + b_exponents[None, :, :]
    products = np.ldexp(a[:, None, :] * b[None, :, :], np.maximum(exponents, -300))
    own = np.where(c == 0, -1000, np.frexp(c)[1] - 1)
    largest = np.maximum(exponents.max(2), own)
    largest = np.maximum(largest, -200)  # all zeros
    total = cut(c, largest) + cut(products, largest[:, :, None]).sum(2)
    return cut(total, np.where(total == 0, 0, np.frexp(total)[1] - 1))


def padded(array, fill):
    short = -array.shape[1] % GROUP
    return np.pad(array, ((0, 0), (0, short)), constant_values=fill)


def stated(case):
    (a_values, a, a_exponents), (b_values, b, b_exponents) = (parts(name, codes_of(case, side))
                                                              for side, name in enumerate(case.formats))
    a, b, a_exponents, b_exponents = padded(a, 0), padded(b, 0), padded(a_exponents, -500), padded(b_exponents, -500)
    span = SPAN if case.promoted else a.shape[1]
    result = np.zeros((ROWS_A, ROWS_B), np.float32)
    for first in range(0, a.shape[1], span):
        c = np.zeros((ROWS_A, ROWS_B))
        for k in range(first, min(first + span, a.shape[1]), GROUP):
            group = slice(k, k + GROUP)
            c = instruction(c, a[:, group], a_exponents[:, group], b[:, group], b_exponents[:, group])
        result = result + c.astype(np.float32)
    # NaN and infinities are those of plain arithmetic. Sums of uniform numbers have a few too: what is above 448 is NaN in E4M3.
    with np.errstate(invalid="ignore"):
        plain = a_values @ b_values.T
    rows = ~np.isfinite(a_values).all(1)[:, None] | ~np.isfinite(b_values).all(1)[None, :]
    return np.where(rows, plain.astype(np.float32), result)


def bits(results):
    """With one NaN and one zero."""
    results = np.where(np.isnan(results), np.float32(np.nan), results.astype(np.float32) + np.float32(0))
    return results.view(np.uint32)


def digest(results):
    return hashlib.sha256(bits(results).astype("<u4").tobytes()).hexdigest()[:32]


# ---- MMA-Sim


def with_mmasim(case, make):
    import torch
    types = {"e4m3": torch.float8_e4m3fn, "e5m2": torch.float8_e5m2}
    a, b = (torch.from_numpy(codes_of(case, side).copy()).view(types[name]) for side, name in enumerate(case.formats))
    operation = make(*case.formats)
    span = SPAN if case.promoted else case.terms
    result = np.zeros((ROWS_A, ROWS_B), np.float32)
    for first in range(0, case.terms, span):
        c = torch.zeros(ROWS_A, ROWS_B)
        for k in range(first, min(first + span, case.terms), GROUP):
            c = operation(a[:, k:k + GROUP], b[:, k:k + GROUP].T, c)
        result = result + c.numpy()
    return result


def from_mmasim(case):
    return case.terms % GROUP == 0


def make_kept(folder):
    """Runs MMA-Sim from `folder` and keeps what it gave."""
    sys.path.insert(0, str(folder))
    import importlib.metadata
    from mmasim.nv_ptx.sim import WGMMA
    made = {}

    def operation(*formats):
        return made.setdefault(formats, WGMMA("Hopper", f"m64n8k32.f32.{formats[0]}.{formats[1]}"))

    wanted = [case for case in cases() if from_mmasim(case)]
    kept = {case.name: digest(with_mmasim(case, operation)) for case in wanted}
    version = next(d.version for d in importlib.metadata.distributions(path=[str(folder)]) if d.metadata["Name"] == "mmasim")
    source = {"package": "mmasim", "version": version, "repository": "microsoft/MMA-Sim", "operation": "wgmma m64n8k32, Hopper",
              "wheel_sha256": WHEEL if version == "2.1.1" else "unknown"}
    KEPT.write_text(json.dumps({"source": source, "results": "SHA-256 of 64 x 8 FP32, the first 32 digits", "cases": kept}, indent=1)
                    + "\n")
    print(f"kept={len(kept)} dots={len(kept) * ROWS_A * ROWS_B} version={version}")


# ---- the program


def found_by_program(case):
    words = [*case.formats, ROWS_A, ROWS_B, case.terms, "promoted" if case.promoted else "fast"]
    done = subprocess.run([TOOL, *map(str, words)], input=b"".join(codes_of(case, side).tobytes() for side in (0, 1)),
                          stdout=subprocess.PIPE, check=True)
    return np.frombuffer(done.stdout, np.float32).reshape(ROWS_A, ROWS_B)


def multiplied(codes_a, codes_b, mode):
    """By the program, E4M3."""
    words = ["e4m3", "e4m3", len(codes_a), len(codes_b), codes_a.shape[1], mode]
    done = subprocess.run([TOOL, *map(str, words)], input=codes_a.tobytes() + codes_b.tobytes(), stdout=subprocess.PIPE, check=True)
    return np.frombuffer(done.stdout, np.float32).reshape(len(codes_a), len(codes_b)).astype(np.float64)


def errors():
    """Of GEMMs of normal numbers, quantized by recipe current, in Markdown."""
    def off(found, wanted):
        return np.linalg.norm(found - wanted) / np.linalg.norm(wanted)

    def bf16(values):
        return values.astype(np.float32).astype(ml_dtypes.bfloat16).astype(np.float64)

    for terms in (768, 4096, 14336):
        rows = {name: [] for name in ("fast", "changed", "promoted", "order", "noise", "bias")}
        for seed in range(4):
            chance = np.random.default_rng(seed)
            numbers = [chance.normal(size=(96, terms)).astype(np.float32) for _ in "ab"]
            scaled = [x * (np.float32(448) / np.abs(x).max()) for x in numbers]
            codes = [x.astype(fp8_formats.TYPES["e4m3"]).view(np.uint8) for x in scaled]
            a, b = (x.view(fp8_formats.TYPES["e4m3"]).astype(np.float64) for x in codes)
            wanted = a @ b.T
            fast, promoted = multiplied(*codes, "fast"), multiplied(*codes, "promoted")
            single = np.zeros(wanted.shape, np.float32)
            for k in range(terms):  # one after the other
                single += a[:, k, None].astype(np.float32) * b[None, :, k].astype(np.float32)
            rows["fast"].append(off(fast, wanted))
            rows["changed"].append(100 * np.mean(bf16(fast) != bf16(wanted)))
            rows["promoted"].append(off(promoted, wanted))
            rows["order"].append(off(single, wanted))
            rows["noise"].append(off(wanted, scaled[0].astype(np.float64) @ scaled[1].T.astype(np.float64)))
            rows["bias"].append(np.mean((np.abs(fast) - np.abs(wanted))) / np.mean(np.abs(wanted)))
        print(f"| {terms} | {np.mean(rows['fast']):.1e} | {np.mean(rows['changed']):.0f}% | {np.mean(rows['promoted']):.1e} | "
              f"{np.mean(rows['order']):.0e} |  (quantizing {np.mean(rows['noise']):.1e}, mean of |fast| {np.mean(rows['bias']):+.1e})")
    return 0


def exact(case):
    a, b = (codes_of(case, side).view(fp8_formats.TYPES[name]).astype(np.float64) for side, name in enumerate(case.formats))
    return a @ b.T


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--mmasim", type=pathlib.Path, help="folder that MMA-Sim is installed in: run it and keep its results")
    parser.add_argument("--errors", action="store_true", help="how large the differences are")
    options = parser.parse_args()
    if options.errors:
        return errors()
    if options.mmasim:
        return make_kept(options.mmasim)
    kept = json.loads(KEPT.read_text())["cases"]
    different = mmasim_different = mmasim_dots = dots = not_fp32 = 0
    for case in cases():
        found = found_by_program(case)
        dots += found.size
        wrong = bits(found) != bits(stated(case))
        different += int(wrong.sum())
        for i, j in np.argwhere(wrong)[:3]:
            print(f"{case.name}: [{i}, {j}]: wanted {stated(case)[i, j]!r}, found {found[i, j]!r}")
        if case.kind == "gauss":
            not_fp32 += int(np.sum(np.isfinite(found) & (found != exact(case).astype(np.float32))))
        if from_mmasim(case):
            mmasim_dots += found.size
            if digest(found) != kept.get(case.name):
                mmasim_different += found.size
                print(f"{case.name}: MMA-Sim's results have the hash {kept.get(case.name)}, found {digest(found)}")
    longest = max(case.terms for case in cases())
    print(f"dots={dots} mmasim_dots={mmasim_dots} longest={longest} different={different} mmasim_different={mmasim_different} "
          f"not_fp32={not_fp32}")
    # Sums that are all those of FP32 would prove nothing.
    return 1 if different or mmasim_different or mmasim_dots < LEAST_DOTS or not_fp32 < 1000 else 0


if __name__ == "__main__":
    sys.exit(main())
