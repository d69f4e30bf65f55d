#!/usr/bin/env -S sh -c 'exec "$(dirname "$0")/../../.deps/venv/bin/python" "$0" "$@"'
# test: label=integration timeout=300 gate="" measures="tests/fetch_data.py tests/sources.json"
"""tests/fetch_data.py against a server on loopback that has the paths of the real one; the real one is not asked.

The real list: every file that is taken from GitHub as it is, and what is made of such files. Books (lines of a longer text) and
files out of packages, whose sources are not among the test data: a made-up list. Then answers that are wrong, short or missing.
"""
import hashlib
import http.server
import io
import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import threading
import zipfile

import pyarrow
from common import DATA, ROOT

TOOL = ROOT / "tests" / "fetch_data.py"
COMMIT = "0" * 40
BOOK = "\ufeffLicence\r\n   Title\r\nfirst\r\nnote\r\nlast\r\nLicence\r\n".encode()
ROWS = {"ind": [7], "activity_label": ["a"], "ctx_a": ["b"], "ctx_b": ["c"], "ctx": ["b c"], "endings": [["d", "é"]],
        "source_id": ["s"], "split": ["val"], "split_type": ["indomain"], "label": ["3"]}
ROW = ('{"ind": 7, "activity_label": "a", "ctx_a": "b", "ctx_b": "c", "ctx": "b c", "split": "val", '
       '"split_type": "indomain", "label": 3, "endings": ["d", "\\u00e9"], "source_id": "s"}\n').encode()


class Server(http.server.ThreadingHTTPServer):
    """Answers with `files` by path; a path in `short` promises more bytes than come."""

    def __init__(self):
        super().__init__(("127.0.0.1", 0), Handler)
        self.files, self.short, self.asked = {}, set(), []
        threading.Thread(target=self.serve_forever, daemon=True).start()

    def address(self):
        return f"http://127.0.0.1:{self.server_address[1]}"


class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.server.asked.append(self.path)
        raw = self.server.files.get(self.path)
        self.send_response(404 if raw is None else 200)
        self.send_header("Content-Length", str(len(raw or b"") + (10 if self.path in self.server.short else 0)))
        self.end_headers()
        self.wfile.write(raw or b"")

    def log_message(self, *_):
        pass


class Checks:
    def __init__(self):
        self.count = self.failed = 0

    def check(self, what, good, detail=""):
        self.count += 1
        if not good:
            self.failed += 1
            print(f"wrong: {what} {detail}")


def run(server, into, *words, sources=None):
    more = ["--sources", str(sources)] if sources else []
    environment = dict(os.environ, PIP_NO_INDEX="1", PIP_FIND_LINKS=str(into.parent), PIP_CONFIG_FILE=os.devnull)
    environment = {key: value for key, value in environment.items() if key.lower() not in ("http_proxy", "all_proxy")}
    done = subprocess.run([TOOL, "--into", into, "--github", server.address(), *more, *words], check=False, text=True,
                          capture_output=True, env=environment)
    last = done.stdout.rstrip().rpartition("\n")[2]
    return done, dict(word.split("=") for word in last.split() if "=" in word)


def path_of(row):
    return "/" + "/".join(row["github"])


def real_list(checks, server, work):
    """What the real list has from GitHub as it is, or made of such files."""
    rows = [row for row in json.loads((ROOT / "tests" / "sources.json").read_text())
            if not {"none", "package", "lines"} & set(row)]
    for row in rows:
        if "github" in row:
            raw = (DATA / "data" / row["file"]).read_bytes()
            server.files[path_of(row)] = raw.replace(b"\n", b"\r\n") if row.get("make") == "lf" else raw
    (work / "real.json").write_text(json.dumps(rows))
    done, counts = run(server, work / "real", sources=work / "real.json")
    checks.check("the real list", counts.get("fetched") == str(len(rows)), done.stdout[-500:] + done.stderr)
    for row in rows:
        path = work / "real" / "data" / row["file"]
        same = path.is_file() and hashlib.sha256(path.read_bytes()).hexdigest() == row["sha256"]
        checks.check(row["file"], same and path.stat().st_size == row["bytes"])
    asked = len(server.asked)
    done, counts = run(server, work / "real", sources=work / "real.json")
    checks.check("nothing is fetched twice", counts.get("there") == str(len(rows)) and len(server.asked) == asked, counts)
    damaged = work / "real" / "data" / "text" / "tinyshakespeare.txt"
    damaged.write_bytes(damaged.read_bytes()[:-1])
    done, counts = run(server, work / "real", "--check", sources=work / "real.json")
    checks.check("--check finds damage", done.returncode == 1 and counts.get("failed") == "1" and "wanted sha256" in done.stderr)
    done, counts = run(server, work / "real", "text", sources=work / "real.json")
    checks.check("damage is fetched again", done.returncode == 0 and counts.get("fetched") == "1", done.stderr)
    return len(rows)


def made_up_list(checks, server, work):
    """A book of chosen lines, and rows out of a package that pip finds in a folder."""
    table, stream = pyarrow.table(ROWS), io.BytesIO()
    with pyarrow.ipc.new_stream(stream, table.schema) as writer:
        writer.write_table(table)
    with zipfile.ZipFile(work / "made_up-1.0-py3-none-any.whl", "w") as wheel:
        wheel.writestr("made_up/rows.arrow", stream.getvalue())
        wheel.writestr("made_up-1.0.dist-info/METADATA", "Metadata-Version: 2.1\nName: made-up\nVersion: 1.0\n")
        wheel.writestr("made_up-1.0.dist-info/WHEEL", "Wheel-Version: 1.0\nTag: py3-none-any\n")
        wheel.writestr("made_up-1.0.dist-info/RECORD", "")
    book = b"Title\nfirst\n\nlast"
    server.files[f"/a/book/{COMMIT}/book.txt"] = BOOK
    rows = [row_of("text/book.txt", book, github=["a/book", COMMIT, "book.txt"], make="lines", lines=[[2, 3], [], [5, 5]]),
            row_of("eval/rows.jsonl", ROW, package=["made-up==1.0", "made_up/rows.arrow"], make="hellaswag"),
            row_of("published/x.csv", b"x", none="made by hand")]
    (work / "made_up.json").write_text(json.dumps(rows))
    done, counts = run(server, work / "made_up", sources=work / "made_up.json")
    checks.check("lines of a book, rows of a package, a file without a source",
                 done.returncode == 0 and counts.get("fetched") == "2" and counts.get("none") == "1", done.stdout + done.stderr)
    checks.check("the book", (work / "made_up/data/text/book.txt").read_bytes() == book)


def row_of(name, raw, **more):
    return {"file": name, "licence": "none", "bytes": len(raw), "sha256": hashlib.sha256(raw).hexdigest(), **more}


def wrong_answers(checks, server, work):
    """None of them leaves a file behind, and the sound one among them is fetched all the same."""
    rows = [row_of(f"text/{name}", b"right", github=["a/b", COMMIT, name]) for name in ("changed", "missing", "short", "sound")]
    for name, raw in {"changed": b"wrong", "short": b"right", "sound": b"right"}.items():
        server.files[f"/a/b/{COMMIT}/{name}"] = raw
    server.short.add(f"/a/b/{COMMIT}/short")
    rows.append(row_of("text/unmade", b"x", make="stories260K"))
    (work / "wrong.json").write_text(json.dumps(rows))
    done, counts = run(server, work / "wrong", sources=work / "wrong.json")
    checks.check("wrong answers", done.returncode == 1 and counts.get("failed") == "4" and counts.get("fetched") == "1", done.stdout)
    for name, wanted in {"changed": "the source has changed", "missing": "404", "short": "try again", "unmade": "fetch it first"}.items():
        line = next((line for line in done.stderr.splitlines() if line.startswith(f"text/{name}:")), "")
        checks.check(f"{name} is named", wanted in line and "wanted" in line, done.stderr)
    left = sorted(path.name for path in (work / "wrong").rglob("*") if path.is_file())
    checks.check("only the sound file is left", left == ["sound"], left)
    shutil.rmtree(work / "wrong")
    server.shutdown()
    server.server_close()
    done, _ = run(server, work / "wrong", sources=work / "wrong.json")
    checks.check("a server that is not there", done.returncode == 1 and "refused" in done.stderr.lower(), done.stderr)


def main():
    if not (DATA / "data" / "tokenizers").is_dir():
        print(f"wanted {DATA / 'data'}, found none; set OCTAVO_TEST_DATA")
        sys.exit(1 if os.environ.get("CI") == "true" else 0)
    checks, server = Checks(), Server()
    with tempfile.TemporaryDirectory() as folder:
        work = pathlib.Path(folder)
        files = real_list(checks, server, work)
        made_up_list(checks, server, work)
        wrong_answers(checks, server, work)
    print(f"files={files} checks={checks.count} failed={checks.failed}")
    sys.exit(1 if checks.failed else 0)


if __name__ == "__main__":
    main()
