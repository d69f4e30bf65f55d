#!/usr/bin/env -S sh -c 'exec "$(dirname "$0")/../../.deps/venv/bin/python" "$0" "$@"'
# test: label=integration timeout=600 gate="" measures="src/plan"
"""Runs the `octavo plan` commands of the pages below (PAGES) and compares what they print and draw with what the pages show, so that the pages are never behind the program. --write puts the new output into the pages instead.

A command is a block of ```sh that starts with "octavo plan"; the block of ```text after it is its output, whole or, where a
line of it is "…", in parts. Two runs of a command must give the same bytes.
"""
import os
import pathlib
import re
import shlex
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
OCTAVO = pathlib.Path(os.environ.get("OCTAVO_BUILD", ROOT / "build/release")) / "bin/octavo"
PAGES = ("docs/how-to/plan.md", "docs/how-to/plan-cluster.md", "docs/concepts/lora-and-fp8.md")
BLOCK = re.compile(r"```sh\n(octavo plan .*?)\n```\n\n```text\n(.*?)\n```", re.S)


def run(command, folder):
    words = shlex.split(command.replace("\\\n", " "))
    done = subprocess.run([OCTAVO, *words[1:]], capture_output=True, text=True, cwd=folder)
    if done.returncode != 0:
        raise SystemExit(f"{command}: exit code {done.returncode}: {done.stderr}")
    return done.stdout.rstrip("\n")


def shown(text, pattern):
    """Whether `pattern` (parts of the output, "…" between them) is in `text` in this order."""
    place = 0
    for part in ("\n" + pattern + "\n").split("\n…\n"):
        found = text.find(part.strip("\n"), place)
        if found < 0:
            return False
        place = found + len(part.strip("\n"))
    return True


def renew(text, pattern):
    """The lines of `text` that start as the lines of `pattern` do (the first words before a number), and, where no "…" says that
    lines are left out, those between the first and the last."""
    if shown(text, pattern):
        return pattern
    keys = [re.split(r"[0-9]", line)[0].strip() for line in pattern.split("\n")]
    if "…" not in keys:
        starts = [line.strip() for line in text.split("\n")]
        first, last = ([i for i, line in enumerate(starts) if line.startswith(key)] for key in (keys[0], keys[-1]))
        return "\n".join(text.split("\n")[first[0]:last[-1] + 1]) if first and last else text
    wanted = {key for key in keys if key and key != "…"}
    lines = []
    for line in text.split("\n"):
        if any(line.strip().startswith(key) for key in wanted):
            lines.append(line)
        elif lines and lines[-1] != "…":
            lines.append("…")
    return "\n".join(lines).strip("…\n")


def main():
    write = "--write" in sys.argv
    commands = wrong = pictures = 0
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        drawn = folder / "docs" / "pictures"
        drawn.mkdir(parents=True)
        for page in PAGES:
            text = (ROOT / page).read_text()
            for command, pattern in BLOCK.findall(text):
                commands += 1
                output = run(command, folder)
                assert output == run(command, folder), f"{command}: two runs differ"
                if write:
                    text = text.replace(f"{command}\n```\n\n```text\n{pattern}\n```",
                                        f"{command}\n```\n\n```text\n{renew(output, pattern)}\n```")
                elif not shown(output, pattern):
                    wrong += 1
                    print(f"{page} shows something else than\n$ {command}\n{output}")
            if write:
                (ROOT / page).write_text(text)
        for picture in sorted(drawn.glob("*.svg")):
            pictures += 1
            kept = ROOT / "docs" / "pictures" / picture.name
            if write:
                kept.write_bytes(picture.read_bytes())
            elif not kept.exists() or kept.read_bytes() != picture.read_bytes():
                wrong += 1
                print(f"docs/pictures/{picture.name} is not what its command draws")
    print(f"commands={commands} pictures={pictures} different={wrong}")
    return 1 if wrong or commands < 7 or pictures < 3 else 0


sys.exit(main())
