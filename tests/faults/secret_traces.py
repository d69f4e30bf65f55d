#!/usr/bin/env -S sh -c 'exec "$(dirname "$0")/../../.deps/venv/bin/python" "$0" "$@"'
# test: label=faults timeout=600 gate="--short"
"""Canary secrets in every way that one can be given to octavo, and no trace of them in what it writes; the last line has
the results.

environment  HF_TOKEN, WANDB_API_KEY, AWS_*, the rendezvous secret, proxies with a password, and others
files        the hub's token, the rendezvous secret, our configurations and others', a launch script
addresses    user:password@ and ?token= in data, models, endpoints
commands     train, launch, data prepare, downloads, W&B, sweep, compare, config, verify, … and their failures, with servers
             that refuse and say the secret again; crashes with core files allowed
looked at    output, logs, metrics, checkpoints, receipts, TensorBoard and W&B files, pages, databases, caches, temporary
             files, command lines of children, /metrics and /healthz, core files, and what servers heard; plain, in hex,
             base64, percent and JSON escapes, wide and reversed

usage: secret_traces.py [--short] [--keep FOLDER]    --short: fewer commands, for CI
"""
import argparse
import pathlib
import re
import resource
import signal
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request

TESTS = pathlib.Path(__file__).resolve().parents[1]
sys.path[1:1] = [str(TESTS / "integration"), str(TESTS / "conformance")]
import common  # noqa: E402
import secret_commands  # noqa: E402
from canaries import Canaries, Search, can_find  # noqa: E402
from hub_server import Hub, Repo  # noqa: E402
from rank_runs import is_below  # noqa: E402

# Who may hear what: a secret goes to its own server.
MAY_HEAR = {"refuses": ("HF_TOKEN", "HF_TOKEN_PATH"), "forbids": ("HF_TOKEN",), "breaks": ("HF_TOKEN",),
            "sends_on": ("HF_TOKEN",), "proxy": ("http_proxy of a server",), "elsewhere": (),
            "wandb_refuses": ("WANDB_API_KEY",), "bucket": ("AWS_ACCESS_KEY_ID", "AWS_SESSION_TOKEN", "AWS_ENDPOINT_URL")}
PATIENCE, PAGE_PATIENCE = 400, 30  # seconds for a command, for a page


def base_environment(canaries, work):
    """Nothing of this machine's own, and a canary in every secret."""
    folders = {"HOME": "home", "TMPDIR": "tmp", "XDG_CACHE_HOME": "home/cache"} | \
              {f"WANDB_{name}_DIR": f"home/wandb-{name}" for name in ("CACHE", "CONFIG", "DATA")}
    for folder in folders.values():
        (work / folder).mkdir(parents=True, exist_ok=True)
    made = {name: str(work / folder) for name, folder in folders.items()}
    made |= {"PATH": "/usr/bin:/bin", "OMP_WAIT_POLICY": "passive", "OMP_NUM_THREADS": "1", "NO_PROXY": "127.0.0.1,localhost",
             "AWS_EC2_METADATA_DISABLED": "true", "WANDB_ERROR_REPORTING": "false"}
    made |= {name: canaries.new(name, form, letters) for name, form, letters in (
        ("HF_TOKEN", "hf_{}", 32), ("HUGGING_FACE_HUB_TOKEN", "hf_{}", 32), ("WANDB_API_KEY", "{}", 40),
        ("AWS_ACCESS_KEY_ID", "AKIA{}", 16), ("AWS_SECRET_ACCESS_KEY", "{}", 40), ("AWS_SESSION_TOKEN", "{}", 60),
        ("OCTAVO_RENDEZVOUS_SECRET", "{}", 64), ("GITHUB_TOKEN", "ghp_{}", 36), ("DATABASE_PASSWORD", "p+/{}=%", 24))}
    for name in ("http_proxy", "https_proxy", "ALL_PROXY"):
        made[name] = f"http://me:{canaries.new(name)}@127.0.0.1:1"
    return made


def children_lines(process, seen):
    """Command lines of what a process started, while it runs."""
    while process.poll() is None:
        for entry in pathlib.Path("/proc").glob("[0-9]*"):
            try:
                if int(entry.name) != process.pid and is_below(int(entry.name), process.pid):
                    seen.add((entry / "cmdline").read_bytes())
            except (OSError, ValueError):
                continue  # it ended meanwhile
        time.sleep(0.05)


class Runs:
    """Commands in one folder, with everything they say kept in files."""

    def __init__(self, work, environment, total):
        self.work, self.environment, self.total = work, environment, total
        self.count, self.wrong, self.begin = 0, [], time.monotonic()
        (work / "said").mkdir()

    def environment_for(self, changes):
        made = self.environment | changes
        if live := made.pop("LIVE", ""):
            made = {name: value for name, value in made.items() if live == "proxy" or "proxy" not in name.lower()}
            made["PATH"] = f"{pathlib.Path(sys.executable).parent}:{made['PATH']}"
        return made

    def start(self, name, words, changes, **more):
        self.count += 1
        stem = self.work / "said" / f"{self.count:03d}-{re.sub('[^a-z0-9]+', '-', name.lower())[:40]}"
        with open(f"{stem}.out", "wb") as out, open(f"{stem}.err", "wb") as err:
            return stem, subprocess.Popen([str(common.OCTAVO), *words], cwd=self.work, env=self.environment_for(changes),
                                          stdin=subprocess.DEVNULL, stdout=out, stderr=err, **more)

    def run(self, name, words, changes, codes):
        stem, process = self.start(name, words, changes)
        seen = set()
        watcher = threading.Thread(target=children_lines, args=(process, seen))
        watcher.start()
        try:
            code = process.wait(PATIENCE)
        except subprocess.TimeoutExpired:
            process.kill()
            code = process.wait()
        watcher.join()
        pathlib.Path(f"{stem}.children").write_bytes(b"\n".join(sorted(seen)))
        good = code in codes
        left = (time.monotonic() - self.begin) / self.count * (self.total - self.count)
        print(f"{'ran' if good else 'WRONG'}: {name} (exit code {code}), about {left:.0f} s left", flush=True)
        if not good:
            self.wrong.append(name)
            print(f"wanted one of {codes}:\n{pathlib.Path(f'{stem}.err').read_text(errors='replace')[-800:]}", flush=True)


def allow_cores():
    resource.setrlimit(resource.RLIMIT_CORE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))


def crash(runs, number, changes=None, limit_later=False):
    """A training that is ended by the signal where core files are allowed; those that there are then."""
    name = f"crash-{runs.count}"
    stem, process = runs.start(name, secret_commands.train(name, "--max_steps", "100000", "--metrics_address", "127.0.0.1:0"),
                               changes or {}, preexec_fn=allow_cores)
    deadline, said = time.monotonic() + 60, ""
    while "step " not in said and time.monotonic() < deadline and process.poll() is None:
        time.sleep(0.05)
        said = pathlib.Path(f"{stem}.out").read_text() + pathlib.Path(f"{stem}.err").read_text()
    address = re.search(r"http://127\.0\.0\.1:\d+", said)
    direct = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    for page in ("metrics", "healthz") if address else ():
        with direct.open(f"{address.group()}/{page}", timeout=PAGE_PATIENCE) as answer:
            pathlib.Path(f"{stem}.{page}").write_bytes(answer.read())
    if limit_later:  # as if somebody had turned them on again, or a program took them from the kernel
        resource.prlimit(process.pid, resource.RLIMIT_CORE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    process.send_signal(number)
    code = process.wait(60)
    cores = [path for path in runs.work.glob("core*") if path.is_file()]
    print(f"crash by {signal.Signals(number).name}: exit code {code}, pages at {address and address.group()}, "
          f"core files {[path.stat().st_size for path in cores]}", flush=True)
    if code != -number or not address:
        runs.wrong.append(f"{name}: exit code {code}, {address}\n{said[-800:]}")
    return cores


def crashes(runs, search, short):
    """Core files: none by default; without memory when they are taken all the same; with it when asked for (so the search
    can find them)."""
    pattern = pathlib.Path("/proc/sys/kernel/core_pattern").read_text().strip()
    here = not pattern.startswith("|") and "/" not in pattern
    for number in (signal.SIGSEGV,) if short else (signal.SIGSEGV, signal.SIGABRT):
        if crash(runs, number):
            runs.wrong.append(f"a core file after {number}")
    if short or not here:
        print("core files that are taken all the same: not tried", "" if here else f"(core_pattern {pattern})")
        return 0
    taken = crash(runs, signal.SIGSEGV, limit_later=True)
    found = [search.in_file(core) for core in taken]
    if len(taken) != 1 or any(found):
        runs.wrong.append(f"core files that are taken all the same: {found}")
    for core in taken:
        core.unlink()
    asked_for = crash(runs, signal.SIGSEGV, {"OCTAVO_CORE_DUMPS": "1"})
    plain = runs.environment["HF_TOKEN"].encode()  # all forms of all would take minutes in so large a file
    if not any(plain in core.read_bytes() for core in asked_for):
        runs.wrong.append("with OCTAVO_CORE_DUMPS=1 a core file with secrets was expected: the search may be blind")
    for core in asked_for:
        core.unlink()
    return len(taken) + len(asked_for)


def heard_too_much(canaries, servers, hub, short):
    """What servers heard beside their own secrets."""
    wrong = []
    for name, ear in servers.ears.items():
        found = Search(canaries.but(*MAY_HEAR[name])).in_bytes(b"\n".join(ear.heard))
        wrong += [f"{name} heard {what}" for what in found]
    for place, own in (("hub", ("HF_TOKEN", "HF_TOKEN_PATH")), ("cdn", ())):
        heard = repr([request for request in hub.requests if request[0] == place]).encode()
        wrong += [f"{place} heard {what}" for what in Search(canaries.but(*own)).in_bytes(heard)]
    own = {"refuses": "HF_TOKEN", "bucket": "AWS_ACCESS_KEY_ID", "proxy": "http_proxy of a server"}
    for name, canary in own.items():
        if not Search(canaries.of(canary)).in_bytes(b"\n".join(servers.ears[name].heard)):
            wrong.append(f"{name} was not told {canary}: the test tests nothing")
    if not short and not servers.wandb.keys:
        wrong.append("nothing was uploaded to W&B: the test tests nothing")
    if not servers.ears["elsewhere"].heard or not any(request[0] == "cdn" for request in hub.requests):
        wrong.append("nobody was sent on to another host: the test tests nothing")
    return wrong


def prepare(work, canaries):
    (work / "train.yaml").write_text(secret_commands.TRAIN)
    (work / "sweep.yaml").write_text(secret_commands.SWEEP)
    (work / "text.txt").write_text(common.TEXT.read_text()[:200_000])
    return secret_commands.given_files(work / "given", canaries)


def all_commands(canaries, servers, hub, files, given, short):
    made = [*secret_commands.data_commands(canaries, servers), *secret_commands.config_commands(canaries, given),
            *secret_commands.hub_commands(canaries, servers, hub, files[0]),
            *secret_commands.run_commands(canaries, servers, files[1], not short)]
    if not short:
        return made
    kept = ("data prepare", "s3 forbids", "address https://me:…", "config import run.sh", "config broken.yaml", "train key.yaml",
            "train list.yaml", "hub refuses", "hub sends on", "hub over a proxy", "hub download", "train", "launch with a file")
    return [command for command in made if command[0] in kept]


def run_all(work, short):
    canaries, servers, hub = Canaries(), secret_commands.Servers(), Hub()
    model = {"config.json": b'{"model_type": "llama"}', "tokenizer.json": b"{}", "model.safetensors": b"none"}
    hub.repos[f"models/{secret_commands.TINY}"] = Repo(model, lfs=["model.safetensors"])
    files = prepare(work, canaries)
    commands = all_commands(canaries, servers, hub, files, work / "given", short)
    runs = Runs(work, base_environment(canaries, work), len(commands))
    for command in commands:
        runs.run(*command)
    found, planted = can_find(Search(canaries.values), canaries.values, work / "tmp")
    search = Search(canaries.values)
    cores = crashes(runs, search, short)
    (work / "given").rename(work.parent / f"{work.name}-given")
    traces, searched, size = search.in_folder(work)
    wrong = runs.wrong + heard_too_much(canaries, servers, hub, short)
    servers.close()
    hub.close()
    for path, what in traces.items():
        print(f"TRACE: {path.relative_to(work)}: {sorted(what)}")
    for line in wrong:
        print(f"WRONG: {line}")
    if found != planted:
        wrong.append(f"the search found {found} of {planted} that were planted")
    lost = len(traces) + len(wrong)
    # One trial for each command and crash, each server's ear, and the search itself.
    tried = max(runs.count + len(servers.ears) + 2 + 1, lost)
    print(f"canaries={len(canaries.values)} places={runs.count} files={searched} bytes={size} planted={planted} found={found} "
          f"cores={cores} traces={len(traces)} tried={tried} survived={tried - lost} lost={lost}")
    return lost


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--short", action="store_true")
    parser.add_argument("--keep", type=pathlib.Path, metavar="FOLDER")
    options = parser.parse_args()
    common.require_files()
    with tempfile.TemporaryDirectory() as temporary:
        work = (options.keep or pathlib.Path(temporary)) / "work"
        work.mkdir(parents=True)
        sys.exit(1 if run_all(work, options.short) else 0)


if __name__ == "__main__":
    main()
