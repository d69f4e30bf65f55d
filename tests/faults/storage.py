#!/usr/bin/env -S sh -c 'exec "$(dirname "$0")/../../.deps/venv/bin/python" "$0" "$@"'
# test: label=faults timeout=3600 gate="read_only unreadable stale" night="" alone=night measures="src/checkpoint src/train/state"
"""Where checkpoints lie fails under real trainings; the last line has the results. No checkpoint that was saved may be lost, weights
at the end must be those of the undisturbed run, and the log must say what happened.

read_only    the file system is mounted read-only for a while (a real remount)
unreadable   sectors of the newest checkpoint cannot be read (EIO): the one before it is taken
stale        a server is away (ESTALE): saves fail and later ones succeed; a resume ends, names it, and works once it is back
dead         a disk dies (ext4 on a loop device: writes fail, reads give zeros): training goes on, and a copy of the disk resumes
notice       SIGTERM at 20 random moments of a run of GPT-2 124M, each with 30 s: it must leave with 75, saved at its last step

EIO of sectors and ESTALE are made by a library between the program and the kernel (file_faults.cpp).

usage: storage.py [PART…]
"""
import contextlib
import json
import os
import pathlib
import random
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "integration"))
import common  # noqa: E402
from checkpoint_runs import ENVIRONMENT, STEPS, Checks, Folder, first  # noqa: E402
from small_disk import Ballast, own_mounts, small_disk  # noqa: E402

FAULTS = common.BUILD / "lib" / "libfile_faults.so"
EIO, ESTALE = 5, 116
NOTICES, NOTICE_SECONDS = 20, 30
LARGE = """
model_name: gpt2
tokenizer: bytes
max_seq_length: 64
batch_size: 1
max_steps: 100000
warmup_steps: 10
eval_freq: 7
eval_batches: 4
checkpoint_freq: 5
keep_checkpoints: 2
num_threads: 2
run_name: run
"""


@contextlib.contextmanager
def faulty(folder):
    """The program runs with the library; the function that is given makes a fault, or ends it without arguments."""
    control = folder.path / "fault"
    os.environ |= {"LD_PRELOAD": str(FAULTS), "OCTAVO_FILE_FAULT": str(control)}

    def fault(error=0, what="", part=""):
        if error:
            (folder.path / "fault.new").write_text(f"{error} {what} {part}\n")
            (folder.path / "fault.new").rename(control)
        else:
            control.unlink()

    try:
        yield fault
    finally:
        control.unlink(missing_ok=True)
        for name in ("LD_PRELOAD", "OCTAVO_FILE_FAULT"):
            del os.environ[name]


def train_through(folder, begin, end, checks):
    """A run for which the trouble begins after step 25 and ends after step 70."""
    process = folder.start()
    if common.wait_for_step(process, 25):
        process.send_signal(signal.SIGSTOP)
        begin()
        process.send_signal(signal.SIGCONT)
        common.wait_for_step(process, 70)
        process.send_signal(signal.SIGSTOP)
        end()
        process.send_signal(signal.SIGCONT)
    process.communicate()
    checks.want(process.returncode == 0, f"the training ended with exit code {process.returncode}")
    checks.want("CHECKPOINT NOT SAVED" in folder.log(), "the log does not say that a save failed")
    failed = folder.receipt()["checkpoints"]["failed"] if process.returncode == 0 else 0
    checks.want(failed >= 1, f"the receipt counts {failed} failed saves")
    checks.want_whole()


def read_only(work, reference):
    with small_disk(work / "disk", 64) as disk:
        folder = Folder(work / "read-only", f"checkpoint_dir: {disk}/checkpoints\n")
        folder.checkpoints = disk / "checkpoints" / "run"
        checks = Checks("a read-only file system for a while", folder)

        # A file that is being written keeps the file system from becoming read-only.
        def mount(how):
            for _ in range(200):
                if subprocess.run(["mount", "-o", f"remount,{how}", disk], stderr=subprocess.DEVNULL, check=False).returncode == 0:
                    return
                time.sleep(0.05)
                os.kill(process_of(folder), signal.SIGCONT)
            raise OSError(f"cannot remount {disk} {how}")

        train_through(folder, lambda: mount("ro"), lambda: mount("rw"), checks)
        checks.want("Read-only file system" in folder.log(), "the log does not name the trouble")
        checks.want(folder.tensors(STEPS) == reference, "the last weights are other ones")
        yield checks.problem()


def process_of(folder):
    """The training that runs in the folder."""
    for entry in pathlib.Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if (entry / "cwd").resolve() == folder.path and (entry / "exe").resolve() == common.OCTAVO.resolve():
                return int(entry.name)
    return 0


def unreadable(work, reference):
    for group in ("model", "optimizer"):
        folder = Folder(work / f"unreadable-{group}")
        checks = Checks(f"unreadable sectors of {group}", folder)
        code = folder.finish("--max_steps", "30")
        checks.want(code == 0, f"the first run ended with exit code {code}")
        with faulty(folder) as fault:
            fault(EIO, "read", f"step-00000030/{first(folder, 30, group).name}")
            code = folder.finish("--resume", "latest", "--max_steps", "30")
            checks.want(code == 0, f"the resume ended with exit code {code}")
        log = folder.log()
        checks.want("step-00000020 at step 20" in log, "it did not resume from step 20")
        checks.want(any("CHECKPOINT NOT USABLE" in line and "step-00000030" in line and group in line and os.strerror(EIO) in line
                        for line in log.splitlines()), "the log does not name the file and the error")
        checks.want_whole()
        yield checks.problem()


def stale(work, reference):
    folder = Folder(work / "stale")
    checks = Checks("a server that is away while it is saved", folder)
    with faulty(folder) as fault:
        train_through(folder, lambda: fault(ESTALE, "all", "/checkpoints/run/"), fault, checks)
    checks.want(os.strerror(ESTALE) in folder.log(), "the log does not name the trouble")
    checks.want(folder.tensors(STEPS) == reference, "the last weights are other ones")
    yield checks.problem()

    folder = Folder(work / "stale-resume")
    checks = Checks("a server that is away at the resume", folder)
    process = folder.start()
    common.wait_for_step(process, 45)
    process.kill()
    process.communicate()
    with faulty(folder) as fault:
        newest = folder.newest()
        fault(ESTALE, "read", "/checkpoints/run/")
        code = folder.finish("--resume", "latest")
        checks.want(code == ENVIRONMENT, f"the resume ended with exit code {code}, wanted {ENVIRONMENT}: a server returns")
        checks.want(os.strerror(ESTALE) in folder.log(), "the log does not name the trouble")
        fault()
        code = folder.finish("--resume", "latest")
    checks.want(code == 0, f"the resume with the server back ended with exit code {code}")
    checks.want(f"at step {newest}\n" in folder.log(), f"it did not resume from step {newest}")
    checks.want(folder.tensors(STEPS) == reference, "the last weights are other ones")
    yield checks.problem()


def dead(work, reference):
    """The file behind a loop device loses its content and has no room to be written again."""
    with small_disk(work / "behind", 160) as behind:
        yield from dead_disk(work, reference, behind)


def dead_disk(work, reference, behind):
    image, disk = behind / "image", work / "dead-disk"
    disk.mkdir()
    subprocess.run(["truncate", "-s", "128M", image], check=True)
    subprocess.run(["mkfs.ext4", "-q", "-F", image], check=True)
    subprocess.run(["mount", "-o", "loop", image, disk], check=True)
    folder = Folder(work / "dead", f"checkpoint_dir: {disk}/checkpoints\n")
    folder.checkpoints = disk / "checkpoints" / "run"
    checks = Checks("a disk that dies", folder)
    try:
        process = folder.start()
        common.wait_for_step(process, 45)
        process.send_signal(signal.SIGSTOP)
        subprocess.run(["sync", "-f", disk], check=True)
        newest = folder.newest()
        shutil.copyfile(image, work / "image.copy")
        subprocess.run(["fallocate", "--punch-hole", "--length", str(image.stat().st_size), image], check=True)
        Ballast(behind, 0)
        pathlib.Path("/proc/sys/vm/drop_caches").write_text("3")
        process.send_signal(signal.SIGCONT)
        process.communicate()
        checks.want(process.returncode == ENVIRONMENT, f"the training ended with exit code {process.returncode}, wanted {ENVIRONMENT}")
        last = max(map(int, re.findall(r'"step":(\d+)', (folder.path / "runs" / "run" / "metrics.jsonl").read_text())), default=0)
        checks.want(last == STEPS, f"it trained to step {last} only")
        checks.want("CHECKPOINT NOT SAVED" in folder.log(), "the log does not say that a save failed")
    finally:
        subprocess.run(["umount", "-l", disk], check=False)
    subprocess.run(["mount", "-o", "loop", work / "image.copy", disk], check=True)
    try:
        code = folder.finish("--resume", "latest")
        checks.want(code == 0, f"the resume from its copy ended with exit code {code}")
        checks.want(f"at step {newest}\n" in folder.log(), f"it did not resume from step {newest}")
        checks.want(folder.tensors(STEPS) == reference, "the last weights are other ones")
        checks.want_whole()
    finally:
        subprocess.run(["umount", "-l", disk], check=False)
    yield checks.problem()


def last_step(folder):
    lines = (folder.path / "runs" / "run" / "metrics.jsonl").read_text().splitlines()
    return max((record["step"] for record in map(json.loads, lines) if "train/loss" in record), default=0)


def notice(work, reference):
    """As a scheduler takes a machine away: SIGTERM, and SIGKILL after 30 s."""
    folder = common.Folder(work / "notice", LARGE)
    draw = random.Random(5)
    for number in range(NOTICES):
        checks = Checks(f"notice {number + 1}", folder)
        before = folder.newest()
        process = folder.start(*folder.again())
        common.wait_for_step(process, before + 1)
        time.sleep(draw.uniform(0, 8))
        process.send_signal(signal.SIGTERM)
        begin = time.monotonic()
        try:
            process.communicate(timeout=NOTICE_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.communicate()
        seconds = time.monotonic() - begin
        checks.want(process.returncode == common.STOPPED, f"exit code {process.returncode} after {seconds:.1f} s")
        step = last_step(folder)
        checks.want(folder.newest() == step > before, f"it had trained to step {step}, and {folder.newest()} is saved, {before} before")
        print(f"notice {number + 1}: step {step} saved in {seconds:.1f} s", flush=True)
        yield checks.problem()
    checks.want_whole()
    yield checks.problem()


PARTS = {part.__name__: part for part in (read_only, unreadable, stale, dead, notice)}


def main():
    common.require_files()
    own_mounts()
    names = sys.argv[1:] or list(PARTS)
    tried, problems, counts = 0, [], []
    with tempfile.TemporaryDirectory() as place:
        work = pathlib.Path(place)
        common.prepare_data(work)
        whole = Folder(work / "reference")
        whole.finish_or_exit()
        for name in names:
            begin = len(problems)
            count = 0
            for problem in PARTS[name](work, whole.tensors(STEPS)):
                tried, count = tried + 1, count + 1
                problems += [problem] if problem else []
            print(f"{name}: {count} tried, {len(problems) - begin} wrong", flush=True)
            counts.append(f"{name}={count}")
    for problem in problems:
        print(problem)
    print(f"tried={tried} survived={tried - len(problems)} lost={len(problems)} {' '.join(counts)}")
    sys.exit(1 if problems else 0)


if __name__ == "__main__":
    main()
