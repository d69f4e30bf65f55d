#!/usr/bin/env python3
# bench: measures="src/plan"
"""Makes the tables of docs/reference/scale-tables.md again; --check: only says whether they are what the code says."""
import os
import pathlib
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
TOOL = pathlib.Path(os.environ.get("OCTAVO_BUILD", ROOT / "build" / "release")) / "bin" / "scale_tool"

if not TOOL.exists():
    sys.exit(f"wanted {TOOL}, found none; ninja -C {TOOL.parents[1]} scale_tool")
os.execv(TOOL, [str(TOOL), *sys.argv[1:], str(ROOT / "docs" / "reference" / "scale-tables.md")])
