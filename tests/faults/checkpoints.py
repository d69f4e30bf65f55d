#!/usr/bin/env -S sh -c 'exec "$(dirname "$0")/../../.deps/venv/bin/python" "$0" "$@"'
# test: label=faults timeout=600 gate="--short"
"""Faults of checkpoints, one part after the other; the last line has the results.

crashes      the file operations of saves are recorded; every prefix of them, with what was not synced kept, lost or kept
             in part, is a folder that must still have every checkpoint that was reported as saved, bit for bit
disk_full    the disk gets full at 50 places of a save, and under real trainings
flips, cuts  1,000 flipped bits and 200 cut files: each found, with file and tensor named
fallbacks    real runs with the newest two of three checkpoints damaged, and with all of them
retention    damaged ones among those that are kept

usage: checkpoints.py [--short] [PART…]    --short: fewer of each, for CI
"""
import argparse
import json
import os
import pathlib
import random
import shutil
import subprocess
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "integration"))
import checkpoint_runs  # noqa: E402
import common  # noqa: E402
import replay  # noqa: E402
from small_disk import own_mounts, small_disk  # noqa: E402

TOOL = common.BUILD / "bin" / "checkpoint_faults_tool"
RECORDER = common.BUILD / "lib" / "libwrite_recorder.so"
# Where syncs cost nothing: thousands of folders are made and thrown away.
MEMORY = pathlib.Path("/dev/shm")
SCENARIOS = {"alone": {}, "background": {}, "alone no_exchange": {"OCTAVO_RECORD_NO_EXCHANGE": "1"}, "ranks2": {},
             "ranks3": {}, "large": {}, "ranks2 no_exchange": {"OCTAVO_RECORD_NO_EXCHANGE": "1"}}
SHORT_SCENARIOS = ("alone", "alone no_exchange", "ranks2")


class Count:
    """Of one part: how many were tried and how many did not hold."""

    def __init__(self, tried=0, lost=0):
        self.tried, self.lost = tried, lost

    def add(self, problem):
        self.tried += 1
        if problem:
            self.lost += 1
            print(problem, flush=True)


def run_tool(*words):
    """The JSON of the tool's last line; what it says of failures is shown."""
    done = subprocess.run([TOOL, *map(str, words)], stdout=subprocess.PIPE, text=True)
    lines = done.stdout.splitlines()
    if not lines:
        sys.exit(f"checkpoint_faults_tool {words[0]} ended with exit code {done.returncode}")
    result = json.loads(lines[-1])
    result["failed"] = done.returncode != 0
    return result


def record(work, scenario):
    folder, log = work / "recorded", work / "recorded.log"
    folder.mkdir()
    environment = os.environ | SCENARIOS[scenario] | {
        "LD_PRELOAD": str(RECORDER), "OCTAVO_RECORD_ROOT": str(folder), "OCTAVO_RECORD_LOG": str(log)}
    # Two folders that are not there yet: their names must be safe too.
    subprocess.run([TOOL, "record", folder / "deep" / "checkpoints", scenario.split()[0]], env=environment, check=True)
    records = replay.read_log(log)
    shutil.rmtree(folder)
    log.unlink()
    return records


def check_crashes(work, short):
    """(prefixes, states, how many of the states lost something)"""
    prefixes, count, chance = 0, Count(), random.Random(10)
    for scenario in SHORT_SCENARIOS if short else SCENARIOS:
        records = record(work, scenario)
        assert sum(kind == replay.SYNC for kind, *_ in records) > 10, "the recorder saw too little"
        before = count.tried, count.lost
        for problem in crash_problems(work, records, "no_exchange" not in scenario, chance, 1 if short else 12):
            count.add(problem and f"{scenario}: {problem}")
        if scenario == "alone":
            check_that_crashes_can_be_lost(work, records)
        prefixes += len(records)
        print(f"crashes, {scenario}: {len(records)} prefixes, {count.tried - before[0]} states, "
              f"{count.lost - before[1]} lost", flush=True)
    return prefixes, count


def crash_problems(work, records, exchanges, chance, samples):
    """Of each state: what was lost, or ""."""
    checker = subprocess.Popen([TOOL, "check"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    for number, marks, found in replay.crashes(records, chance, samples):
        for how, state in found:
            problem = check_state(checker, work / "state", marks, state, exchanges)
            yield problem and f"after {number} operations, last {records[number - 1][:3]}, {how}: {problem}"
    checker.stdin.close()
    checker.wait()


def check_that_crashes_can_be_lost(work, records):
    """The same saves without what makes them safe: files that are not synced, and then folders that are not."""
    for name, without in (("files", lambda place: place.endswith((".safetensors", ".json"))),
                          ("folders", lambda place: place.endswith("checkpoints"))):
        unsafe = [record for record in records if record[0] != replay.SYNC or not without(record[1])]
        if not any(crash_problems(work, unsafe, True, random.Random(1), 0)):
            sys.exit(f"saves that sync no {name} passed: the test is blind")


def check_state(checker, folder, marks, state, exchanges):
    saves = [mark["save"] for mark in marks if mark["event"] == "begin"]
    done = sum(mark["event"] == "saved" for mark in marks)
    replay.put(state, folder)
    question = {"folder": str(folder / "deep" / "checkpoints"), "done": saves[:done],
                "running": saves[done] if done < len(saves) else None, "exchanges": exchanges}
    checker.stdin.write(json.dumps(question) + "\n")
    checker.stdin.flush()
    answer = checker.stdout.readline().strip()
    shutil.rmtree(folder)
    return "" if answer == "ok" else answer or "the checker died"


def check_full_disk(work, short):
    with small_disk(work / "disk", 8) as disk:
        found = run_tool("full", disk, 10 if short else 50)
    count = Count(found["tried"], found["tried"] - found["intact"])
    count.lost += found["failed"] and not count.lost
    return count


def check_damage(work, short):
    flips, cuts = (200, 40) if short else (1000, 200)
    found = run_tool("damage", work / "damage", flips, cuts)
    print(f"damage: {found}")
    return flips, cuts, Count(flips + cuts, max(flips + cuts - found["detected"], int(found["failed"])))


def check_retention(work):
    found = run_tool("retention", work / "retention")
    return Count(found["tried"], max(found["lost"], int(found["failed"])))


def run_parts(parts, work, short):
    """({name: result} for the last line, [Count])"""
    results, counts = {}, []
    if "crashes" in parts:
        results["prefixes"], count = check_crashes(work, short)
        results["states"] = count.tried
        counts.append(count)
    if "damage" in parts:
        results["flips"], results["truncations"], count = check_damage(work, short)
        counts.append(count)
    if "retention" in parts:
        counts.append(check_retention(work))
        results["retention"] = counts[-1].tried
    if "disk_full" in parts:
        counts.append(check_full_disk(work, short))
        results["disk_full"] = counts[-1].tried
        count = Count()
        for problem in checkpoint_runs.full_disks(work, short):
            count.add(problem)
        results["trainings_on_a_full_disk"] = count.tried
        counts.append(count)
    if "fallbacks" in parts:
        count = Count()
        for problem in checkpoint_runs.fallbacks(work, short):
            count.add(problem)
        results["fallbacks"] = count.tried
        counts.append(count)
    return results, counts


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    names = ("crashes", "damage", "retention", "disk_full", "fallbacks")
    parser.add_argument("--short", action="store_true")
    parser.add_argument("parts", nargs="*", metavar="PART", help=", ".join(names))
    arguments = parser.parse_args()
    parts = arguments.parts or names
    if unknown := set(parts) - set(names):
        parser.error(f"wanted some of {', '.join(names)}, found {', '.join(unknown)}")
    common.require_files()
    if "disk_full" in parts:
        own_mounts()
    with tempfile.TemporaryDirectory(dir=MEMORY if MEMORY.is_dir() else None) as temporary:
        results, counts = run_parts(parts, pathlib.Path(temporary), arguments.short)
    tried, lost = sum(count.tried for count in counts), sum(count.lost for count in counts)
    print(f"tried={tried} survived={tried - lost} lost={lost} " + " ".join(f"{k}={v}" for k, v in results.items()))
    sys.exit(1 if lost else 0)


if __name__ == "__main__":
    main()
