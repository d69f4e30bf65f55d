#!/usr/bin/env -S sh -c 'exec "$(dirname "$0")/../../.deps/venv/bin/python" "$0" "$@"'
# test: label=conformance timeout=1800 gate="--short" night="" measures="src/kernels"
"""The tests of our CUDA kernels' bodies must see a fault: each of these mutations of a body must make one of them fail.

usage: kernels.py [--short] [--only TEXT]

Every test is built from a copy of src/kernels with one line of it changed. Without --short all of it is also built as it is
for the address and undefined-behaviour sanitizers and for the thread sanitizer, to which a missing barrier is a data race,
and must pass. --short: one mutation of four kernels; ctest runs the tests as they are.
"""
import argparse
import concurrent.futures
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
BUILD = pathlib.Path(os.environ.get("OCTAVO_BUILD", ROOT / "build" / "release"))
FLAGS = ["-std=c++20", "-ffp-contract=off", "-DOCTAVO_FEW_STORAGES"]
SANITIZERS = {"address": ["-O1", "-fsanitize=address,undefined", "-fno-sanitize-recover=undefined"],
              "thread": ["-O1", "-fsanitize=thread"]}

# Test, header, what is there, what it becomes.
MUTATIONS = [
    ("adamw", "adamw.h", "first / 4 + half", "first / 4"),
    ("adamw", "adamw.h", "adamw::weight_bits(lane.words[i])", "adamw::moment_bits(lane.words[i])"),
    ("adamw", "adamw.h", "adamw::to_bf16(values[i], adamw::moment_bits(words[i]))",
     "adamw::to_bf16(values[i], adamw::weight_bits(words[i]))"),
    ("adamw", "adamw.h", "join_lanes<kLanesOfScale>", "join_lanes<kLanesOfScale / 2>"),
    ("adamw", "adamw.h", "first % adamw::kBlock == 0", "first % (2 * adamw::kBlock) == 0"),
    ("adamw", "adamw.h", "    block.barrier();\n    const AdamWTensor", "    const AdamWTensor"),
    ("adamw", "adamw.h", "t.first_counter + static_cast", "static_cast"),
    ("adamw", "adamw.h", "tile += kTile", "tile += 2 * kTile"),
    ("adamw", "adamw.h", "(block.index() - t.first_block)", "block.index()"),
    ("adamw", "adamw.h", "store(lane.w, count, t.compute + first)", "store(lane.w, count - 1, t.compute + first)"),
    ("adamw", "adamw.h", "roots[i] = std::sqrt(lane.v[i])", "roots[i] = lane.v[i]"),
    ("adamw", "random_words.h", "round < 10", "round < 9"),
    ("adamw", "block_table.h", "first_block <= block", "first_block < block"),
    ("portable", "portable.h", "(bits >> 16 & 1)", "(bits >> 17 & 1)"),
    ("portable", "portable.h", "i < count ? widened(p[i])", "i <= count ? widened(p[i])"),
    ("portable", "portable.h", "static_cast<uint32_t>(in[2 * i + 1]) << 16", "static_cast<uint32_t>(in[2 * i]) << 16"),
    ("portable", "portable.h", "static_cast<uint32_t>(in[i]) << (8 * (i % 4))", "static_cast<uint32_t>(in[i]) << (8 * (i % 3))"),
    ("cross_entropy", "cross_entropy.h", "sum.sum * std::exp(sum.max - largest)", "sum.sum"),
    ("cross_entropy", "cross_entropy.h", "other.sum * std::exp(other.max - larger)", "other.sum"),
    ("cross_entropy", "cross_entropy.h", "p - a.grad_scale : p", "p : p"),
    ("cross_entropy", "cross_entropy.h", "1 + 2 * a.z_weight", "1 + a.z_weight"),
    ("cross_entropy", "cross_entropy.h", "{0, 0};", "{1, 0};"),
    ("cross_entropy", "cross_entropy.h", "i + k < classes ? std::exp", "i + k <= classes ? std::exp"),
    ("cross_entropy", "reduce.h", "warp < kThreads / kWarp", "warp < kThreads / kWarp - 1"),
    ("norm", "norm.h", "if (column_of<kThreads>(block, n) + k < a.columns)", "if (true)"),
    ("norm", "norm.h", "row[n][k] = widened(sum[k])", "row[n][k] += delta[k]"),
    ("norm", "norm.h", "magnitude <= 0x7F800000 && ", ""),
    ("norm", "norm.h", "widened(normed[k]) * scale", "widened(normed[k])"),
    ("norm", "norm.h", "variance + a.eps", "variance"),
    ("norm", "fp8_encode.h", "exponent > kFirstNormal ? exponent : kFirstNormal", "exponent"),
    ("norm", "reduce.h", "mask > 0", "mask > 1"),
    ("norm", "norm.h", "first + n < a.rows", "first + n <= a.rows"),
    ("norm", "norm.h", "(part + k) * kColumns + c", "part * kColumns + c"),
    ("norm", "norm.h", "a.rows - first - part", "a.rows - first"),
    ("norm", "norm.h", "    block.barrier();\n    for (int32_t c", "    for (int32_t c"),
    ("norm_backward", "norm_backward.h", "sums[1][n][k] += g[n][k]", "sums[1][n][k] = g[n][k]"),
    ("norm_backward", "norm_backward.h", "g[n][k] - shift", "g[n][k]"),
    ("norm_backward", "norm_backward.h", "row += block.count()", "row += 2 * block.count()"),
    ("norm_backward", "norm_backward.h", "add_parts(block, a, 0, groups, kNormGroup, sums)", "add_parts(block, a, 0, groups, 1, sums)"),
    ("norm_backward", "norm_backward.h", "left < kNormGroup ? left : kNormGroup", "kNormGroup"),
    ("norm_backward", "norm_backward.h", "a.tickets + 1 + group", "a.tickets + group"),
    ("norm_backward", "last_block.h", "if (answer == blocks) *ticket = 0;", ""),
    ("quantize", "quantize.h", "row_group ^ group] = ", "row_group] = "),
    ("quantize", "quantize.h", "number / across,\n", "0,\n"),
    ("quantize", "quantize.h", "magnitude <= 0x7F800000 && ", ""),
    ("quantize", "quantize.h", "    block.barrier();\n    store_transposed", "    store_transposed"),
    ("quantize", "quantize.h", "block.shuffle_xor(sums[k], kGroups)", "block.shuffle_xor(sums[k], 1)"),
    ("quantize", "quantize.h", "row + r < t.rows ? there : 0", "there"),
    ("quantize", "quantize.h", "i < kLane ? first : second", "first"),
    ("rope", "rope.h", "s[k] * sign", "s[k]"),
    ("rope", "rope.h", "std::fma(-q[k], sine, old * c[k])", "old * c[k] - q[k] * sine"),
    ("rope", "rope.h", "std::fma(old, sine, q[k] * c[k])", "std::fma(p[k], sine, q[k] * c[k])"),
    ("rope", "rope.h", "unit += kThreads", "unit += 2 * kThreads"),
    ("rope", "rope.h", "half - channel", "half - channel + 1"),
    ("rope", "rope.h", "if (!of_k) head -= s.k_heads;", ""),
    ("rope", "rope.h", "if (head < a.heads)\n", ""),
    ("fp8_stats", "fp8_stats.h", "magnitude > s.amax", "magnitude >= s.amax"),
    ("fp8_stats", "fp8_stats.h", "place < other.place", "place > other.place"),
    ("fp8_stats", "fp8_stats.h", "464.00003f", "464.0f"),
    ("fp8_stats", "fp8_stats.h", "value == 0 && encode", "code == 0 && encode"),
    ("fp8_stats", "fp8_stats.h", "row / a.block_rows", "row"),
    ("fp8_stats", "fp8_stats.h", "row += block.count()", "row += 2 * block.count()"),
    ("host_launch", "reduce.h", "  block.barrier();\n  T total", "  T total"),
]
SHORT = ["cross_entropy", "norm", "portable", "rope"]  # tests whose first mutation is in the short form
# Results are right on the host all the same, by luck of the order; it is a race, and the thread sanitizer says so.
RACES = [("host_launch", "reduce.h", "  block.barrier();  // per_warp may be written again\n", "")]


class Builder:
    """Builds tests/kernels/NAME_test.cpp against a copy of src/kernels."""

    def __init__(self, folder, flags):
        self.folder, self.flags = pathlib.Path(folder), [*FLAGS, *flags]
        self.folder.mkdir(parents=True)
        subprocess.run(["clang++", *self.flags, "-x", "c++-header", "/dev/stdin", "-o", self.folder / "gtest.pch"],
                       input="#include <gtest/gtest.h>\n", text=True, check=True)

    def sources(self, mutation=None):
        """The folder to include from: src/kernels as it is, or with one mutation."""
        made = pathlib.Path(tempfile.mkdtemp(dir=self.folder))
        shutil.copytree(ROOT / "src" / "kernels", made / "kernels")
        if mutation:
            _, header, old, new = mutation
            path = made / "kernels" / header
            text = path.read_text()
            if text.count(old) != 1:
                sys.exit(f"kernels: wanted '{old}' once in {header}, found {text.count(old)} times; write the mutation again")
            path.write_text(text.replace(old, new))
        return made

    def passes(self, test, mutation=None):
        made = self.sources(mutation)
        command = ["clang++", *self.flags, "-include-pch", self.folder / "gtest.pch", f"-I{made}", f"-I{ROOT / 'src'}", f"-I{ROOT / 'tests'}",
                   ROOT / "tests" / "kernels" / f"{test}_test.cpp", made / "kernels" / "host_launch.cpp", "-o", made / "test",
                   "-fuse-ld=lld", "-lgtest_main", "-lgtest", "-lpthread", f"-L{BUILD / 'lib'}", "-loctavo_light",
                   f"-Wl,-rpath,{BUILD / 'lib'}"]
        built = subprocess.run(command, capture_output=True, text=True)
        if built.returncode != 0:
            sys.exit(f"kernels: {test} with {mutation} does not compile\n{built.stderr}")
        try:
            ran = subprocess.run([made / "test"], capture_output=True, text=True, timeout=600,
                                 env=os.environ | {"GTEST_FAIL_FAST": "1"})
        except subprocess.TimeoutExpired:
            return False, "no end after 600 s"
        shutil.rmtree(made)
        failed = re.findall(r"\[  FAILED  \] (\S+) \(|(ERROR: AddressSanitizer.*|WARNING: ThreadSanitizer.*)", ran.stdout + ran.stderr)
        return ran.returncode == 0, " ".join(filter(None, failed[0])) if failed else f"exit code {ran.returncode}"


def tests_of(mutations):
    return sorted({mutation[0] for mutation in mutations})


def all_at_once(builder, work):
    """passes() of (test, mutation) pairs, two at a time."""
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        yield from pool.map(lambda pair: builder.passes(*pair), work)


def run_mutations(builder, mutations):
    caught = 0
    for mutation, (passed, how) in zip(mutations, all_at_once(builder, [(m[0], m) for m in mutations])):
        caught += not passed
        print(f"{'NOT CAUGHT' if passed else 'caught'}: {mutation[1]}: {mutation[2]!r} -> {mutation[3]!r}: {how}", flush=True)
    return caught


def run_sanitizers(folder, tests, counts):
    for name, flags in SANITIZERS.items():
        builder = Builder(folder / name, flags)
        clean = 0
        for test, (passed, how) in zip(tests, all_at_once(builder, [(test, None) for test in tests])):
            clean += passed
            if not passed:
                print(f"{name} sanitizer: {test}: {how}")
        counts[f"{name}_clean"] = clean
        if name == "thread":
            counts["races_caught"] = run_mutations(builder, RACES)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--short", action="store_true")
    parser.add_argument("--only", default="", help="mutations that have this text, or: sanitizers")
    given = parser.parse_args()
    chosen = [mutation for mutation in MUTATIONS if given.only in " ".join(mutation)]
    if given.short:
        chosen = [next(m for m in chosen if m[0] == test) for test in SHORT]
    counts, tests, whole = {}, tests_of(MUTATIONS), not given.short and not given.only
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        counts["mutations"], counts["caught"] = len(chosen), run_mutations(Builder(folder / "plain", ["-O1"]), chosen)
        ok = counts["caught"] == counts["mutations"]
        if whole or given.only == "sanitizers":
            run_sanitizers(folder, tests, counts)
            ok &= counts["address_clean"] == counts["thread_clean"] == len(tests) and counts["races_caught"] == len(RACES)
    print(" ".join(f"{key}={value}" for key, value in counts.items()))
    sys.exit(0 if ok and (counts["mutations"] >= 20 or not whole) else 1)


if __name__ == "__main__":
    main()
