#!/usr/bin/env -S sh -c 'exec "$(dirname "$0")/../../.deps/venv/bin/python" "$0" "$@"'
# test: label=conformance timeout=600 gate="" measures="src/fp8"
"""E4M3, E5M2 and E8M0 against ml_dtypes: every code, every BF16 value, float32 values, and stochastic rounding.

usage: fp8_formats.py [--exhaustive]    all 2^32 float32 instead of a sample of 20 million (also: OCTAVO_EXHAUSTIVE=1)

Everything is compared bit for bit, with two agreements that ml_dtypes cannot know of:
- where ml_dtypes has no saturation, the wanted codes of mode "saturate" are those of the clamped values;
- a NaN in E5M2 is written here as 0x7F with its sign, as torch does, and as 0x7E with its sign by ml_dtypes.
"""
import os
import pathlib
import subprocess
import sys
import time

import ml_dtypes
import numpy as np

ROOT = pathlib.Path(__file__).resolve().parents[2]
BUILD = pathlib.Path(os.environ.get("OCTAVO_BUILD", ROOT / "build" / "release"))
TOOL = BUILD / "bin" / "fp8_formats_tool"

TYPES = {"e4m3": ml_dtypes.float8_e4m3fn, "e5m2": ml_dtypes.float8_e5m2, "e8m0": ml_dtypes.float8_e8m0fnu}
FLOATS = ("e4m3", "e5m2")
SAMPLE = 20_000_000
CHUNK = 1 << 23  # float32 values compared at a time; a power of two of one sign each
DRAWS = 1 << 18  # per pool of stochastic rounding
STANDARD_ERRORS = 4


def tool(*arguments, values=None):
    data = None if values is None else values.tobytes()
    done = subprocess.run([TOOL, *map(str, arguments)], input=data, stdout=subprocess.PIPE, check=True)
    return np.frombuffer(done.stdout, np.uint8)


class Tally:
    def __init__(self):
        self.compared = self.differences = 0

    def compare(self, what, inputs, found, wanted):
        """`inputs` names the elements in the complaint."""
        assert len(found) == len(wanted), f"{what}: wanted {len(wanted)} results, found {len(found)}"
        self.compared += len(wanted)
        if np.array_equal(found, wanted):
            return
        wrong = np.flatnonzero(found != wanted)
        self.differences += len(wrong)
        for i in wrong[:5]:
            print(f"{what}: {inputs[i]!r}: wanted {wanted[i]:#x}, found {found[i]:#x}")


def limit(name):
    return float(ml_dtypes.finfo(TYPES[name]).max)


def native_codes(name, values):
    codes = values.astype(TYPES[name]).view(np.uint8)
    if name == "e5m2":
        nan = (codes & 0x7F) > 0x7C
        if nan.any():
            assert np.all((codes[nan] & 0x7F) == 0x7E), "ml_dtypes writes another NaN than it did; look at it again"
            codes = codes | nan  # 0x7E | 1
    return codes


def float_codes(name, values):
    """{mode: codes wanted}"""
    native = native_codes(name, values)
    largest = limit(name)
    if not np.any(np.abs(values) > largest):  # NaN is not larger
        return {"native": native, "saturate": native}
    return {"native": native, "saturate": native_codes(name, np.clip(values, -largest, largest))}


def scale_codes(values):
    """{mode: codes wanted}: the power of two above and below, found from ml_dtypes' nearest one."""
    nearest = values.astype(TYPES["e8m0"])
    code = nearest.view(np.uint8).astype(np.int16)
    power = nearest.astype(np.float32)  # NaN where ml_dtypes overflows
    finite_or_inf = values > 0
    top = finite_or_inf & (code == 255)
    bad = np.isnan(values) | (values < 0)
    result = {}
    for mode, moved in (("up", code + (power < values)), ("down", code - (power > values))):
        wanted = np.clip(moved, 0, 254)
        wanted[top] = 254
        wanted[values == 0] = 0
        wanted[bad] = 255
        result[mode] = wanted.astype(np.uint8)
    return result


def wanted_codes(name, values):
    return scale_codes(values) if name == "e8m0" else float_codes(name, values)


def check_codes(tally):
    for name, kind in TYPES.items():
        wanted = np.arange(256, dtype=np.uint8).view(kind).astype(np.float32).view(np.uint32)
        tally.compare(f"decode {name}", range(256), tool("decode", name).view(np.uint32), wanted)


def check_bf16(tally):
    values = np.arange(65536, dtype=np.uint16).view(ml_dtypes.bfloat16)
    wide = values.astype(np.float32)
    for name in FLOATS:
        # From BF16 itself: no float32 in between on the side of ml_dtypes.
        tally.compare(f"bf16 {name} native", wide, tool("bf16", name, "native"), native_codes(name, values))
        for mode, wanted in float_codes(name, wide).items():
            tally.compare(f"bf16 {name} {mode}", wide, tool("bf16", name, mode), wanted)
    for mode, wanted in scale_codes(wide).items():
        tally.compare(f"bf16 e8m0 {mode}", wide, tool("encode", "e8m0", mode, values=wide), wanted)


def sample_values():
    """Half of them any bits; half within one ulp of where k mantissa bits end or are halved: ties, for some k."""
    chance = np.random.default_rng(20)
    plain = chance.integers(0, 1 << 32, SAMPLE // 2, dtype=np.uint32)
    signs_and_exponents = chance.integers(0, 512, SAMPLE // 2, dtype=np.uint32) << np.uint32(23)
    kept = chance.integers(0, 24, SAMPLE // 2, dtype=np.uint32)
    mantissa = chance.integers(0, 1 << 23, SAMPLE // 2, dtype=np.uint32)
    mantissa &= ~((np.uint32(1) << (np.uint32(23) - kept)) - np.uint32(1)) & np.uint32(0x7FFFFF)
    near = signs_and_exponents + mantissa + chance.integers(-1, 2, SAMPLE // 2).astype(np.uint32)
    bits = np.concatenate([plain, near])
    assert len(np.unique(bits >> np.uint32(23))) == 512, "the sample must hold every sign and exponent"
    return bits.view(np.float32)


def check_sample(tally):
    values = sample_values()
    for name in TYPES:
        found = {mode: tool("encode", name, mode, values=values)
                 for mode in (("up", "down") if name == "e8m0" else ("saturate", "native"))}
        for begin in range(0, SAMPLE, CHUNK):
            part = slice(begin, begin + CHUNK)
            for mode, wanted in wanted_codes(name, values[part]).items():
                tally.compare(f"float32 {name} {mode}", values[part], found[mode][part], wanted)


def check_all_floats(tally):
    for name in TYPES:
        began = time.time()
        modes = ("up", "down") if name == "e8m0" else ("saturate", "native")
        streams = {mode: subprocess.Popen([TOOL, "range", name, mode, "0", str(1 << 32)], stdout=subprocess.PIPE)
                   for mode in modes}
        base = np.arange(CHUNK, dtype=np.uint32)
        for first in range(0, 1 << 32, CHUNK):
            values = (base + np.uint32(first)).view(np.float32)
            for mode, wanted in wanted_codes(name, values).items():
                found = np.frombuffer(streams[mode].stdout.read(CHUNK), np.uint8)
                tally.compare(f"float32 {name} {mode}", values, found, wanted)
        for mode, stream in streams.items():
            assert stream.stdout.read() == b"" and stream.wait() == 0, f"{name} {mode}: the tool went wrong"
        print(f"{name}: all 2^32 float32 in {' and '.join(modes)}, {time.time() - began:.0f} s", flush=True)


def check_incidents(tally):
    """What is lost, told from ml_dtypes' results alone."""
    values = sample_values()[-(1 << 21):]
    values = np.concatenate([values, np.float32([np.nan, -np.nan, np.inf, -np.inf, 0, -0.0])])
    for name in FLOATS:
        rounded = native_codes(name, values).view(TYPES[name]).astype(np.float32)
        wanted = np.zeros(len(values), np.uint8)
        wanted[(rounded == 0) & (values != 0)] = 4
        wanted[~np.isfinite(rounded)] = 3
        wanted[np.isinf(values)] = 2
        wanted[np.isnan(values)] = 1
        tally.compare(f"classify {name}", values, tool("classify", name, values=values), wanted)
        assert len(np.unique(wanted)) == 5


def pools(name):
    """(label, low, high, gap) of |value|: each binade, its lower and upper halves between codes apart.

    Over a whole binade, rounding to nearest has no bias either. Over the values in the lower (or upper) half of their
    gaps it has one of a quarter gap, so these pools tell stochastic rounding from it.
    """
    info = ml_dtypes.finfo(TYPES[name])
    smallest, normal = float(info.smallest_subnormal), float(info.smallest_normal)
    chance = np.random.default_rng(30)
    base = smallest * 2.0 ** -12
    while base < limit(name):
        top = min(2 * base, limit(name))
        gap = smallest if base < normal else base / (normal / smallest)
        if base < smallest:  # less than one gap wide: one pool
            yield base, gap, chance.uniform(base, top, DRAWS)
        else:
            codes = chance.integers(round(base / gap), round(top / gap), DRAWS)
            for half in (0.0, 0.5):
                yield base, gap, (codes + half + chance.uniform(0, 0.5, DRAWS)) * gap
        base *= 2


def standard_errors(name, codes, values, gap):
    """How many of its standard errors the mean error is off zero; the variance is known: f (1 - f) gap^2."""
    exact = values.astype(np.float64)
    errors = codes.view(TYPES[name]).astype(np.float64) - exact
    fraction = np.abs(exact) / gap % 1.0
    return errors.sum() / (gap * np.sqrt((fraction * (1 - fraction)).sum()))


def check_stochastic(tally):
    """Unbiased in every pool; and rounding to nearest is found biased in every one, or this check shows nothing."""
    worst, weakest, count = 0.0, np.inf, 0
    for name in FLOATS:
        for number, (base, gap, magnitudes) in enumerate(pools(name)):
            for sign in (1, -1):
                values = (sign * magnitudes).astype(np.float32)
                codes = tool("stochastic", name, 1000 * sign + number + 5000, values=values)
                off = abs(standard_errors(name, codes, values, gap))
                control = abs(standard_errors(name, native_codes(name, values), values, gap))
                neighbours = np.abs(codes.view(TYPES[name]).astype(np.float64) - values) < gap
                tally.compared += len(codes)
                if off > STANDARD_ERRORS or not neighbours.all():
                    tally.differences += 1
                    print(f"stochastic {name}, {sign * base:g} upwards: off by {off:.2f} standard errors, "
                          f"{(~neighbours).sum()} results are not a neighbour")
                worst, weakest, count = max(worst, off), min(weakest, control), count + 1
    assert weakest > STANDARD_ERRORS, f"rounding to nearest is only {weakest:.2f} standard errors off: not told apart"
    return worst, weakest, count


def main():
    if not TOOL.exists():
        sys.exit(f"wanted {TOOL}, found none; build it: ninja -C {BUILD} fp8_formats_tool")
    if set(sys.argv[1:]) - {"--exhaustive"}:
        sys.exit(f"wanted --exhaustive or nothing, found {sys.argv[1:]}")
    exhaustive = "--exhaustive" in sys.argv or os.environ.get("OCTAVO_EXHAUSTIVE", "0") == "1"
    np.seterr(invalid="ignore")  # casts of NaN are part of the test
    began, tally = time.time(), Tally()
    check_codes(tally)
    check_bf16(tally)
    check_incidents(tally)
    worst, weakest, count = check_stochastic(tally)
    (check_all_floats if exhaustive else check_sample)(tally)
    print(f"float32={'all' if exhaustive else SAMPLE} bf16=65536 compared={tally.compared} "
          f"stochastic_pools={count} stochastic_worst_se={worst:.2f} nearest_least_se={weakest:.2f} "
          f"seconds={time.time() - began:.0f} differences={tally.differences}")
    sys.exit(1 if tally.differences else 0)


if __name__ == "__main__":
    main()
