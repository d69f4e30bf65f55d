#!/usr/bin/env -S sh -c 'exec "$(dirname "$0")/../.deps/venv/bin/python" "$0" "$@"'
"""Runs the libFuzzer targets of this folder, with AddressSanitizer and UBSan, and keeps what they find.

An input may take one second of processor time and 256 MB. Findings are kept in fuzz/findings/TARGET and replayed with
--replay and --ci ever after. Executions add up in fuzz/results.txt (not those of --ci). Leaks are looked for when a run
ends, over everything that it did, and then input by input.
"""
import argparse
import concurrent.futures
import pathlib
import re
import subprocess
import sys
import threading
import time

import coverage
import ledger
from targets import BUILD, COVERAGE, FINDINGS, ROOT, TARGETS, cpu_seconds, input_folders, limits, run_target

KINDS = ("crash", "timeout", "oom", "leak")
MOST_FALSE_ALARMS = 20  # in one run of a target: the machine is too busy to say anything


class Result:
    def __init__(self):
        self.executions, self.cpu_seconds, self.edges, self.false_alarms = 0, 0.0, 0, 0
        self.findings = []  # (kind, path or name, report)

    def count(self, kind):
        return sum(found[0] == kind for found in self.findings)


def run_or_exit(command):
    done = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    if done.returncode != 0:
        sys.exit(f"{' '.join(map(str, command))} failed:\n{done.stdout[-4000:]}")


def build(targets, for_coverage):
    """For coverage: a second build, without sanitizers, that counts lines."""
    names = [f"fuzz_{target}" for target in targets]
    if not for_coverage:
        run_or_exit(["cmake", "--preset", "fuzz"])
        run_or_exit(["cmake", "--build", "--preset", "fuzz", "--target", *names])
        return
    flags = "-fprofile-instr-generate -fcoverage-mapping"
    run_or_exit(["cmake", "--preset", "fuzz", "-B", COVERAGE, "-DOCTAVO_SANITIZE=fuzzer-no-link",
                 f"-DCMAKE_CXX_FLAGS={flags}"])
    run_or_exit(["cmake", "--build", COVERAGE, "--target", *names])


def kind_of(log):
    if "finding: timeout" in log or "libFuzzer: timeout" in log:
        return "timeout"
    return "oom" if "out-of-memory" in log or "malloc_limit" in log else "leak" if "LeakSanitizer" in log else "crash"


def is_false_alarm(target, kind, log, path):
    """libFuzzer's limit of time is of the wall's clock; that of memory counts what other inputs left behind."""
    if "libFuzzer: timeout" in log:
        return cpu_seconds(target, path) < 1
    return kind == "oom" and run_target(target, [*limits(target), path])[0] == 0


def keep(target, log, result):
    """Sorts in the input that ended a run."""
    artifact = re.findall(r"Test unit written to (\S+)", log)
    if not artifact:
        sys.exit(f"fuzz_{target} ended without an input to blame:\n{log[-3000:]}")
    path, kind = pathlib.Path(artifact[-1]), kind_of(log)
    if is_false_alarm(target, kind, log, path):
        path.unlink()
        result.false_alarms += 1
        return
    named = path.with_name(f"{kind}-{path.name.split('-')[-1]}")
    path.rename(named)
    result.findings.append((kind, named, run_target(target, [*limits(target), named], thorough=True)[1]))


def take_counts(log, result):
    count = re.findall(r"stat::number_of_executed_units:\s*(\d+)", log)
    result.executions += int(count[-1]) if count else 0
    result.edges = max([result.edges, *map(int, re.findall(r"cov: (\d+)", log)[-1:])])


def find_leak(target, result):
    """A run's last check says that memory leaked: which input of the corpus does it?"""
    code, log, _ = run_target(target, ["-runs=0", "-detect_leaks=1", f"-artifact_prefix={FINDINGS / target}/",
                                       *limits(target), *input_folders(target)], thorough=True)
    if code != 0 and "Test unit written to" in log:
        keep(target, log, result)
    else:
        result.findings.append(("leak", f"{target}: by no input of the corpus alone", log))


def fuzz(target, options, seconds, executions):
    """For so many seconds or so many executions, or to the first finding."""
    longest, dictionary, _ = TARGETS[target]
    corpus, kept = BUILD / "corpus" / target, FINDINGS / target
    for folder in (corpus, kept):
        folder.mkdir(parents=True, exist_ok=True)
    # The entropic schedule finds more in a minute, and takes a third of the time of a long run.
    command = [*input_folders(target), *limits(target), f"-max_len={longest}", "-print_final_stats=1",
               "-detect_leaks=0", "-report_slow_units=1000", f"-artifact_prefix={kept}/",
               f"-entropic={int(not options.total)}"]
    if dictionary:
        command.append(f"-dict={ROOT / 'fuzz' / (dictionary + '.dict')}")
    result, begin = Result(), time.monotonic()
    while not result.findings and result.false_alarms <= MOST_FALSE_ALARMS:
        left = seconds - (time.monotonic() - begin)
        if left <= 0 or (executions and result.executions >= executions):
            break
        runs = executions - result.executions if executions else -1
        budget = [f"-max_total_time={max(1, round(left))}", f"-runs={runs}"]
        code, log, cpu = run_target(target, [*command, *budget])
        take_counts(log, result)
        result.cpu_seconds += cpu
        if code != 0 and "LeakSanitizer: detected" in log and "Test unit written to" not in log:
            find_leak(target, result)
        elif code != 0:
            keep(target, log, result)
    if not options.ci:
        ledger.add(target, result.executions, result.cpu_seconds)
    return result


def replay(target):
    """Every seed and every finding once. What comes behind one that fails is replayed too."""
    folders = (BUILD / "seeds" / target, FINDINGS / target)
    inputs = [path for folder in folders if folder.exists() for path in sorted(folder.iterdir())]
    result, bounds = Result(), limits(target)
    while inputs:
        code, log, cpu = run_target(target, [*bounds, *inputs], thorough=True)
        result.cpu_seconds += cpu
        if code == 0:
            result.executions += len(inputs)
            break
        running = [pathlib.Path(p) for p in re.findall(r"Running: (\S+)", log)]
        if not running:
            sys.exit(f"fuzz_{target} ended with {code} before its first input:\n{log[-3000:]}")
        done, kind = inputs.index(running[-1]) + 1, kind_of(log)
        if is_false_alarm(target, kind, log, running[-1]):
            result.false_alarms += 1
        else:
            result.findings.append((kind, running[-1], log))
        result.executions += done
        inputs = inputs[done:]
    return result


def describe(target, result):
    core = result.executions / result.cpu_seconds if result.cpu_seconds else 0
    counts = " ".join(f"{kind}={result.count(kind)}" for kind in KINDS)
    print(f"{time.strftime('%H:%M:%S')} {target:15} executions={result.executions} "
          f"cpu_seconds={result.cpu_seconds:.0f} per_cpu_second={core:.0f} edges={result.edges} {counts} "
          f"false_alarms={result.false_alarms}", flush=True)
    for kind, path, log in result.findings:
        reason = re.findall(r"^.*(?:finding:|ERROR:|runtime error:).*$", log, re.MULTILINE)[:2]
        frames = re.findall(r"^\s+#\d+ \S+ in (.*octavo.*)$", log, re.MULTILINE)[:4]
        print(f"  {kind} {path}\n    " + "\n    ".join([*reason, *frames]), flush=True)


def for_each(targets, jobs, work):
    """Results by target; says what each found as it ends."""
    results = {}
    with concurrent.futures.ThreadPoolExecutor(jobs) as pool:
        waiting = {pool.submit(work, target): target for target in targets}
        for done in concurrent.futures.as_completed(waiting):
            results[waiting[done]] = done.result()
            describe(waiting[done], done.result())
    return results


def nearest_to(total, targets):
    """Of those short of it, the target that needs the least time by its rate so far; None when there is none."""
    so_far = ledger.read()
    left = {t: total - so_far[t]["executions"] for t in targets if so_far[t]["executions"] < total}
    return min(left, key=lambda t: left[t] * (so_far[t]["cpu_seconds"] + 1) / (so_far[t]["executions"] + 1), default=None)


def fuzz_to_total(targets, options):
    """In turns of --seconds, until every target has --total in the ledger, or had a finding."""
    results, waiting, lock, failed = [], set(targets), threading.Lock(), threading.Event()

    def take_turns():
        while not failed.is_set():
            with lock:
                target = nearest_to(options.total, waiting)
                waiting.discard(target)
            if target is None:
                return
            left = options.total - ledger.read()[target]["executions"]
            result = fuzz(target, options, options.seconds, left)
            describe(target, result)
            results.append(result)
            if not result.findings:
                waiting.add(target)

    with concurrent.futures.ThreadPoolExecutor(options.jobs) as pool:
        try:
            for turns in concurrent.futures.as_completed([pool.submit(take_turns) for _ in range(options.jobs)]):
                turns.result()
        except BaseException:
            failed.set()  # the others end with their turn, not in hours
            raise
    return results


def close(targets, results, options):
    """The last line, and the exit code."""
    counts = {kind: sum(r.count(kind) for r in results) for kind in KINDS}
    lost, ran = sum(counts.values()), sum(r.executions for r in results)
    so_far = [entry["executions"] for target, entry in ledger.read().items() if target in targets]
    print(f"targets={len(targets)} executions={ran} recorded={sum(so_far)} least={min(so_far)} "
          f"crashes={counts['crash']} timeouts={counts['timeout']} ooms={counts['oom']} leaks={counts['leak']} "
          f"tried={ran} survived={ran - lost} lost={lost}")
    short = bool(options.total) and min(so_far) < options.total
    sys.exit(1 if lost or short else 0)


def parsed_options():
    parser = argparse.ArgumentParser(prog="fuzz/run.py", description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("targets", nargs="*", metavar="TARGET", help=f"of {', '.join(TARGETS)}; all when none is given")
    parser.add_argument("--seconds", type=int, default=60, help="for each target (60)")
    parser.add_argument("--total", type=int, default=0,
                        help="executions in fuzz/results.txt to reach, in turns of --seconds")
    parser.add_argument("--jobs", type=int, default=2, help="targets at a time (2)")
    parser.add_argument("--no_build", action="store_true", help="run what is built, though the sources may be newer")
    parser.add_argument("--replay", action="store_true", help="only every seed and every earlier finding once")
    parser.add_argument("--ci", action="store_true", help="--replay, then --seconds of each")
    parser.add_argument("--coverage", action="store_true", help="which lines of the parsers the corpus reaches")
    options = parser.parse_args()
    unknown = set(options.targets) - set(TARGETS)
    if unknown:
        parser.error(f"wanted targets of {', '.join(TARGETS)}, found {', '.join(sorted(unknown))}")
    options.targets = options.targets or list(TARGETS)
    return options


def main():
    options = parsed_options()
    targets = options.targets
    if not options.no_build:
        build(targets, options.coverage)
    subprocess.run([sys.executable, ROOT / "fuzz" / "make_seeds.py", BUILD / "seeds"], check=True)
    if options.coverage:
        percents = [coverage.measure(target) for target in targets]
        print(f"targets={len(targets)} least_percent={min(percents):.1f}")
        sys.exit(1 if min(percents) < coverage.WANTED_PERCENT else 0)
    results = list(for_each(targets, options.jobs, replay).values()) if options.replay or options.ci else []
    if options.total:
        results += fuzz_to_total(targets, options)
    elif not options.replay:
        results += for_each(targets, options.jobs, lambda target: fuzz(target, options, options.seconds, 0)).values()
    close(targets, results, options)


if __name__ == "__main__":
    main()
