#!/usr/bin/env -S sh -c 'exec "$(dirname "$0")/../../.deps/venv/bin/python" "$0" "$@"'
# test: label=integration timeout=900 gate="--short" night="" measures="src/data"
"""`octavo data prepare --shared` by 1, 2 and 4 processes at once, on text, JSONL, JSON, Parquet and packed rows.

equal        all files of the folder are, byte for byte, those of one process without --shared
kills        the same while processes are killed (SIGKILL) at random moments and started again
once         files that appear in the work folder are counted (inotify): every item is done once; without kills each chunk is encoded
             once, and what the processes say that they did adds up
deduplicate  documents are those that a set of Python keeps, in their order; the same bytes for any number of processes, and with kills

usage: prepare_nodes.py [--short] [--seed N]    --short: fewer kills, for CI
"""
import argparse
import array
import ctypes
import json
import os
import pathlib
import random
import re
import struct
import subprocess
import sys
import tempfile
import time

import pyarrow
import pyarrow.parquet

from common import OCTAVO

HEADER, END = 4096, 256  # of a shard; the end of a document, in bytes
IN_CREATE, IN_MOVED_TO, IN_NONBLOCK = 0x100, 0x80, 0o4000
FLAGS = ["--tokenizer", "bytes", "--shard_tokens", "300000", "--num_workers", "1"]


def make_text(chance, length):
    words = ["the", "sea", "naïve", "whale", "€5", "🐳", "old", "Ahab", "\n", "<|endoftext|>"]
    return " ".join(chance.choice(words) for _ in range(length))


def make_inputs(folder, chance, megabytes):
    """Files with planted duplicates: within a file, in another file, in another format, and runs of equal rows. The documents in
    the order of the inputs."""
    folder.mkdir()
    texts, documents = [], []

    def draw():
        kind = chance.random()
        if texts and kind < 0.3:
            return chance.choice(texts)
        texts.append(make_text(chance, chance.randrange(1, 400)) + str(chance.random()))
        return texts[-1]

    for number in range(3):  # several chunks of 1 MiB each
        rows, size = [], 0
        while size < megabytes * 400_000:
            text = "" if chance.random() < 0.01 else draw()
            repeat = 3 if chance.random() < 0.02 else 1
            rows += [json.dumps({"text": text}, ensure_ascii=bool(chance.random() < 0.5))] * repeat
            documents += [text] * repeat
            size += repeat * len(rows[-1])
            if chance.random() < 0.02:
                rows.append("")
        (folder / f"a{number}.jsonl").write_text("\n".join(rows) + "\n" * chance.randrange(3))
    for number in range(8):
        text = draw()
        (folder / f"b{number}.txt").write_text(text)
        documents.append(text)
    rows = [draw() for _ in range(500)]
    (folder / "c.json").write_text(json.dumps([{"text": text} for text in rows]))
    documents += rows
    rows = [draw() for _ in range(2000)]
    pyarrow.parquet.write_table(pyarrow.table({"text": rows}), folder / "d.parquet", row_group_size=300)
    documents += rows
    return documents


def make_chats(path, chance, megabytes):
    rows = []
    while sum(map(len, rows[-1000:])) * max(1, len(rows) / 1000) < megabytes * 1_000_000:
        rows += [json.dumps({"prompt": make_text(chance, chance.randrange(1, 60)), "response": str(chance.random())})
                 for _ in range(1000)]
    path.write_text("\n".join(rows) + "\n")


class Watch:
    """Names that appear in folders: linked (create) or renamed into them (moved)."""

    def __init__(self, *folders):
        self.libc = ctypes.CDLL(None, use_errno=True)
        self.fd = self.libc.inotify_init1(IN_NONBLOCK)
        for folder in folders:
            folder.mkdir(parents=True, exist_ok=True)
            if self.libc.inotify_add_watch(self.fd, str(folder).encode(), IN_CREATE | IN_MOVED_TO) < 0:
                raise OSError(ctypes.get_errno(), "inotify_add_watch")
        self.counts = {}

    def take(self):
        try:
            data = os.read(self.fd, 1 << 20)
        except BlockingIOError:
            return
        while data:
            _, _, _, length = struct.unpack_from("iIII", data)
            name = data[16:16 + length].rstrip(b"\0").decode()
            if name:  # else the folder was removed
                self.counts[name] = self.counts.get(name, 0) + 1
            data = data[16 + length:]
        self.take()

    def close(self):
        self.take()
        os.close(self.fd)
        return self.counts


def start(inputs, output, flags, log):
    with open(log, "a") as file:
        return subprocess.Popen([OCTAVO, "data", "prepare", inputs, "--output", output, *FLAGS, *flags], stdout=file, stderr=file)


def prepare_one(inputs, output, flags=()):
    began = time.monotonic()
    done = subprocess.run([OCTAVO, "data", "prepare", inputs, "--output", output, *FLAGS, *flags], text=True, capture_output=True)
    if done.returncode != 0:
        sys.exit(f"one process failed: {done.stderr}")
    return read_folder(output), time.monotonic() - began, done.stdout


def read_folder(folder):
    return {str(path.relative_to(folder)): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


class Tests:
    def __init__(self, work, chance):
        self.work, self.chance, self.failed = work, chance, []
        self.runs = self.equal = self.kills = self.items = self.encoded_again = 0

    def problem(self, text):
        print(f"FAILED: {text}", flush=True)
        self.failed.append(text)

    def together(self, inputs, wanted, workers, flags=(), kills=0, seconds=1.0):
        """So many processes at once; `kills` of them are killed and started again."""
        self.runs += 1
        output, log = self.work / f"out{self.runs}", self.work / f"log{self.runs}.txt"
        watch = Watch(output / "prepare.shared" / "done", output / "prepare.shared" / "tokens")
        flags = ["--shared", *flags]
        running = [start(inputs, output, flags, log) for _ in range(workers)]
        died = 0
        for _ in range(kills):
            time.sleep(self.chance.random() * seconds * 0.6)
            watch.take()
            if (output / "dataset.json").exists():
                break
            victim = running.pop(self.chance.randrange(len(running)))
            victim.kill()
            died += victim.wait() == -9
            running.append(start(inputs, output, flags, log))
        codes = []
        for process in running:
            while process.poll() is None:
                watch.take()
                time.sleep(0.02)
            codes.append(process.returncode)
        self.kills += died
        self.check(output, log.read_text(), wanted, watch.close(), codes, died, f"{workers} processes, {died} kills, {' '.join(flags)}")

    def check(self, output, log, wanted, counts, codes, died, name):
        if any(codes):
            return self.problem(f"{name}: exit codes {codes}\n{log[-1500:]}")
        found = read_folder(output)
        if found != wanted:
            return self.problem(f"{name}: other files: {[key for key in found | wanted if found.get(key) != wanted.get(key)]}")
        self.equal += 1
        items = {key: count for key, count in counts.items() if not key.endswith(".tok")}
        chunks = {key: count for key, count in counts.items() if re.fullmatch(r"chunk-\d+", key)}
        encoded = {key: count for key, count in counts.items() if re.fullmatch(r"chunk-\d+\.0\.tok", key)}
        # Files of hashes and of duplicates carry the names of their items: one in each folder.
        twice = [key for key, count in items.items() if count != (2 if key.startswith(("texts-", "duplicates-")) else 1)]
        again = sum(encoded.values()) - len(encoded)
        self.items += len(items)
        self.encoded_again += again
        if len(chunks) < 3 or len(encoded) != len(chunks):
            self.problem(f"{name}: wanted three or more chunks, found {len(chunks)}, {len(encoded)} of them with tokens")
        if died == 0 and (twice or again or "done twice" in log):
            self.problem(f"{name}: done more than once: {twice} {[key for key, count in encoded.items() if count > 1]}")
        if again > died or [key for key in chunks if chunks[key] != 1]:
            self.problem(f"{name}: {again} chunks encoded again after {died} kills: {chunks}")
        said = [int(number) for number in re.findall(r"this process encoded (\d+) of", log)]
        if died == 0 and sum(said) != len(chunks):
            self.problem(f"{name}: the processes say that they encoded {said} of {len(chunks)} chunks")

    def deduplicated(self, inputs, documents):
        """One process against a set of Python; the folder that others must give."""
        kept, seen = [], set()
        for text in documents:
            if text and text not in seen:
                kept.append(text)
            seen.add(text)
        empty = sum(not text for text in documents)
        wanted, seconds, said = prepare_one(inputs, self.work / "deduplicated", ["--deduplicate"])
        index = json.loads(wanted["dataset.json"])
        found = []
        for split in ("train", "val"):
            tokens = array.array("H")
            for shard in index["splits"][split]["shards"]:
                tokens.frombytes(wanted[shard["name"]][HEADER:HEADER + 2 * shard["tokens"]])
            found += [part for part in split_documents(tokens) if part]
        left_out = len(documents) - empty - len(kept)
        for what, good in {
                f"{len(kept)} documents in their order, found {len(found)}": found == [text.encode() for text in kept],
                f"{left_out} duplicates in the index, found {index.get('duplicates_left_out')}":
                    index.get("duplicates_left_out") == left_out,
                f"'{left_out} duplicates left out' in: {said}": f"({left_out} duplicates left out)" in said,
                "hundreds of duplicates": left_out > 300}.items():
            if not good:
                self.problem(f"deduplicate: wanted {what}")
        return wanted, seconds, left_out


def split_documents(tokens):
    documents, part = [], bytearray()
    for token in tokens:
        if token == END:
            documents.append(bytes(part))
            part = bytearray()
        else:
            part.append(token)
    return [*documents, bytes(part)]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--short", action="store_true")
    parser.add_argument("--seed", type=int, default=7)
    given = parser.parse_args()
    chance = random.Random(given.seed)
    kill_rounds, megabytes = (1, 3) if given.short else (8, 6)
    with tempfile.TemporaryDirectory(prefix="octavo-prepare-nodes-") as folder:
        work = pathlib.Path(folder)
        tests = Tests(work, chance)
        documents = make_inputs(work / "in", chance, megabytes)
        make_chats(work / "chats.jsonl", chance, megabytes)
        cases = []
        for name, inputs, flags in (("mixed", work / "in", ()), ("packed", work / "chats.jsonl", ("--max_seq_length", "1024"))):
            cases.append((inputs, *prepare_one(inputs, work / name, flags)[:2], flags))
        wanted, seconds, left_out = tests.deduplicated(work / "in", documents)
        cases.append((work / "in", wanted, seconds, ("--deduplicate",)))
        for inputs, wanted, seconds, flags in cases:
            for workers in (1, 2, 4):
                tests.together(inputs, wanted, workers, flags)
                for _ in range(kill_rounds):
                    tests.together(inputs, wanted, workers, flags, kills=3 * workers, seconds=seconds)
        if tests.kills < (20 if given.short else 150):
            tests.problem(f"wanted more kills, found {tests.kills}")
    print(f"runs={tests.runs} equal={tests.equal} kills={tests.kills} items={tests.items} encoded_again={tests.encoded_again} "
          f"duplicates={left_out} failed={len(tests.failed)}")
    return 1 if tests.failed or tests.equal < tests.runs else 0


if __name__ == "__main__":
    sys.exit(main())
