#!/usr/bin/env python3
# test: label=integration timeout=120 gate="" measures="src/plan docs/claims.py tests/integration/guides_commands.json"
"""The guides' claims in docs/how-to/migrate-claims.md stand beside what `octavo plan` forecasts today, and docs/how-to/migrate-guides.md has
every command of guides_commands.json.

Runs docs/claims.py on its page as it is, and on a copy in which one forecast was changed, which must be noticed; and docs/guides.py."""
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
PAGE = "docs/how-to/migrate-claims.md"


def noticed(folder):
    """Whether a page with another speed-up than plan's is found stale."""
    (folder / PAGE).parent.mkdir(parents=True)
    shutil.copy(ROOT / "docs" / "claims.py", folder / "docs")
    (folder / "build").symlink_to(ROOT / "build")
    text = (ROOT / PAGE).read_text()
    changed = re.sub(r"\| \d\.\d\dx \|\n", "| 9.99x |\n", text, count=1)
    assert changed != text, f"{PAGE}: wanted a row that ends in a speed-up, found none"
    (folder / PAGE).write_text(changed)
    done = subprocess.run([folder / "docs" / "claims.py"], capture_output=True, text=True)
    return done.returncode == 1 and done.stdout.endswith("current=0\n")


def main():
    done = subprocess.run([ROOT / "docs" / "claims.py"], capture_output=True, text=True)
    with tempfile.TemporaryDirectory() as name:
        change_noticed = noticed(pathlib.Path(name))
    commands = subprocess.run([ROOT / "docs" / "guides.py"], capture_output=True, text=True)
    print(commands.stdout + commands.stderr + done.stdout.strip().replace("\n", "; ") + done.stderr, f"change_noticed={int(change_noticed)}")
    sys.exit(0 if done.returncode == 0 and commands.returncode == 0 and change_noticed else 1)


if __name__ == "__main__":
    main()
