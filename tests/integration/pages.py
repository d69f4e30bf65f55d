#!/usr/bin/env -S sh -c 'exec "$(dirname "$0")/../../.deps/venv/bin/python" "$0" "$@"'
# test: label=integration timeout=1500 night=""
"""Runs the commands under `test: pages` of every page of docs/, in the order of mkdocs.yml and in one folder, as a reader would.

usage: pages.py [--keep FOLDER] [PAGE…]    FOLDER: what each block printed is left there, to put it into the page. PAGE: only
these, such as get-started/first-run.md; most pages need what the first run leaves.
"""
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import time

import common

MAX_SECONDS = 600
BLOCK = re.compile(r"<!-- test: pages -->\n```bash\n(.*?)```", re.S)


def pages():
    """The pages of the site, in its order."""
    return re.findall(r"^ *- (?:[\w -]+: )?([\w/.-]+\.md)$", (common.ROOT / "mkdocs.yml").read_text(), re.M)


def run_block(block, folder):
    """What a block printed, a command at a time under a line that shows it. A command must end with 0, or as a remark behind it
    says: `# exit code 6`."""
    script = "set -eo pipefail\n"
    for command in filter(None, map(str.strip, block.replace("\\\n", " ").splitlines())):
        command, _, code = command.partition("  # exit code ")
        shown = command.replace("'", "'\\''")
        script += f"echo '$ {shown}'\nended=0\n{command} || ended=$?\n[ $ended = {int(code or 0)} ]\n"
    return subprocess.run(["bash", "-c", script], cwd=folder, env=common.page_environment(),
                          text=True, errors="replace", stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=MAX_SECONDS)


def main():
    words = sys.argv[1:]
    keep = pathlib.Path(words.pop(words.index("--keep") + 1)).resolve() if "--keep" in words else None
    wanted = [word for word in words if word != "--keep"]
    chosen = [page for page in pages() if not wanted or page in wanted]
    blocks = failed = 0
    begin = time.monotonic()
    with tempfile.TemporaryDirectory() as scratch:
        folder = pathlib.Path(scratch)
        for name in ("configs", "docs", "src"):  # copies: data that changes under a run is refused
            shutil.copytree(common.ROOT / name, folder / name)
        for page in chosen:
            for number, block in enumerate(BLOCK.findall((common.ROOT / "docs" / page).read_text())):
                done = run_block(block, folder)
                blocks += 1
                failed += done.returncode != 0
                if done.returncode != 0:
                    print(f"docs/{page}: exit code {done.returncode}:\n{done.stdout[-3000:]}")
                if keep:
                    keep.mkdir(parents=True, exist_ok=True)
                    (keep / f"{page.replace('/', '_')}.{number}.txt").write_text(done.stdout)
    print(f"pages={len(chosen)} blocks={blocks} failed={failed} seconds={time.monotonic() - begin:.0f}")
    sys.exit(1 if failed or blocks < (1 if wanted else 10) else 0)


if __name__ == "__main__":
    main()
