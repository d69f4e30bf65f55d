#!/usr/bin/env python3
# test: label=lint timeout=60 gate=""
"""Every command in a ```bash block of the documentation is run by something, or says why not.

A line counts as run when it is in a block under <!-- test: NAME --> or <!-- test: NAME-part --> (tests/*/NAME.py runs that block), or when
.ci/run or .ci/nightly runs its text, by itself or from a script's header; otherwise it must end in `# gpu-only` or `# not-run: reason`. Given a folder, looks there.
"""
import pathlib
import re
import sys
import tempfile

import scripts

ROOT = pathlib.Path(__file__).resolve().parents[2]
EXCUSE = re.compile(r"#\s*(gpu-only|not-run: \S.*)\s*$")
BLOCK = re.compile(r"(?:<!-- test: (\w+)(?:-\w+)? -->\n)?```(?:bash|sh|shell|console)\n(.*?)```", re.S)


def squeezed(text):
    return re.sub(r"\s+", " ", text.replace("\\\n", " "))


def complaints(root):
    commands = [script.command(occasion) for script in scripts.scripts(root) for occasion in ("gate", "night")]
    gate = squeezed("\n".join([*(path.read_text() for path in sorted((root / ".ci").glob("*"))), *filter(None, commands)]))
    for path in [*sorted(root.glob("*.md")), *sorted(root.glob("docs/**/*.md"))]:
        for block in BLOCK.finditer(path.read_text()):
            if block[1]:
                if not any(root.glob(f"tests/*/{block[1]}.py")):
                    yield f"{path.relative_to(root)}: says tests/*/{block[1]}.py runs a block; there is no such test"
                continue
            for line in block[2].replace("\\\n", " ").splitlines():
                command = squeezed(line).strip()
                run = re.search(rf"(?<![\w./-]){re.escape(command)}(?![\w./-])", gate)
                if not command or command.startswith("#") or EXCUSE.search(command) or run:
                    continue
                yield (f"{path.relative_to(root)}: '{command}' is run by no test; run it in .ci/run or a test, or end the "
                       "line in '# not-run: reason'")


def selftest():
    """A made-up tree in which every kind of line occurs once."""
    with tempfile.TemporaryDirectory() as name:
        root = pathlib.Path(name)
        (root / ".ci").mkdir()
        (root / ".ci/run").write_text("phase x make \\\n  all\n")
        (root / "A.md").write_text("```bash\nmake all\nforgotten\nother  # not-run: slow\nbare  # not-run:\ncuda  # gpu-only\n"
                                   "```\n<!-- test: gone -->\n```bash\nx\n```\n")
        found = list(complaints(root))
    wanted = ["'forgotten'", "'bare # not-run:'", "tests/*/gone.py"]
    if len(found) != len(wanted) or not all(word in text for word, text in zip(wanted, found)):
        sys.exit(f"commands.py: wanted complaints about {wanted}, found {found}")


def main():
    selftest()
    found = list(complaints(ROOT))
    print(*found, f"broken={len(found)}", sep="\n")
    sys.exit(1 if found else 0)


if __name__ == "__main__":
    main()
