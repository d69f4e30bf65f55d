#!/usr/bin/env -S sh -c 'exec "$(dirname "$0")/../../.deps/venv/bin/python" "$0" "$@"'
# test: label=conformance timeout=7200 gate="--generated 1000 --chats 10" night="--generated 100000 --chats 200" measures=src/jinja
"""Templates rendered by octavo and by Jinja2 as transformers configures it: the same text, the same {% generation %} parts, the same refusals.

Real templates are those of the packages in reach, of the test data, of jinja_templates.py and of the folders that --templates names;
others are generated. A template that octavo refuses and Jinja2 renders counts as refused: two of each 100 generated at most, and no real one;
every other difference is a failure. Most real ones are those of published models, which the package xinference carries; --templates names folders of
more (llama.cpp and trl keep theirs as *.jinja files).
"""
import argparse
import ast
import collections
import copy
import datetime
import json
import os
import pathlib
import random
import re
import subprocess
import sys
import warnings

import jinja_generator
import jinja_templates
from transformers.utils import chat_template_utils

ROOT = pathlib.Path(__file__).resolve().parents[2]
TOOL = ROOT / "build" / "release" / "bin" / "jinja_tool"
# What octavo says it does not do; everything else that it refuses must be an error of Jinja2, too.
UNSUPPORTED = re.compile(r"not supported|64 bits|wanted a value to print|no filter named|wants base|precision of|holds itself")


class Clock(datetime.datetime):
    @classmethod
    def now(cls, tz=None):
        return cls(2024, 2, 29, 13, 5, 9)


def rendered_by_jinja2(template, contexts):
    try:
        compiled = chat_template_utils._cached_compile_jinja_template(template)
    except Exception as error:
        return [{"error": f"{type(error).__name__}: {error}"} for _ in contexts]
    results = []
    for context in contexts:
        given = copy.deepcopy(context)  # `l|indent` changes a list before it fails
        first = [given.pop(name, None) for name in ("messages", "tools", "documents", "add_generation_prompt")]
        try:
            text, spans = chat_template_utils._render_with_assistant_indices(compiled, *first, **given)
            text.encode()
            results.append({"text": text, "spans": [list(span) for span in spans]})
        except Exception as error:
            results.append({"error": f"{type(error).__name__}: {str(error)[:300]}"})
    return results


def rendered_by_octavo(jobs):
    lines = "".join(json.dumps({"template": template, "contexts": contexts}) + "\n" for template, contexts in jobs)
    done = subprocess.run([TOOL], input=lines, stdout=subprocess.PIPE, text=True)
    if done.returncode != 0:
        sys.exit(f"{TOOL.name} ended with {done.returncode}")
    return [json.loads(line) for line in done.stdout.splitlines()]


class Comparison:
    def __init__(self, show):
        self.counts, self.refusals, self.show = collections.Counter(), collections.Counter(), show

    def add(self, name, template, context, ours, theirs):
        kind = self.kind(ours, theirs)
        self.counts[kind] += 1
        if kind == "refused":
            self.refusals[re.sub(r"line \d+|'[^']*'|\d+", "…", ours["error"])[:120]] += 1
        if kind == "different" and self.counts[kind] <= self.show:
            print(f"--- {name}\n{template if len(template) < 2000 else template[:2000] + ' …'}")
            print(f"context: {json.dumps(context, ensure_ascii=False)[:800]}" if context is not jinja_generator.SMALL else "context: SMALL")
            print(f"ours:   {json.dumps(ours, ensure_ascii=False)[:1500]}\ntheirs: {json.dumps(theirs, ensure_ascii=False)[:1500]}", flush=True)

    @staticmethod
    def kind(ours, theirs):
        # Jinja2 prints addresses of Python's objects; octavo refuses to.
        address = re.search(r" at 0x[0-9a-f]{6,}|<(class|function|built-in|bound method|Undefined|jinja2)", theirs.get("text", ""))
        if "error" in ours:
            if "error" in theirs:
                return "both_refuse"
            return "refused" if address or UNSUPPORTED.search(ours["error"]) else "different"
        if "error" in theirs:
            return "different"
        same = ours["text"] == theirs["text"] and (ours["unplaced"] or ours["spans"] == theirs["spans"])
        return "equal" if same else "different"


def compare(named, comparison, batch=50):
    for start in range(0, len(named), batch):
        some = named[start:start + batch]
        ours = rendered_by_octavo([(template, contexts) for _, template, contexts in some])
        for (name, template, contexts), results in zip(some, ours, strict=True):
            for context, our, their in zip(contexts, results, rendered_by_jinja2(template, contexts), strict=True):
                comparison.add(name, template, context, our, their)


def templates_in_python(path):
    """String constants of a module that are chat templates."""
    source = path.read_text(errors="replace")
    if "messages" not in source or "{%" not in source:
        return
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and re.search(r"\{%-? *for .* in .*messages", node.value):
            yield node.value


def templates_in_config(path):
    try:
        found = json.loads(path.read_text()).get("chat_template", [])
    except (ValueError, AttributeError):
        return
    yield from [found] if isinstance(found, str) else [one["template"] for one in found]


def templates_anywhere(value):
    """Those of all objects inside a JSON value; some models there have a name of a template, or nothing."""
    for part in value.values() if isinstance(value, dict) else value if isinstance(value, list) else ():
        yield from templates_anywhere(part)
    text = value.get("chat_template") if isinstance(value, dict) else None
    if isinstance(text, str) and ("{%" in text or "{{" in text):
        yield text


def real_templates(folders):
    """Name and text of every template in reach, each once."""
    packages = pathlib.Path(chat_template_utils.__file__).parents[2]
    data = pathlib.Path(os.environ.get("OCTAVO_TEST_DATA", ROOT.parent / "shared")) / "data"
    found = {text: f"jinja_templates.{name}" for name, text in jinja_templates.TEMPLATES.items()}
    for folder in ("transformers", "tokenizers", "trl", "peft", "vllm"):
        for path in sorted((packages / folder).rglob("*.py")):
            for text in templates_in_python(path):
                found.setdefault(text, str(path.relative_to(packages)))
    for path in sorted((packages / "xinference/model/llm").rglob("*.json")):
        for text in templates_anywhere(json.loads(path.read_text())):
            found.setdefault(text, f"xinference/{path.stem}")
    for folder in (data, *folders):
        for path in sorted(folder.rglob("*.jinja")):
            found.setdefault(path.read_text(), path.name)
        for path in sorted(folder.rglob("tokenizer_config.json")):
            for text in templates_in_config(path):
                found.setdefault(text, f"{path.parent.name}/{path.name}")
    return [(name, text) for text, name in found.items()]


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--generated", type=int, default=3000)
    parser.add_argument("--chats", type=int, default=20, help="for each real template")
    parser.add_argument("--seed", type=int, default=0, help="of the first generated template")
    parser.add_argument("--templates", type=pathlib.Path, nargs="*", default=[], help="more folders to look in")
    parser.add_argument("--show", type=int, default=5, help="differences to print")
    args = parser.parse_args()
    chat_template_utils.datetime = Clock
    warnings.simplefilter("ignore")  # of Python's compiler about what templates say
    sys.setrecursionlimit(2000)
    rng = random.Random(1)
    real, generated = Comparison(args.show), Comparison(args.show)
    templates = real_templates(args.templates)
    compare([(name, text, [jinja_generator.conversation(rng) for _ in range(args.chats)]) for name, text in templates], real, 5)
    for refusal, count in real.refusals.most_common(10):
        print(f"real, refused {count}: {refusal}")
    seeds = range(args.seed, args.seed + args.generated)
    for start in range(0, len(seeds), 5000):
        compare([(f"seed {seed}", jinja_generator.template(seed), [jinja_generator.SMALL]) for seed in seeds[start:start + 5000]], generated, 500)
    for refusal, count in generated.refusals.most_common(20):
        print(f"generated, refused {count}: {refusal}")
    good = (real.counts["different"] == 0 and real.counts["refused"] == 0 and generated.counts["different"] == 0
            and len(templates) >= 30 and real.counts["equal"] >= 30 * args.chats and generated.counts["equal"] >= args.generated // 5
            and generated.counts["refused"] <= args.generated / 50)
    print(f"templates={len(templates)} chats={args.chats} real_equal={real.counts['equal']} real_both_refuse={real.counts['both_refuse']} "
          f"real_refused={real.counts['refused']} real_different={real.counts['different']} generated={args.generated} "
          f"generated_equal={generated.counts['equal']} generated_both_refuse={generated.counts['both_refuse']} "
          f"generated_refused={generated.counts['refused']} generated_different={generated.counts['different']}")
    sys.exit(0 if good else 1)


if __name__ == "__main__":
    main()
