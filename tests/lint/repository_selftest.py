#!/usr/bin/env python3
# test: label=lint timeout=60 gate=""
"""Shows that every rule of repository.py can be broken: a small good tree passes, and each spoiled copy of it fails."""
import pathlib
import shutil
import sys
import tempfile

import repository
import scripts

LONG_BODY = "int f() {\n" + "  g();\n" * 60 + "}\n"

SCRIPT = scripts.PLAIN_SHEBANG + '\n# test: label=integration timeout=60 gate=""\n"""A test."""\nimport common\n'

# What is done to the good tree, and a word of the complaint it must cause.
SPOILED = {
    "src/base/low.h": ('#include "train/high.h"\n', "base includes train"),
    "src/train/up.h": ('#include "../base/low.h"\n', "relative include"),
    "src/cellar/a.h": ("int a();\n", "not in the table"),
    "src/base/long.h": ("// x\n" * 601, "601 lines"),
    "src/base/body.h": (LONG_BODY, "a function of 62 lines"),
    "src/base/member.h": ("namespace a {\nclass B {\n" + LONG_BODY + "};\n}\n", "a function of 62 lines"),
    "src/base/named.h": ("auto r = Recipe::kMxfp8;\n", "13 files name a recipe"),
    "src/base/loop.h": ("at::parallel_for(0, n, 1, body);\n", "runs on one thread"),
    "src/base/operator.h": ("auto t = at::_fused_thing(x);\n", "an underscore operator of libtorch"),
    "src/base/path.h": ('const char* kPath = "/work' + '/x";\n', "machine's folder"),
    "docs/notes.md": ("see /tmp" + "/file\n", "machine's folder"),
    "packaging/pip.conf": ("index" + "-url = x\n", "registry"),
    "docs/picture.svg": ("<text>/tmp" + "/run/plan.svg</text>\n", "machine's folder"),
    "src/base/empty.h": ("", "an empty file"),
    "bootstrap": (None, "bootstrap: wanted an executable"),
    "tests/base/lost_test.cpp": ("\n", "never runs"),
    "tests/base/secrets.py": ("\n", "hides Python's own secrets"),
    "src/base/lost.cpp": ("\n", "never built"),
    "README.md": ("| x | 1 | `loss=1.5` | `bench/tinyshakespeare.py` |\n", "loss=1.5 is not in the last line"),
    "tests/results/data/sampler.txt": (None, "rows=3 is not in the last line of tests/results/data/sampler.txt"),
    "tests/results/faults/data.txt": ("tried=6\n", "tried=5 is not in the last line of tests/results/faults/data.txt"),
    "docs/concepts/reliability.md": ("| a | `tests/faults/data.py` | |\n| b | the same script | `tried=4` |\n", "tried=4 is not in"),
    "tests/integration/lost.py": ("import good\n", "no script imports it, and it has no header"),
    "tests/integration/bare.py": (scripts.PLAIN_SHEBANG + "\n", "a script without a header"),
    "tests/integration/shut.py": (SCRIPT, "chmod +x tests/integration/shut.py"),
    "tests/integration/good.py": (SCRIPT.replace("label=integration", "label=odd"), "needs label="),
    "tests/integration/late.py": (SCRIPT.replace("timeout=60", "timeout=soon"), "needs timeout=SECONDS"),
    "tests/integration/more.py": (SCRIPT.replace("timeout", "colour=red timeout"), "its header has 'colour'"),
    "tests/integration/moved.py": (SCRIPT.replace("timeout", "measures=src/gone timeout"), "measures src/gone, which is not there"),
    "tests/integration/else.py": (SCRIPT.replace("# test", "# bench"), "scripts in tests/ say 'test'"),
    "tests/integration/shell.py": (SCRIPT.replace("python3", "python2"), "wanted one of the shebangs"),
    "docs/internals/tour.md": ("no table\n", "wanted the module table"),
    "docs/how-to/lost.md": ("in no nav\n", "no line for docs/how-to/lost.md"),
    "docs/internals/decisions/0001.md": ("[x](../gone.md)\n", "a link to ../gone.md, which is not there"),
    "SECURITY.md": ('<img src="docs/gone.svg">\n', "a link to docs/gone.svg, which is not there"),
    "CONTRIBUTING.md": ("[x](docs/internals/tour.md#attic)\n", "a page without that heading"),
}


def make_good_tree(root):
    files = {
        "docs/index.md": "[a](internals/tour.md) [b](internals/tour.md#the-modules) [c](concepts/reliability.md)\n",
        "mkdocs.yml": "nav:\n  - index.md\n  - Concepts: concepts/reliability.md\n  - internals/tour.md\n",
        "docs/concepts/reliability.md": "| a | `tests/faults/data.py --short` | `tried=5` |\n| b | the same script | `lost=0` |\n"
                               "| c | `tests/data/sampler.py` | `rows=3` |\n| d | a setting, `data_damage=skip` | |\n",
        "tests/results/faults/data.txt": "tried=5 lost=0\n", "tests/results/data/sampler.txt": "rows=3\n",
        "docs/internals/tour.md": "## The modules\n| `src/base` | x |\n| `src/config` | x |\n| `src/fp8` | x |\n| `src/train` | x |\n",
        "README.md": "| x | 1 | `loss=1.4` | `bench/tinyshakespeare.py` |\n",
        "bench/results/tinyshakespeare.txt": "loss=1.5\nloss=1.4 seconds=2\n",
        "src/base/low.h": "#include <vector>\n", "src/train/high.h": '#include "base/low.h"\n#include "train/high.h"\n',
        "src/base/CMakeLists.txt": "octavo_module(base SOURCES error.cpp)\n", "src/base/error.cpp": "int f() {\n}\n",
        "tests/base/CMakeLists.txt": "octavo_test(base SOURCES a_test.cpp)\n", "tests/base/a_test.cpp": "\n",
        "tests/integration/good.py": SCRIPT, "tests/integration/common.py": "X = 1\n",
        **{f"src/base/recipe{i}.h": "// Fp8Recipe::kMxfp8\n" for i in range(repository.MAX_RECIPE_FILES)},
        "src/fp8/recipe.h": "// Recipe::kMxfp8\n", "tests/fp8/recipe.h": "// Recipe::kMxfp8\n",
        **{name: "#!/bin/sh\n" for name in repository.EXECUTABLES},
    }
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        if name in repository.EXECUTABLES or text == SCRIPT:
            path.chmod(0o755)


def main():
    failures = 0
    with tempfile.TemporaryDirectory() as folder:
        good = pathlib.Path(folder) / "good"
        make_good_tree(good)
        complaints = repository.broken_rules(good)
        if complaints:
            print(f"the good tree: wanted no complaint, found {complaints}")
            failures += 1
        for name, (text, wanted) in SPOILED.items():
            bad = pathlib.Path(folder) / "bad"
            shutil.copytree(good, bad)
            path = bad / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.unlink() if text is None else path.write_text(text)
            complaints = repository.broken_rules(bad)
            if not any(wanted in complaint for complaint in complaints):
                print(f"{name} spoiled: wanted a complaint with '{wanted}', found {complaints}")
                failures += 1
            shutil.rmtree(bad)
    print(f"trees={len(SPOILED) + 1} failures={failures}")
    sys.exit(1 if failures else 0)


if __name__ == "__main__":
    main()
