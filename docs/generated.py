"""Files that a script makes: written, or with --check only compared. For docs/diagrams.py and docs/reference_pages.py."""
import pathlib
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
CHECK = "--check" in sys.argv


def write_or_check(files, remedy):
    """Writes each path's text where it differs (with --check: says so instead) and returns how many did."""
    stale = 0
    for path, text in files.items():
        if path.is_file() and path.read_text() == text:
            continue
        stale += 1
        if CHECK:
            print(f"{path.relative_to(ROOT)}: {remedy}")
        else:
            path.write_text(text)
    return stale
