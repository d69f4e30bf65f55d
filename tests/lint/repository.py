#!/usr/bin/env python3
# test: label=lint timeout=60 gate=""
"""Checks rules of the repository that a compiler does not: who may include whom, sizes, words and promised files.

usage: repository.py [ROOT]    ROOT: the tree to look at (default: the one this file is in). Exit 1 when a rule is broken.
"""
import pathlib
import re
import subprocess
import sys

import scripts

MAX_FILE_LINES = 600
MAX_FUNCTION_LINES = 60
MAX_RECIPE_FILES = 12  # today: 11
CODE = {".cpp", ".h", ".hpp", ".cu", ".cuh", ".py", ".sh", ".cmake"}
# Programs of the repository that are not scripts with a header (scripts.py), each run without arguments.
EXECUTABLES = ["bootstrap", ".ci/run", ".ci/nightly", ".ci/tidy", "fuzz/run.py", "packaging/deb", "packaging/lock",
               "packaging/sbom", "packaging/wheel", "tests/fetch_data.py", "docs/diagrams.py", "docs/reference_pages.py"]
# Folders of one machine, and places that packages come from: neither belongs into a tree that others clone.
MACHINE_WORDS = [
    (re.compile(r"(?<![\w./-])/(?:work|tmp|root|home)/"), "a machine's folder"),
    (re.compile(r"(?:index[-]url|extra[-]index|trusted[-]host|https?://[\w.-]*(?:pypi|artifactory|nexus|registry)[\w.-]*)"),
     "a package registry's address"),
]


def code_files(root, *folders):
    for folder in folders:
        for path in sorted((root / folder).rglob("*")):
            if path.is_file() and (path.suffix in CODE or path.name == "CMakeLists.txt"):
                yield path


def module_table(root):
    """The modules of docs/internals/tour.md, top to bottom."""
    text = (root / "docs/internals/tour.md").read_text()
    return re.findall(r"^\| `src/(\w+)` \|", text, re.M)


def check_modules(root):
    modules = module_table(root)
    if len(modules) < 3:
        yield "docs/internals/tour.md: wanted the module table (lines '| `src/MODULE` | …'), found none; write it"
        return
    for path in code_files(root, "src"):
        name = path.relative_to(root)
        if len(name.parts) < 3:
            continue
        module = name.parts[1]
        if module not in modules:
            yield f"{name}: module '{module}' is not in the table of docs/internals/tour.md; add it there, in its place"
            continue
        for number, line in enumerate(path.read_text().splitlines(), 1):
            include = re.match(r'\s*#\s*include\s*["<](\.\.?/|\w+(?=/))', line)
            if not include:
                continue
            other = include[1]
            if other.startswith("."):
                yield f"{name}:{number}: a relative include hides its module; write the path from src/"
            elif other in modules and modules.index(other) > modules.index(module):
                yield (f"{name}:{number}: {module} includes {other}, which stands below it in the table; move the code "
                       "or turn the dependency round")


def function_lengths(text):
    """(first line, lines, heading) of every function body, by braces; good for clang-formatted C++."""
    lines = re.sub(r'"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])\'', '""', text).splitlines()
    stack, heading = [], ""
    for number, line in enumerate(lines, 1):
        code = "" if line.startswith("#") else line.split("//")[0]
        for char in code:
            if char == "{":
                before = heading
                plain = re.search(r"\b(namespace|class|struct|union|enum|extern)\b", before) and "(" not in before
                stack.append((number, before.strip(), bool(plain)))
                heading = ""
            elif char == "}":
                if not stack:
                    continue
                begin, what, plain = stack.pop()
                inside = all(outer[2] for outer in stack)
                if inside and not plain and "(" in what:
                    yield begin, number - begin + 1, what[-80:]
                heading = ""
            elif char == ";":
                heading = ""
            else:
                heading += char
        heading += " "


def check_sizes(root):
    for path in code_files(root, "src", "tests", "bench", ".ci", "cmake"):
        name, text = path.relative_to(root), path.read_text()
        count = text.count("\n")
        if count > MAX_FILE_LINES:
            yield f"{name}: {count} lines, wanted at most {MAX_FILE_LINES}; split it along what it does"
        if name.parts[0] == "src" and path.suffix in {".cpp", ".h"}:
            for line, length, what in function_lengths(text):
                if length > MAX_FUNCTION_LINES:
                    yield f"{name}:{line}: a function of {length} lines, wanted at most {MAX_FUNCTION_LINES}: {what}"


def check_recipe_names(root):
    """Everything but src/fp8 and its tests asks a recipe's row of traits; few have a reason to name one."""
    own = ("src/fp8/", "tests/fp8/", "tests/conformance/fp8_")
    files = [path.relative_to(root).as_posix() for path in code_files(root, "src", "tests", "bench", "fuzz")
             if path.suffix in {".cpp", ".h"} and re.search(r"\bFp8Recipe::k|\bRecipe::k", path.read_text())]
    files = [name for name in files if not name.startswith(own)]
    if len(files) > MAX_RECIPE_FILES:
        yield (f"{', '.join(files)}: wanted at most {MAX_RECIPE_FILES} files outside src/fp8 that name a recipe, found "
               f"{len(files)} files name a recipe; ask its row (src/fp8/recipe_traits.h), or loop over fp8::kRecipes")


def check_loops(root):
    """at::parallel_for is a loop on one thread in a file compiled without OpenMP, as all of ours are."""
    for path in code_files(root, "src"):
        for number, line in enumerate(path.read_text().splitlines(), 1):
            if re.search(r"\bat::parallel_(for|reduce)\(", line):
                yield f"{path.relative_to(root)}:{number}: at::parallel_for runs on one thread here; write engine::parallel_for"


def check_torch_operators(root):
    """Operators with a leading underscore may change with any release of libtorch: one header has them all."""
    for path in code_files(root, "src"):
        name = path.relative_to(root).as_posix()
        for number, line in enumerate(path.read_text().splitlines(), 1):
            if name != "src/engine/torch_version.h" and re.search(r"\b(?:at|torch)::_[a-z]", line):
                yield f"{name}:{number}: an underscore operator of libtorch; call it through engine/torch_version.h"


def tracked_files(root):
    if not (root / ".git").exists():
        return [path for path in sorted(root.rglob("*")) if path.is_file()]
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=root, check=True, capture_output=True, text=True).stdout
    return [root / name for name in listed.split("\0") if name and (root / name).is_file()]


def check_leftovers(root):
    """Nothing empty, and nothing of the machine that a file was made on: not in pictures and results either."""
    for path in tracked_files(root):
        if path.stat().st_size == 0:
            yield f"{path.relative_to(root)}: an empty file; delete it"
        try:
            lines = path.read_text().splitlines()
        except UnicodeDecodeError:
            continue
        for number, line in enumerate(lines, 1):
            for pattern, what in MACHINE_WORDS:
                if pattern.search(line):
                    yield f"{path.relative_to(root)}:{number}: {what}: {line.strip()[:80]}"


def is_built(source, listing):
    """Whether a CMakeLists.txt names a source, or takes all of its folder: octavo_module(NAME …) and octavo_test(NAME …) without
    SOURCES, of the folder itself and of those that FOLDERS names; or file(GLOB … FOLDER/*.cpp)."""
    text = listing.read_text()
    if re.search(rf"[\s(/]{re.escape(source.name)}[\s)]", text):
        return True
    folder = source.parent.relative_to(listing.parent).as_posix()
    for call in re.findall(r"octavo_(?:module|test)\(([^)]*)\)|file\(GLOB ([^)]*)\)", text):
        words = (call[0] or call[1]).split()
        if call[1] and (f"{folder}/*.cpp" if folder != "." else "*.cpp") in words:
            return True
        if call[0] and "SOURCES" not in words and (folder == "." or folder in words):
            return True
    return False


def check_promises(root):
    for name in EXECUTABLES:
        path = root / name
        if not path.is_file() or not path.stat().st_mode & 0o111:
            yield f"{name}: wanted an executable file, found {'a file' if path.exists() else 'nothing'}"
    for test in sorted((root / "tests").glob("*/*_test.cpp")):
        listing = test.parent / "CMakeLists.txt"
        if not listing.is_file() or not is_built(test, listing):
            yield f"{test.relative_to(root)}: not in {listing.relative_to(root)}, so it never runs"
    for script in code_files(root, "tests", "bench", "studies", "fuzz", "packaging"):
        if script.suffix == ".py" and script.stem in sys.stdlib_module_names:
            yield f"{script.relative_to(root)}: hides Python's own {script.stem} from every script beside it; give it another name"
    for path in (root / "src").rglob("*.cpp"):
        listings = [folder / "CMakeLists.txt" for folder in path.parents if folder != root and root in folder.parents]
        if not any(f.is_file() and is_built(path, f) for f in listings):
            yield f"{path.relative_to(root)}: in no CMakeLists.txt, so it is never built"


def result_of(script):
    """Where the output of a script is kept: tests/FOLDER/NAME.py in tests/results/FOLDER/NAME.txt, those of bench/ there."""
    folder, _, name = script.removesuffix(".py").rpartition("/")
    return f"tests/results/{folder.removeprefix('tests/')}/{name}.txt" if folder.startswith("tests/") else f"{folder}/results/{name}.txt"


def rows_with_scripts(text):
    """(row, scripts) of a page's tables; 'the same script' is that of the row before."""
    before = []
    for row in re.findall(r"^\|.*\|$", text, re.M):
        scripts = re.findall(r"`((?:bench|tests)/[\w/]+\.py)(?: [^`]*)?`", row)
        before = scripts or (before if "the same script" in row else [])
        yield row, before


def check_results(root):
    """A result (`key=value`) in a table of these pages stands in the last line of the kept output of a script of its row."""
    for page in ("README.md", "docs/concepts/reliability.md", "docs/concepts/untrusted-input.md"):
        for row, scripts in rows_with_scripts((root / page).read_text()) if (root / page).is_file() else ():
            kept = [result_of(script) for script in scripts]
            last = [result for name in kept if (root / name).is_file()
                    for result in (root / name).read_text().rstrip().split("\n")[-1].split()]
            for result in re.findall(r"`(\w+=[\w.+-]+)`", row) if scripts else ():
                if result not in last:
                    yield f"{page}: {result} is not in the last line of {' or '.join(kept)}; quote what was measured"


def anchors_of(text):
    """What links into a page may name: its headings, as Markdown pages are commonly served."""
    headings = re.findall(r"^#+ +(.*)$", text, re.M)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def check_links(root):
    """Links between pages and to pictures lead somewhere, and every page of docs/ has its place in the site (mkdocs.yml)."""
    for path in [*sorted(root.glob("*.md")), *sorted(root.glob("docs/**/*.md"))]:
        text = re.sub(r"```.*?```|`[^`\n]*`", "", path.read_text(), flags=re.S)
        for target in re.findall(r"\]\(([^)\s]+)\)", text) + re.findall(r'\b(?:src|srcset|href)="([^"\s]+)', text):
            name, _, anchor = target.partition("#")
            there = path.parent / name if name else path
            if "://" in target or target.startswith("mailto:"):
                continue
            if not there.exists():
                yield f"{path.relative_to(root)}: a link to {target}, which is not there"
            elif anchor and there.suffix == ".md" and anchor not in anchors_of(there.read_text()):
                yield f"{path.relative_to(root)}: a link to {target}, a page without that heading"
    nav = (root / "mkdocs.yml").read_text() if (root / "mkdocs.yml").is_file() else ""
    for page in sorted(root.glob("docs/**/*.md")):
        name = page.relative_to(root / "docs").as_posix()
        if not re.search(rf"[\s:]{re.escape(name)}\s", nav):
            yield f"mkdocs.yml: no line for docs/{name}; every page has its place in nav"


CHECKS = [check_modules, check_sizes, check_recipe_names, check_loops, check_torch_operators, check_leftovers, check_promises,
          scripts.complaints, check_results, check_links]


def broken_rules(root):
    return [complaint for check in CHECKS for complaint in check(root)]


def main():
    root = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else __file__).resolve()
    if root.is_file():
        root = root.parent.parent.parent
    complaints = broken_rules(root)
    for complaint in complaints:
        print(complaint)
    print(f"modules={len(module_table(root))} files={sum(1 for _ in code_files(root, 'src', 'tests', 'bench'))} "
          f"broken={len(complaints)}")
    sys.exit(1 if complaints else 0)


if __name__ == "__main__":
    main()
