#!/usr/bin/env python3
# test: label=integration timeout=60 gate="" measures="src/cli src/config docs/reference_pages.py"
"""docs/reference/verbs.md and exit-codes.md are what the built program says; a changed page is found."""
import pathlib
import shutil
import subprocess
import sys
import tempfile

import common


def check(root):
    return subprocess.run([root / "docs" / "reference_pages.py", "--check", common.OCTAVO], check=False, stdout=subprocess.PIPE, text=True)


def main():
    current = check(common.ROOT)
    print(current.stdout, end="")
    with tempfile.TemporaryDirectory() as name:
        root = pathlib.Path(name)
        shutil.copytree(common.ROOT / "docs" / "reference", root / "docs" / "reference")
        for script in ("reference_pages.py", "generated.py"):
            shutil.copy(common.ROOT / "docs" / script, root / "docs" / script)
        page = root / "docs" / "reference" / "exit-codes.md"
        page.write_text(page.read_text().replace("| 75 |", "| 76 |"))
        found = check(root)
    change_found = found.returncode == 1 and "exit-codes.md" in found.stdout
    print(f"current={int(current.returncode == 0)} change_found={int(change_found)}")
    sys.exit(0 if current.returncode == 0 and change_found else 1)


if __name__ == "__main__":
    main()
