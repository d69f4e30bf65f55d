#!/usr/bin/env python3
# test: label=lint timeout=60 gate=""
"""README.md is short, says on its first screen what octavo is, and shows the pictures that docs/pictures.py draws from numbers of known origin."""
import importlib.util
import json
import pathlib
import sys
import xml.etree.ElementTree

ROOT = pathlib.Path(__file__).resolve().parents[2]
MOST_LINES = 150
SCREEN = 40  # lines
# What stands there: status, picture, install, and the end of the output.
ON_SCREEN = ("No GPU run yet", "<picture>", "./bootstrap", "octavo train ", "```text\n", "info: done:")


def drawer():
    spec = importlib.util.spec_from_file_location("docs_pictures", ROOT / "docs" / "pictures.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def page_complaints(readme):
    lines = readme.splitlines(keepends=True)
    if len(lines) > MOST_LINES:
        yield f"README.md: {len(lines)} lines, wanted at most {MOST_LINES}; docs/ has room"
    for words in ON_SCREEN:
        if words not in "".join(lines[:SCREEN]):
            yield f"README.md: wanted '{words.strip()}' in its first {SCREEN} lines"


def picture_complaints(made, folder, readme, numbers):
    for name, text in made.items():
        path = folder / name
        if not path.is_file() or path.read_text() != text:
            yield f"docs/pictures/{name}: not what docs/pictures.py draws; run it, and look at the picture"
        if f"docs/pictures/{name}" not in readme:
            yield f"README.md: does not show docs/pictures/{name}; show it, or do not draw it"
        xml.etree.ElementTree.fromstring(text)
    if numbers["commands"][0] not in readme:
        yield f"docs/pictures/quickstart.json: made by '{numbers['commands'][0]}', which README.md does not show; take its numbers anew"
    for key in ("date", "commit", "machine"):
        if not numbers.get(key):
            yield f"docs/pictures/quickstart.json: wanted '{key}' of the runs, found none"


def main():
    pictures = drawer()
    made, numbers = pictures.pictures(), json.loads(pictures.NUMBERS.read_text())
    readme = (ROOT / "README.md").read_text()
    found = [*page_complaints(readme), *picture_complaints(made, pictures.FOLDER, readme, numbers)]
    # That it can fail: a long page that begins with nothing, another picture, numbers of unknown origin.
    spoiled = [*page_complaints("\n" * 151), *picture_complaints({"badge-gpu.svg": "<svg/>"}, pictures.FOLDER, "", {"commands": ["x"]})]
    if len(spoiled) != 1 + len(ON_SCREEN) + 6:
        found.append(f"tests/lint/readme.py: wanted {1 + len(ON_SCREEN) + 6} complaints about a spoiled page, found {spoiled}")
    print(*found, f"lines={len(readme.splitlines())} pictures={len(made)} wrong={len(found)}", sep="\n")
    sys.exit(1 if found else 0)


if __name__ == "__main__":
    main()
