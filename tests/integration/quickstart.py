#!/usr/bin/env python3
# test: label=integration timeout=1200 gate="" alone
"""Runs the quick start of README.md as it stands, in a folder of its own, to generated text, in under ten minutes.

The commands are those of the ```bash block under `<!-- test: quickstart -->`, then MORE: what a reader does next. They run in one
shell, in a scratch folder that sees the checkout's files through links, so that runs/, checkpoints/ and .octavo/ do not land in the checkout.
One rule, so that the test costs no second build: the commands in BUILD_COMMANDS are left out, and the built tree
(OCTAVO_BUILD, build/release otherwise) must exist; .ci/run runs the same three commands.
The ```text block below it is what the training prints, line by line, with other numbers; lines left out are marked by "…".
With --max_steps N the training has no more steps than that, and the output is not compared: for CPUs on which all of them take too long.
With --write README.md gets the numbers of this run.
"""
import argparse
import os
import pathlib
import re
import signal
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
BUILD = pathlib.Path(os.environ.get("OCTAVO_BUILD", ROOT / "build" / "release"))
BUILD_COMMANDS = ["./bootstrap build", "cmake --preset release", "cmake --build --preset release"]
# A model may end its text early: at the end of a file, as it learned. Of four samples one is long.
MORE = ["octavo checkpoints list --checkpoint_dir checkpoints_fp8"] + [
    f'octavo generate --checkpoint_dir checkpoints_fp8 --prompt "namespace octavo" --max_new_tokens 200 --seed {seed}'
    for seed in range(1, 5)]
BLOCK = re.compile(r"<!-- test: quickstart -->\n```bash\n(.*?)```\n+```text\n(.*?)```", re.S)
MAX_SECONDS = 600
MIN_GENERATED_CHARS = 100
LEAST_SHOWN = 10  # lines of output


def quickstart_block(readme):
    """The commands, and the lines that the page shows of their output."""
    block = BLOCK.search(readme)
    if not block:
        sys.exit("README.md: wanted a ```bash block under <!-- test: quickstart -->, and its output as ```text; found none")
    commands = [command.strip() for line in block[1].splitlines() for command in line.split(" && ") if command.strip()]
    return commands, block[2].splitlines()


def without_numbers(line):
    """The words of a line; of a step's or an evaluation's line also which step. Kernels are those of the CPU."""
    step, rest = re.fullmatch(r"((?:step|eval) +\d+)?(.*)", line.strip()).groups()
    rest = re.sub(r"\d+(\.\d+)? [smhd]\b( \d\d [smh]\b)?", "TIME", re.sub(r"; kernels: .*", "; kernels", rest))
    return (step or "") + re.sub(r"\s+", " ", re.sub(r"\d+(\.\d+)?([eE][+-]?\d+)?(ms|[kM]\b)?", "N", rest))


def printed_lines(shown, output):
    """The lines of the page with the numbers of this output, and the first line that was not printed after the one before it, or None."""
    lines, place, fresh = output.splitlines(), 0, []
    for line in shown:
        if line.strip() != "…":
            place = next((i for i in range(place, len(lines)) if without_numbers(lines[i]) == without_numbers(line)), None)
            if place is None:
                return shown, line
            line, place = lines[place].rstrip(), place + 1
        fresh.append(line)
    return fresh, None if len(shown) >= LEAST_SHOWN else f"(only {len(shown)} lines)"


def make_scratch(folder):
    """The checkout's tracked top-level files and folders, by link, and the build under its usual name."""
    for name in ("src", "docs", "configs", "README.md"):
        (folder / name).symlink_to(ROOT / name)
    (folder / "build").mkdir()
    (folder / "build" / "release").symlink_to(BUILD)


def run_in_one_shell(commands, folder, seconds):
    """Each command's output after a line that no program prints; exits when one fails or time is up."""
    mark = "quickstart-mark-5e2b"
    script = "set -e\n" + "".join(f"echo {mark}\n{command}\n" for command in commands)
    shell = subprocess.Popen(["bash", "-c", script], cwd=folder, text=True, errors="replace", start_new_session=True,
                             stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    try:
        output, _ = shell.communicate(timeout=seconds)
    except subprocess.TimeoutExpired:
        os.killpg(shell.pid, signal.SIGKILL)
        sys.exit(f"quickstart: wanted an end within {seconds:.0f} s, found it still running: {commands}")
    sections = output.split(mark + "\n")[1:]
    for command, section in zip(commands, sections):
        print(f"$ {command}\n{section}", end="")
    if shell.returncode != 0:
        sys.exit(f"quickstart: '{commands[len(sections) - 1]}' ended with {shell.returncode}")
    return sections


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--max_steps", type=int)
    parser.add_argument("--write", action="store_true")
    options = parser.parse_args()
    commands, shown = quickstart_block((ROOT / "README.md").read_text())
    unbuilt = [command for command in BUILD_COMMANDS if command not in commands]
    if unbuilt:
        sys.exit(f"README.md: wanted the quick start to build with {unbuilt}; keep BUILD_COMMANDS in step")
    if not (BUILD / "bin" / "octavo").is_file():
        sys.exit(f"wanted {BUILD / 'bin' / 'octavo'}, found none; build first: " + " && ".join(BUILD_COMMANDS))
    commands = [command for command in commands if command not in BUILD_COMMANDS] + MORE
    if options.max_steps:
        commands = [f"{c} --max_steps {options.max_steps}" if c.startswith("octavo train ") else c for c in commands]
    start = time.monotonic()
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        make_scratch(folder)
        sections = run_in_one_shell(commands, folder, MAX_SECONDS)
        kept = len(list(folder.glob("checkpoints_fp8/quickstart/step-*/manifest.json")))
    seconds = time.monotonic() - start
    generated = [len(section) for command, section in zip(commands, sections) if " generate " in command]
    chars = max(generated, default=0)
    output = "".join(section for command, section in zip(commands, sections) if command.startswith("octavo train "))
    fresh, missing = (shown, None) if options.max_steps else printed_lines(shown, output)
    if options.write:
        (ROOT / "README.md").write_text((ROOT / "README.md").read_text().replace("\n".join(shown), "\n".join(fresh)))
    if missing:
        print(f"README.md: shows the line '{missing}', which the quick start did not print there; show what it prints")
    good = not missing and seconds < MAX_SECONDS and chars >= MIN_GENERATED_CHARS and kept > 0
    print(f"seconds={seconds:.1f} commands={len(commands)} checkpoints={kept} generated_chars={chars}")
    sys.exit(0 if good else 1)


if __name__ == "__main__":
    main()
