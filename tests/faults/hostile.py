#!/usr/bin/env -S sh -c 'exec "$(dirname "$0")/../../.deps/venv/bin/python" "$0" "$@"'
# test: label=faults timeout=600 gate=""
"""Gives crafted hostile files to the program, with the command that a user would type.

Every one must be refused with exit code 2 or 5 and a message that names the reason, in less than ten seconds of work and
512 MB, and the trace of system calls must show that no file was opened outside of the case's folder, the program and the
system. First the sound files that they were made from are given to the same commands, and must be taken.
"""
import argparse
import multiprocessing
import os
import pathlib
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "integration"))
import hostile_files as files  # noqa: E402
import hostile_models  # noqa: E402, F401: adds its classes to the list
import hostile_sound as sound  # noqa: E402
from common import BUILD, OCTAVO, ROOT  # noqa: E402

REFUSED = (2, 5)  # wrong use; damaged
WRONG_SERVER = (*REFUSED, 3)  # what listens at the address is the environment's business
MOST_SECONDS, MOST_MEGABYTES, PATIENCE = 10, 512, 120  # patience: by the clock, on a machine with other work
# Opened by the loader, the C library and torch, whatever the file is.
SYSTEM = ("/usr/", "/lib/", "/lib64/", "/etc/", "/proc/", "/sys/", "/dev/", "/opt/")
CALLS = "open,openat,openat2,creat,rename,renameat,renameat2,unlink,unlinkat,mkdir,mkdirat,link,linkat,symlink,symlinkat"

GENERATE = ["--tokenizer", "bytes", "--prompt", "hi", "--max_new_tokens", "1", "--device", "cpu", "--offline"]


def command(kind, work):
    """What a user types for files of this kind."""
    given = sorted(work.glob("input.*"))
    return {
        "model": ["generate", "--checkpoint", "model", *GENERATE],
        "adapter": ["generate", "--checkpoint", "adapter", *GENERATE],
        "checkpoint": ["checkpoints", "verify", "checkpoints"],
        "tokenizer": ["data", "prepare", "input.txt", "--tokenizer", "tokenizer.json", "--output", "prepared"],
        "rows": ["data", "prepare", *(p.name for p in given), "--output", "prepared"],
        "data": ["data", "inspect", "data", "--verify_hashes"],
        "yaml": ["config", "check", "config.yaml"],
        "import": ["config", "import", "ds.json"],
        "rendezvous": ["train", "--dataset", "input.txt", "--model_name", "custom", "--n_layer", "1", "--n_head", "1", "--n_embd",
                       "32", "--max_steps", "1", "--device", "cpu"],
        "sweep": ["sweep", "create", "sweep.yaml", "config.yaml", "--database", "sweep.db"],
    }[kind]


def make_sound(kind, work):
    """A sound file of the kind, for the control."""
    if kind == "model":
        sound.sound_model(work)
    elif kind == "adapter":
        sound.sound_adapter(work)
    elif kind == "checkpoint":
        sound.sound_checkpoint(work)
    elif kind == "tokenizer":
        files.tokenizer(work, lambda value: None)
    elif kind == "rows":
        files.parquet(work, files.pyarrow.table({"text": ["one", "two"] * 10}))
    elif kind == "yaml":
        files.yaml(work, "model_name: gpt2\nmax_steps: 10\ndataset: input.txt\n")
    elif kind == "sweep":
        files.sweep(work, "method: grid\nparameters:\n  learning_rate:\n    values: [0.1, 0.01]\n")
    elif kind == "import":
        (work / "ds.json").write_text('{"train_micro_batch_size_per_gpu": 4}')


class Outcome:
    def __init__(self, code, text, seconds, megabytes, opened):
        self.code, self.text, self.seconds, self.megabytes, self.opened = code, text, seconds, megabytes, opened


class Server:
    """Says the same to everybody who connects."""

    def __init__(self, answer):
        self.socket = socket.create_server(("127.0.0.1", 0))
        self.port = self.socket.getsockname()[1]
        self.answer = answer
        threading.Thread(target=self.serve, daemon=True).start()

    def serve(self):
        try:
            while True:
                connection, _ = self.socket.accept()
                with connection:
                    connection.settimeout(5)
                    connection.sendall(self.answer)
                    connection.recv(1 << 16)
        except OSError:
            pass  # closed, or the other side is gone: the next case has a server of its own

    def close(self):
        self.socket.close()


def run(arguments, work):
    """Under strace, with the use of the processor and memory of whatever ran."""
    trace, output = work.parent / (work.name + ".trace"), work.parent / (work.name + ".output")
    environment = {"PATH": os.environ["PATH"], "HOME": str(work), "OMP_WAIT_POLICY": "passive", "LANG": "C.UTF-8"}
    server = None
    if (work / "answer").exists():
        (work / "input.txt").write_text("a text about nothing\n" * 50)
        server = Server((work / "answer").read_bytes())
        environment |= {"RANK": "1", "WORLD_SIZE": "2", "LOCAL_RANK": "1", "LOCAL_WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1",
                        "MASTER_PORT": str(server.port), "OCTAVO_RENDEZVOUS_SECRET": "only for this test 0123456789"}
    with open(output, "wb") as sink:
        process = subprocess.Popen(["strace", "-f", "-qq", "--seccomp-bpf", "-e", f"trace={CALLS}", "-o", trace, OCTAVO, *arguments],
                                   cwd=work, env=environment, stdin=subprocess.DEVNULL, stdout=sink, stderr=sink, start_new_session=True)
        deadline = time.monotonic() + PATIENCE
        while True:
            done, status, usage = os.wait4(process.pid, os.WNOHANG)
            if done:
                break
            if time.monotonic() > deadline:
                os.killpg(process.pid, signal.SIGKILL)  # strace and what it traces
            time.sleep(0.01)
    process.returncode = os.waitstatus_to_exitcode(status)
    if server:
        server.close()
    return Outcome(process.returncode, output.read_text(errors="replace"), usage.ru_utime + usage.ru_stime,
                   usage.ru_maxrss / 1024, opened_paths(trace, work))


def opened_paths(trace, work):
    """Every path of the trace, absolute and with links followed; those that are only looked for count as well."""
    paths = set()
    for line in trace.read_text(errors="replace").splitlines():
        for name in re.findall(r'(?:AT_FDCWD, |\()"((?:[^"\\]|\\.)*)"', line):
            path = work / name.encode().decode("unicode_escape")
            paths.update({os.path.normpath(path), os.path.realpath(path)})
    return paths


def escaped(outcome, work):
    allowed = (str(work.resolve()) + "/", str(work) + "/", str(BUILD.resolve()) + "/", str(ROOT / ".deps") + "/", *SYSTEM)
    return sorted(p for p in outcome.opened if not (p + "/").startswith(allowed))


def problems(outcome, reason, work):
    """What of the promise was not kept, by kind."""
    found = []
    if outcome.code not in (WRONG_SERVER if (work / "answer").exists() else REFUSED):
        found.append(("lost", f"exit code {outcome.code}, wanted 2 or 5"))
    if outcome.seconds > MOST_SECONDS or outcome.megabytes > MOST_MEGABYTES:
        found.append(("lost", f"{outcome.seconds:.1f} s and {outcome.megabytes:.0f} MB"))
    if not re.search(reason, outcome.text) or "a bug" in outcome.text or len(outcome.text) > 8000:
        found.append(("unnamed", f"wanted /{reason}/ in the message"))
    if re.search(r"[\x00-\x08\x0b-\x1f\x7f]", outcome.text.replace("\r", "")):
        found.append(("unnamed", "control characters in the message"))
    outside = escaped(outcome, work)
    if outside:
        found.append(("escaped", f"opened {outside[:3]}"))
    if any(work.glob("owned")):
        found.append(("escaped", "ran a program"))
    return found


def fresh(root, name, prepared, kind):
    work = root / name
    work.mkdir()
    if kind == "data":
        shutil.copytree(prepared, work / "data")
    return work


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", help="only these cases")
    parser.add_argument("--verbose", action="store_true", help="show every message")
    options = parser.parse_args()
    if not OCTAVO.exists() or shutil.which("strace") is None:
        sys.exit(f"wanted {OCTAVO} and strace; build the program and run ./bootstrap")
    cases = [c for c in sound.CASES if not options.names or c[0] in options.names]
    counts = {"refused": 0, "unnamed": 0, "escaped": 0, "lost": 0}
    with tempfile.TemporaryDirectory(prefix="octavo-hostile-") as scratch:
        root = pathlib.Path(scratch).resolve()
        (root / sound.OUTSIDE).mkdir()
        (root / sound.OUTSIDE / "model.safetensors").write_bytes(sound.pack(*sound.sound_weights()))
        source = root / "source"
        source.mkdir()
        (source / "input.txt").write_text("a text about nothing\n" * 50)
        made = run(["data", "prepare", "input.txt", "--output", "data"], source)
        if made.code != 0:
            sys.exit(f"the data set could not be made:\n{made.text}")
        for kind in dict.fromkeys(c[1] for c in cases):
            work = fresh(root, f"sound-{kind}", source / "data", kind)
            if kind == "rendezvous":  # a sound one has ranks: tests/integration has those
                continue
            make_sound(kind, work)
            outcome = run(command(kind, work), work)
            if outcome.code != 0 or escaped(outcome, work):
                sys.exit(f"the sound {kind} was not taken: {outcome.code}\n{outcome.text}\n{escaped(outcome, work)}")
        for name, kind, maker in cases:
            work = fresh(root, name, source / "data", kind)
            # In a process of its own: what this one has taken would count as the program's.
            with multiprocessing.Pool(1) as pool:
                reason = pool.apply(maker, (work,))
            outcome = run(command(kind, work), work)
            found = problems(outcome, reason, work)
            for what in {what for what, _ in found}:
                counts[what] += 1
            counts["refused"] += not found
            if found or options.verbose:
                message = outcome.text.strip().replace(scratch, "")[-600:]
                print(f"{name}: {'; '.join(text for _, text in found) or 'refused'} "
                      f"({outcome.seconds:.1f} s, {outcome.megabytes:.0f} MB)\n    {message}", flush=True)
            shutil.rmtree(work)
    results = " ".join(f"{key}={value}" for key, value in counts.items())
    print(f"tried={len(cases)} survived={len(cases) - counts['lost']} {results}")
    sys.exit(0 if counts["refused"] == len(cases) else 1)


if __name__ == "__main__":
    main()
