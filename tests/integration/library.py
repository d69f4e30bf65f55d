#!/usr/bin/env -S sh -c 'exec "$(dirname "$0")/../../.deps/venv/bin/python" "$0" "$@"'
# test: label=integration timeout=1800 gate="--short" night="" measures="src/library src/fp8 src/engine/cpu src/checkpoint src/tokenizer src/plan examples"
"""The library for other programs: installed, found by find_package(octavo), and used by examples/library.

The headers that are installed are those of src/library/octavo and include the standard library alone; no installed file names
the source or build folder. The example's codes are ml_dtypes', its tensors those of the safetensors package, its ids those of
tokenizers, its forecast that of `octavo plan`. A wrong version and an unknown component are refused; each component is found and
linked without the others.

usage: library.py [--short]    --short leaves out the components one by one; the build folder has the library already
                               (preset dev), so that it takes well below a minute
The last line is headers=4 components=4 equal=… alone=4 refused=….
"""
import argparse
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile

import ml_dtypes
import numpy
import safetensors.numpy
import tokenizers

from common import BUILD, DATA, OCTAVO, ROOT, require_files

HEADERS = ("fp8.h", "plan.h", "safetensors.h", "tokenizer.h")
COMPONENTS = ("fp8", "safetensors", "tokenizer", "plan")
PLAN = {"model_name": "llama-3.1-8b", "gpu": "h100", "batch_size": "2", "max_seq_length": "2048", "use_fp8": "true"}
FORMATS = {"e4m3": (ml_dtypes.float8_e4m3fn, 448.0), "e5m2": (ml_dtypes.float8_e5m2, 57344.0)}
# A call of each component, so that it is linked.
CALLS = {"fp8": "octavo::v0::fp8::encode(octavo::v0::fp8::Format::kE4M3, 1.0f) == 0x38",
         "safetensors": 'octavo::v0::Safetensors("none").tensors().empty()',
         "tokenizer": 'octavo::v0::Tokenizer("bytes").encode("a").at(0) == 97',
         "plan": 'octavo::v0::forecast({{"model_name", "gpt2"}, {"gpu", "h100"}}).fits'}


def fail(text):
    sys.exit(f"library: {text}")


def run(what, command, code=0, **more):
    """Its output. Ends the script when it does not end with this code."""
    done = subprocess.run([str(word) for word in command], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, **more)
    text = done.stdout.decode(errors="replace")
    if done.returncode != code:
        fail(f"{what} ended with {done.returncode}:\n{text[-5000:]}")
    return text


def check_installed(prefix):
    """Nothing but what is meant for others, and nothing of this machine's folders."""
    found = sorted(str(path.relative_to(prefix / "include")) for path in (prefix / "include").rglob("*") if path.is_file())
    if found != [f"octavo/{name}" for name in HEADERS]:
        fail(f"wanted the headers {HEADERS} of src/library/octavo alone, found {found}")
    for name in HEADERS:
        wrong = re.findall(r'#include\s+(?!<[a-z_]+>\n)(.*)', (prefix / "include" / "octavo" / name).read_text())
        if wrong:
            fail(f"{name} includes {wrong[0]}, which is not of the standard library")
    for path in prefix.rglob("*"):
        if path.is_file() and any(str(folder).encode() + b"/" in path.read_bytes() for folder in (ROOT / "src", BUILD)):
            fail(f"{path.relative_to(prefix)} names the folder that octavo was built in")


def configure(folder, source, prefix, code=0):
    return run(f"cmake of {source.name}", ["cmake", "-S", source, "-B", folder, "-G", "Ninja", "-DCMAKE_CXX_COMPILER=clang++",
                                           "-DCMAKE_EXE_LINKER_FLAGS=-fuse-ld=lld", f"-DCMAKE_PREFIX_PATH={prefix}"], code)


def project(folder, name, find, component=None):
    """A small project in `folder` that asks for the package in these words."""
    source = folder / name
    source.mkdir()
    text = ["cmake_minimum_required(VERSION 3.22)", "project(small LANGUAGES CXX)", find]
    if component:
        (source / "main.cpp").write_text(f"#include <octavo/{component}.h>\nint main() {{ return {CALLS[component]} ? 0 : 1; }}\n")
        text += ["add_executable(small main.cpp)", f"target_link_libraries(small PRIVATE octavo::{component})"]
    (source / "CMakeLists.txt").write_text("\n".join(text) + "\n")
    return source


def check_alone(folder, prefix):
    """Every component without the others; the missing file of the second is met as an exception that nothing catches."""
    for name in COMPONENTS:
        source = project(folder, f"alone_{name}", f"find_package(octavo 0.1 REQUIRED COMPONENTS {name})", name)
        configure(source / "build", source, prefix)
        run(f"the build of {name} alone", ["cmake", "--build", source / "build"])
        if name != "safetensors":
            run(f"{name} alone", [source / "build" / "small"], cwd=source)
    return len(COMPONENTS)


def check_refused(folder, prefix):
    cases = {"find_package(octavo 0.2 REQUIRED)": "0.1", "find_package(octavo 0.1 REQUIRED COMPONENTS train)": "found 'train'"}
    for i, (find, wanted) in enumerate(cases.items()):
        source = project(folder, f"refused_{i}", find)
        said = configure(source / "build", source, prefix, code=1)
        if wanted not in said:
            fail(f"{find}: wanted a refusal with {wanted}, found\n{said}")
    return len(cases)


def scales_of(values, recipe, along, largest):
    """Decode factors by the definitions, in FP64, one for each element."""
    rows, columns = values.shape
    height, width = {"tensor": (rows, columns), "row": (1, columns), "block128": (1, 128), "square128": (128, 128),
                     "mx32": (1, 32)}[recipe]
    if along == "columns" and recipe != "tensor":
        height, width = {"row": (rows, 1), "square128": (128, 128)}.get(recipe, (width, height))
    scales = numpy.ones(values.shape)
    for r in range(0, rows, height):
        for c in range(0, columns, width):
            amax = float(numpy.abs(values[r:r + height, c:c + width]).max())
            ratio = float(numpy.float32(largest) / numpy.float32(amax)) if amax else 1.0
            if recipe == "mx32":
                decode = 2.0 ** numpy.ceil(numpy.log2(amax / largest)) if amax else 2.0 ** -127
            else:
                decode = 1 / ratio if recipe == "tensor" else 1 / 2.0 ** numpy.floor(numpy.log2(ratio))
            scales[r:r + height, c:c + width] = numpy.float32(decode)
    return scales


def check_fp8(example):
    equal, random = 0, numpy.random.default_rng(7)
    rows, columns = 130, 257
    exponents = random.integers(-8, 9, (rows, columns))
    bf16 = (random.standard_normal((rows, columns)) * 2.0 ** exponents).astype(ml_dtypes.bfloat16)
    values = bf16.astype(numpy.float32)
    for recipe in ("tensor", "row", "block128", "square128", "mx32"):
        for name, (dtype, largest) in FORMATS.items():
            for along in ("rows", "columns"):
                lines = run("quantize", [example, "quantize", recipe, name, along, rows, columns], input=bf16.tobytes()).splitlines()
                codes = numpy.array(lines[0].split(), dtype=numpy.uint8).reshape(rows, columns)
                found = numpy.array([float.fromhex(word) for word in lines[2].split()]).reshape(rows, columns)
                scales = scales_of(values, recipe, along, largest)
                encode = (1 / scales).astype(numpy.float32)
                if recipe == "tensor":
                    encode[:] = numpy.float32(largest) / numpy.abs(values).max()
                wanted = numpy.clip(values * encode, -largest, largest).astype(dtype)
                different = int((wanted.view(numpy.uint8) != codes).sum())
                if different:
                    fail(f"{recipe} {name} {along}: {different} of {codes.size} codes differ from ml_dtypes'")
                numpy.testing.assert_allclose(found, wanted.astype(numpy.float64) * scales, rtol=2e-7)
                equal += 1
    return equal


def check_tensors(example, folder):
    random = numpy.random.default_rng(8)
    tensors = {"a.weight": random.standard_normal((3, 5)).astype(numpy.float32), "b": random.integers(0, 9, 7),
               "c": random.standard_normal((2, 2, 2)).astype(ml_dtypes.bfloat16)}
    safetensors.numpy.save_file(tensors, folder / "x.safetensors")
    said = run("tensors", [example, "tensors", folder / "x.safetensors"]).splitlines()
    types = {"float32": "F32", "int64": "I64", "bfloat16": "BF16"}
    for line, (name, value) in zip(said, sorted(tensors.items()), strict=True):
        total = 0
        for byte in value.tobytes():
            total = (total * 31 + byte) % 2 ** 32
        shape = ",".join(map(str, value.shape))
        wanted = f"{name} {types[str(value.dtype)]} [{shape}] {value.nbytes} bytes, sum {total}"
        if line != wanted:
            fail(f"wanted '{wanted}', found '{line}'")
    whole = (folder / "x.safetensors").read_bytes()
    (folder / "cut.safetensors").write_bytes(whole[:-1])
    if "truncated" not in run("tensors of a cut file", [example, "tensors", folder / "cut.safetensors"], code=1):
        fail("wanted a cut file to be refused as truncated")
    return len(tensors)


def check_tokens(example):
    files = sorted(DATA.glob("**/tokenizer.json"))
    if not files:
        fail(f"wanted a tokenizer.json below {DATA}, found none; set OCTAVO_TEST_DATA")
    text = "Eight bits, née 0.5: don't panic!\n  12345 日本"
    wanted = tokenizers.Tokenizer.from_file(str(files[0])).encode(text, add_special_tokens=False).ids
    lines = run("tokens", [example, "tokens", files[0], text]).split("\n", 1)
    if [int(word) for word in lines[0].split()] != wanted or lines[1] != text + "\n":
        fail(f"{files[0]}: wanted {wanted}, found {lines}")
    return 1


def check_plan(example):
    said = run("plan", [example, "plan", *(f"{key}={value}" for key, value in PLAN.items())])
    own = run("octavo plan", [OCTAVO, "plan", "--json", *(f"--{key}={value}" for key, value in PLAN.items())])
    if json.loads(said) != json.loads(own[own.index("{"):]):
        fail(f"wanted what octavo plan says, found\n{said}")
    if "modle_name" not in run("plan with a wrong key", [example, "plan", "modle_name=gpt2"], code=1):
        fail("wanted a wrong key to be named")
    return 1


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--short", action="store_true")
    short = parser.parse_args().short
    require_files()
    run("the build of the library", ["cmake", "--build", BUILD, "-j", os.cpu_count(), "--target", "octavo_library"])
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        prefix = folder / "installed"
        run("cmake --install", ["cmake", "--install", BUILD, "--component", "library", "--prefix", prefix])
        check_installed(prefix)
        configure(folder / "example", ROOT / "examples" / "library", prefix)
        run("the build of the example", ["cmake", "--build", folder / "example"])
        example = folder / "example" / "example"
        equal = check_fp8(example) + check_tensors(example, folder) + check_tokens(example) + check_plan(example)
        alone = 0 if short else check_alone(folder, prefix)
        refused = check_refused(folder, prefix)
    print(f"headers={len(HEADERS)} components={len(COMPONENTS)} equal={equal} alone={alone} refused={refused}")


if __name__ == "__main__":
    main()
