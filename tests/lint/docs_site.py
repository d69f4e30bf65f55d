#!/usr/bin/env -S sh -c 'exec "$(dirname "$0")/../../.deps/venv/bin/python" "$0" "$@"'
# test: label=lint timeout=180 gate="" measures="docs mkdocs.yml"
"""Builds the documentation as a site, `mkdocs build --strict`, and looks for anything that a browser would fetch from elsewhere.

--keep FOLDER leaves the site there.
"""
import html.parser
import os
import pathlib
import re
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
FETCHES = {"script": "src", "link": "href", "img": "src", "iframe": "src", "source": "srcset"}


class Fetches(html.parser.HTMLParser):
    """What a page makes a browser fetch by itself."""

    def __init__(self, text):
        super().__init__()
        self.found = []
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        attrs = dict(attrs)
        if tag == "link" and attrs.get("rel") in ("canonical", "edit", "next", "prev", "alternate"):
            return
        target = attrs.get(FETCHES.get(tag), "") or ""
        if re.match(r"(?:\w+:)?//", target):
            self.found.append(target)


def build(folder):
    environment = os.environ | {"NO_MKDOCS_2_WARNING": "1", "PYTHONDONTWRITEBYTECODE": "1"}
    return subprocess.run([sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", folder], cwd=ROOT, check=False,
                          env=environment, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)


def main():
    if Fetches('<a href="https://x.y/"></a><img src="p.svg"><script src="//cdn.z/a.js">').found != ["//cdn.z/a.js"]:
        sys.exit("docs_site.py: wanted one fetch found in its own example")
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(sys.argv[sys.argv.index("--keep") + 1]).resolve() if "--keep" in sys.argv else pathlib.Path(name)
        done = build(folder)
        if done.returncode != 0:
            print(done.stdout)
        pages = sorted(folder.rglob("*.html"))
        fetched = [(page, target) for page in pages for target in Fetches(page.read_text()).found]
        for page, target in fetched:
            print(f"{page.relative_to(folder)}: a browser would fetch {target}; the site must work without a network")
        styles = [path for path in folder.rglob("*.css") if re.search(r"url\(['\"]?(?:https?:)?//", path.read_text())]
        for path in styles:
            print(f"{path.relative_to(folder)}: fetches from elsewhere")
    failed = done.returncode != 0 or bool(fetched) or bool(styles) or len(pages) < 20
    print(f"pages={len(pages)} fetches={len(fetched) + len(styles)} strict={int(done.returncode == 0)}")
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
