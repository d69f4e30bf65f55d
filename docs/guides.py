#!/usr/bin/env python3
"""Writes the tables of docs/how-to/migrate-guides.md from tests/integration/guides_commands.json.

--write replaces what stands between the page's markers; without it the script says whether that is current (exit code 1 when not).
tests/integration/claims.py runs it.
"""
import json
import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "how-to" / "migrate-guides.md"
COMMANDS = ROOT / "tests" / "integration" / "guides_commands.json"
BEGIN, END = "<!-- guides: made by docs/guides.py -->\n", "<!-- guides: end -->\n"
MARKS = {"yes": "", "partly": "**partly**", "no": "**no**"}
# Long flags that are the same on both sides.
SAME = re.compile(r"(--(?:dataset_name|wandb_project|wandb_run_name|learning_rate|gradient_accumulation_steps|empty_cache_freq) \S+|--use_wandb) ?")


def code(text):
    return f"`{text.replace('|', chr(92) + '|')}`" if "`" not in text else text.replace("|", "\\|")


def shortened(text):
    """Without the flags that say nothing about how to migrate, of commands that are the same but for the program's name."""
    return re.sub(r" …( …)+", " …", SAME.sub("… ", text)).strip() if len(text) > 150 else text


def left(entry):
    """What the guide has: code, unless it is a thing to do."""
    return entry["text"].replace("|", "\\|") if entry["kind"] == "task" else code(shortened(entry["text"]))


def row(entry):
    commands = "<br>".join(code(shortened(command["run"])) for command in entry["octavo"])
    note = [MARKS[entry["works"]], entry.get("note", "")]
    if entry["works"] != "yes":
        note.append(f"Missing: {entry['missing']}")
    lines, escaped = ", ".join(map(str, entry["lines"])), "\\|"
    return f"| {lines} | {left(entry)} | {commands} | {'. '.join(filter(None, note)).replace('|', escaped)} |\n"


def tables():
    file = json.loads(COMMANDS.read_text())
    text = ""
    for name, guide in file["guides"].items():
        text += f"\n## {name}: {guide['about']}\n\n| line | the guide | octavo | |\n|---|---|---|---|\n"
        text += "".join(row(entry) for entry in file["entries"] if entry["guide"] == name)
    return text + "\n"


def main():
    head, begin, rest = PAGE.read_text().partition(BEGIN)
    kept, end, tail = rest.partition(END)
    if not begin or not end:
        sys.exit(f"{PAGE.relative_to(ROOT)}: wanted the lines {BEGIN.strip()} and {END.strip()}, found not both")
    wanted = tables()
    if "--write" in sys.argv:
        PAGE.write_text(head + begin + wanted + end + tail)
        kept = wanted
    if kept != wanted:
        print(f"{PAGE.relative_to(ROOT)}: behind {COMMANDS.relative_to(ROOT)}; run docs/guides.py --write")
    print(f"rows={wanted.count(chr(10) + '| ') - 5} current={int(kept == wanted)}")
    sys.exit(0 if kept == wanted else 1)


if __name__ == "__main__":
    main()
