#!/usr/bin/env -S sh -c 'exec "$(dirname "$0")/../../.deps/venv/bin/python" "$0" "$@"'
# test: label=integration timeout=600 gate="--short" night="" alone=night
"""Nothing of another run is touched: random sequences of train, stop, kill, resume, rename, other model, other data, sweep and
compare in one folder. After every command no file of a run that the command did not name is removed, changed or added to
(hashes), and every refusal says what to type.

usage: other_runs.py [--short] [--sequences N] [--seed S]    --short: about a minute, for CI
"""
import argparse
import fnmatch
import hashlib
import json
import os
import pathlib
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time

from common import OCTAVO, STOPPED, TEXT, require_files, wait_for_step

USAGE, NOT_ENOUGH = 2, 6  # exit codes; the second of compare: two steps are not enough data
SHORT_SEQUENCES, SEQUENCES = 8, 200
NAMES = [f"run-{letter}" for letter in "abcdefgh"]
COMPARISONS = ["compared-1", "compared-2", NAMES[0]]  # the last: also a run's name
ROOTS = {"bf16": "checkpoints", "fp8": "checkpoints_fp8"}
SHARED = [f"{root}/latest" for root in ROOTS.values()]
REMEDIES = ("--run_name", "--overwrite", "--resume", "start without resume")
CONFIG = """
model_name: custom
n_layer: 1
n_head: 1
n_embd: 16
max_seq_length: 16
tokenizer: bytes
dataset: one.txt
val_fraction: 0.1
batch_size: 1
learning_rate: 1e-3
max_steps: 2
warmup_steps: 0
eval_freq: 2
eval_batches: 1
checkpoint_freq: 1
keep_checkpoints: 2
num_threads: 1
mixed_precision: bf16
fp8_stats_freq: 0
"""
SWEEP = "method: grid\nmetric: {name: val_loss, goal: minimize}\nparameters:\n  seed: {values: [1, 2]}\n"
MODELS = {"small": ("--n_embd", "16"), "other": ("--n_embd", "32")}
DATA = {"one": ("--dataset", "one.txt"), "two": ("--dataset", "two.txt")}


def signature(path):
    """What a changed file cannot keep, cheap to ask for."""
    status = path.lstat()
    return status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns


def content_hash(path):
    return hashlib.blake2b(os.readlink(path).encode() if path.is_symlink() else path.read_bytes()).digest()


class Snapshot:
    """Every file and link of all runs, by its path, with its content's hash."""

    def __init__(self, work, before=None):
        self.files = {}
        for top in ("runs", *ROOTS.values()):
            for folder, _, names in os.walk(work / top):
                links = [entry.name for entry in os.scandir(folder) if entry.is_symlink() and entry.is_dir()]
                for name in {*names, *links}:
                    path = pathlib.Path(folder) / name
                    key, mark = str(path.relative_to(work)), signature(path)
                    known = before.files.get(key) if before else None
                    self.files[key] = known if known and known[0] == mark else (mark, content_hash(path))

    def differences(self, later, addressed):
        """Files that are gone, new or other ones in `later`, but for those of the addressed runs and the shared links."""
        found = []
        for key in sorted(self.files.keys() | later.files.keys()):
            before, after = self.files.get(key), later.files.get(key)
            if before and after and before[1] == after[1]:
                continue
            if key in SHARED or any(fnmatch.fnmatchcase(key, pattern) for pattern in addressed):
                continue
            found.append(f"{key} {'changed' if before and after else 'removed' if before else 'added'}")
        return found


class World:
    """One folder with everything in it."""

    def __init__(self, work, chance):
        self.work, self.chance = work, chance
        self.commands = self.refusals = self.sequences = 0
        self.problems, self.without_remedy, self.kinds = [], 0, {}
        self.facts = {}  # of a run: model, data and precision that it was made with
        text = TEXT.read_text()
        (work / "one.txt").write_text(text[:4000])
        (work / "two.txt").write_text(text[5000:9000])
        (work / "train.yaml").write_text(CONFIG)
        (work / "sweep.yaml").write_text(SWEEP)
        self.snapshot = Snapshot(work)
        self.make_older_run()

    def make_older_run(self):
        """A run from before runs had folders of their own: its checkpoints lie in checkpoints/ itself."""
        self.run("older", ["train", "train.yaml", "--run_name", "older"], self.own("older"), {0})
        self.facts["older"] = ("small", "one", "bf16")
        root = self.work / "checkpoints"
        (root / "latest").unlink()
        for path in (root / "older").iterdir():
            path.rename(root / path.name)
        (root / "older").rmdir()
        self.snapshot = Snapshot(self.work)

    # -- what is there

    @staticmethod
    def own(name):
        """Patterns of what a run may write. Comparisons keep whole runs in a folder: those are not its own."""
        return [f"runs/{name}/[!ab]*", *(f"{root}/{name}/*" for root in ROOTS.values())]

    def steps(self, name, precision):
        return sorted((self.work / ROOTS[precision] / name).glob("step-*/manifest.json"))

    def has_history(self, name):
        path = self.work / "runs" / name / "metrics.jsonl"
        return path.exists() and path.stat().st_size > 0

    def taken(self, name, precision):
        return self.has_history(name) or bool(self.steps(name, precision))

    def free_name(self):
        free = [n for n in NAMES if not any(self.taken(n, p) for p in ROOTS) and not (self.work / "runs" / n).exists()]
        return self.chance.choice(free) if free else None

    def existing(self):
        return [n for n in self.facts if self.steps(n, self.facts[n][2])]

    # -- commands

    def run(self, kind, words, addressed, codes, stop=None):
        """Runs a command and looks at what it did. `codes`: the exit codes that are right."""
        command = [str(OCTAVO), *map(str, words)]
        env = os.environ | {"OMP_WAIT_POLICY": "passive", "OMP_NUM_THREADS": "1"}
        process = subprocess.Popen(command, cwd=self.work, env=env, text=True, errors="replace", stdout=subprocess.PIPE,
                                   stderr=subprocess.PIPE)
        if stop:
            wait_for_step(process, self.chance.randrange(1, 4))
            process.send_signal(stop)
        out, err = process.communicate(timeout=120)
        code, said = process.returncode, f"$ octavo {' '.join(map(str, words))}\n{err[-1500:]}{out[-300:]}"
        self.commands += 1
        self.kinds[kind] = self.kinds.get(kind, 0) + 1
        refused = code == USAGE
        later = Snapshot(self.work, self.snapshot)
        for difference in self.snapshot.differences(later, [] if refused else addressed):
            self.problems.append(f"{kind}, exit code {code}: {difference}\n{said}")
        self.snapshot = later
        if refused:
            self.refusals += 1
            if not any(remedy in err for remedy in REMEDIES):
                self.without_remedy += 1
                self.problems.append(f"{kind}: the refusal names no remedy\n{said}")
        if code not in codes:
            self.problems.append(f"{kind}: exit code {code}, wanted one of {sorted(codes)}\n{said}")
        return code

    def flags(self, facts):
        model, data, precision = facts
        return [*MODELS[model], *DATA[data], "--mixed_precision", precision]

    def some_facts(self):
        pick = self.chance.choice
        return pick(list(MODELS)), pick(list(DATA)), pick(["bf16", "bf16", "bf16", "fp8"])

    def train(self, name, facts, *more, codes, stop=None, kind="train"):
        code = self.run(kind, ["train", "train.yaml", "--run_name", name, *self.flags(facts), *more], self.own(name), codes, stop)
        if code in (0, STOPPED, -signal.SIGKILL):
            self.facts[name] = facts
        return code

    def start(self):
        """A new run, or one of a name that is taken."""
        name, facts = self.chance.choice(NAMES), self.some_facts()
        if self.chance.random() < 0.15:  # without a name it gets one
            return self.run("train unnamed", ["train", "train.yaml", *self.flags(facts)], NewRuns(self.work), {0})
        self.train(name, facts, codes={USAGE} if self.taken(name, facts[2]) else {0})

    def overwrite(self):
        name, facts = self.chance.choice(NAMES), self.some_facts()
        self.train(name, facts, "--overwrite", codes={0}, kind="overwrite")

    def stop(self):
        """A long run, asked to stop or killed; in the middle of a save, too."""
        name = self.free_name()
        if not name:
            return self.overwrite()
        number = self.chance.choice([signal.SIGTERM, signal.SIGKILL])
        wanted = {STOPPED} if number == signal.SIGTERM else {-signal.SIGKILL}
        self.train(name, self.some_facts(), "--max_steps", 100000, codes=wanted, stop=number, kind="stop")

    def last_step(self, name):
        newest = max(self.steps(name, self.facts[name][2]))
        return json.loads(newest.read_text())["step"]

    def resume(self):
        """Its own checkpoint, by one of the names that it has."""
        name = self.chance.choice(self.existing() or [None])
        if not name:
            return self.start()
        facts = self.facts[name]
        saved = self.chance.choice(self.steps(name, facts[2])).parent
        what = self.chance.choice(["latest", name, saved.name, saved.relative_to(self.work), saved.parent.relative_to(self.work)])
        more = ("--resume", what, "--max_steps", self.last_step(name) + 2)
        # The history may be another run's of the same name, made in the other precision.
        self.train(name, facts, *more, codes={0} if self.same_run(name) else {USAGE}, kind="resume")

    def same_run(self, name):
        receipt = self.work / "runs" / name / "receipt.json"
        if not self.has_history(name) or not receipt.exists():
            return True
        mine = json.loads(receipt.read_text()).get("run_id")
        ids = {json.loads(m.read_text())["extra"].get("run_id") for m in self.steps(name, self.facts[name][2])}
        return ids <= {mine}

    def resume_wrongly(self):
        """Another model or other data."""
        name = self.chance.choice(self.existing() or [None])
        if not name:
            return self.start()
        model, data, precision = self.facts[name]
        other = self.chance.choice([("other" if model == "small" else "small", data, precision),
                                    (model, "two" if data == "one" else "one", precision)])
        self.run("resume wrongly", ["train", "train.yaml", "--run_name", name, *self.flags(other), "--resume", "latest",
                                    "--max_steps", self.last_step(name) + 2], [], {USAGE})

    def resume_newest(self):
        """--resume latest without a name: the run that saved last."""
        link = self.work / "checkpoints" / "latest"
        if not link.is_symlink() or not link.exists():
            return self.start()
        name = json.loads((link / "manifest.json").read_text())["extra"]["run_name"]
        folder = link.resolve().parent.name
        if name != folder or name not in self.facts:  # renamed by hand, or of a sweep
            return self.resume()
        facts = self.facts[name][:2] + ("bf16",)
        step = json.loads((link / "manifest.json").read_text())["step"]
        self.run("resume the newest", ["train", "train.yaml", *self.flags(facts), "--resume", "latest", "--max_steps", step + 2],
                 self.own(name), {0, USAGE})

    def fork(self):
        """--resume A --run_name B."""
        source = self.chance.choice([*self.existing(), "older"])
        name, facts = self.chance.choice(NAMES), self.facts[source]
        if name == source:
            return self.resume()
        codes = {USAGE} if self.taken(name, facts[2]) else {0}
        step = self.last_step(source) if self.steps(source, facts[2]) else 2
        self.train(name, facts, "--resume", source, "--max_steps", step + 2, codes=codes, kind="fork")

    def rename(self):
        """Folders renamed by hand continue under their new name."""
        name, new = self.chance.choice(self.existing() or [None]), self.free_name()
        if not name or name == "older" or not new or not self.same_run(name):
            return self.fork()
        if any(self.steps(name, p) for p in ROOTS if p != self.facts[name][2]):
            return self.fork()
        precision = self.facts[name][2]
        for folder in (self.work / "runs", self.work / ROOTS[precision]):
            if (folder / name).exists():
                shutil.rmtree(folder / new, ignore_errors=True)
                (folder / name).rename(folder / new)
        self.facts[new] = self.facts.pop(name)
        self.snapshot = Snapshot(self.work, self.snapshot)
        self.train(new, self.facts[new], "--resume", "latest", "--max_steps", self.last_step(new) + 1, codes={0}, kind="rename")

    def resume_older(self):
        """What was written before runs had folders; the run saves into a folder of its own, and those stay."""
        step = max([self.last_step("older")] if self.steps("older", "bf16") else [2])
        self.train("older", self.facts["older"], "--resume", self.chance.choice(["latest", "older"]), "--max_steps", step + 1,
                   codes={0}, kind="resume older")

    def sweep(self):
        for old in self.work.glob("sweep.db*"):
            old.unlink()
        self.run("sweep", ["sweep", "run", "sweep.yaml", "train.yaml"], NewRuns(self.work), {0})

    def compare(self):
        name = self.chance.choice(COMPARISONS)
        model = self.chance.choice(list(MODELS))
        codes = {USAGE} if self.has_history(name) else {0, NOT_ENOUGH, USAGE}
        self.run("compare", ["compare", "train.yaml", "--run_name", name, *MODELS[model]], [f"runs/{name}/*"], codes)

    def look(self):
        """What only reads."""
        name = self.chance.choice(self.existing() or [None])
        root = ROOTS[self.facts[name][2]] if name else "checkpoints"
        words = self.chance.choice([["checkpoints", "list"], ["checkpoints", "list", "--checkpoint_dir", root],
                                    ["checkpoints", "verify", root]])
        if name and self.chance.random() < 0.5:
            words = ["generate", "--checkpoint_dir", root, "--checkpoint", name, "--prompt", "To", "--max_new_tokens", "2"]
        self.run("look", words, [], {0})

    def sequence(self):
        self.sequences += 1
        acts = {self.start: 3, self.overwrite: 1, self.stop: 2, self.resume: 3, self.resume_wrongly: 2, self.resume_newest: 1,
                self.fork: 2, self.rename: 1, self.resume_older: 1, self.sweep: 0.4, self.compare: 0.6, self.look: 1}
        for act in self.chance.choices(list(acts), list(acts.values()), k=self.chance.randrange(2, 6)):
            act()


class NewRuns:
    """Patterns of whatever is new: runs without a given name, and those of a sweep, have names of their own."""

    def __init__(self, work):
        self.work, self.before = work, {p.name for p in (work / "runs").iterdir()}

    def __iter__(self):
        new = {p.name for p in (self.work / "runs").iterdir()} - self.before
        return iter([pattern for name in new for pattern in World.own(name)])


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--short", action="store_true")
    parser.add_argument("--sequences", type=int, default=0)
    parser.add_argument("--seed", type=int, default=18)
    options = parser.parse_args()
    count = options.sequences or (SHORT_SEQUENCES if options.short else SEQUENCES)
    require_files()
    begin = time.monotonic()
    with tempfile.TemporaryDirectory() as temporary:
        world = World(pathlib.Path(temporary), random.Random(options.seed))
        for number in range(count):
            world.sequence()
            if (number + 1) % 10 == 0:
                seconds = time.monotonic() - begin
                print(f"{number + 1} of {count} sequences, {world.commands} commands, {len(world.problems)} problems, "
                      f"{seconds:.0f} s, about {seconds / (number + 1) * (count - number - 1):.0f} s left", flush=True)
    for problem in world.problems[:10]:
        print(problem)
    print(", ".join(f"{kind}: {times}" for kind, times in sorted(world.kinds.items())))
    changed = sum(word in p.split("\n")[0] for p in world.problems for word in (" changed", " removed", " added"))
    print(f"sequences={world.sequences} commands={world.commands} changed={changed} refusals={world.refusals} "
          f"without_remedy={world.without_remedy} wrong={len(world.problems)} seconds={time.monotonic() - begin:.0f}")
    sys.exit(1 if world.problems or world.refusals == 0 else 0)


if __name__ == "__main__":
    main()
