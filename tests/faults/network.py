#!/usr/bin/env -S sh -c 'exec "$(dirname "$0")/../../.deps/venv/bin/python" "$0" "$@"'
# test: label=faults timeout=600 night="--short" alone
"""What listens and where, and what bad connections do to a running training; the last line has the results.

ports        a training on two ranks listens at loopback by default, without the metrics endpoint; at a stated address
             and nowhere else; every interface, a missing secret and a busy port are refused by name
flood        10,000 bad connections to the rendezvous, /metrics, /healthz and Gloo's ports of a running training: it ends
             with the same losses and weights as an undisturbed one; nobody is authenticated; memory and open files come back;
             who has the secret is served meanwhile
late         a second node joins while bad connections come

usage: network.py [--short]    --short: 1,200 connections, for CI
"""
import argparse
import ipaddress
import os
import pathlib
import socket
import struct
import sys
import tempfile
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "integration"))
import common  # noqa: E402
import rank_runs  # noqa: E402
from bad_connections import Flood, Gloo, Rendezvous, Web, connect, page, real_client  # noqa: E402
from ranks import free_port  # noqa: E402

USAGE, ENVIRONMENT = 2, 3
SECRET = "a secret of this test, of many letters"
MEETING, METRICS = "127.0.0.2", "127.0.0.3"  # loopback, and not the default
MOST_GROWTH = 0.05
HANDSHAKE = 5  # seconds that an unauthenticated client has
TIMES_SLOWER = 5  # that the median step may become: the attack runs on the same cores


def address_of(text):
    """("127.0.0.1", 80) of /proc/net/tcp: words in this machine's order."""
    digits, port = text.split(":")
    raw = b"".join(struct.pack("=I", int(digits[i:i + 8], 16)) for i in range(0, len(digits), 8))
    return str(ipaddress.ip_address(raw)), int(port, 16)


def listeners(pid):
    """What this process listens at."""
    inodes = set()
    for entry in pathlib.Path(f"/proc/{pid}/fd").iterdir():
        try:
            inodes.add(os.readlink(entry))
        except OSError:
            continue  # closed meanwhile
    found = set()
    for table in ("tcp", "tcp6"):
        for line in pathlib.Path(f"/proc/{pid}/net/{table}").read_text().splitlines()[1:]:
            words = line.split()
            if words[3] == "0A" and f"socket:[{words[9]}]" in inodes:
                found.add(address_of(words[1]))
    return found


def open_files(pid):
    return len(os.listdir(f"/proc/{pid}/fd"))


def has_ipv6_loopback():
    """Not only the kernel's word: a container may have IPv6 and no address of it."""
    try:
        with socket.socket(socket.AF_INET6) as probe:
            probe.bind(("::1", 0))
            return True
    except OSError:
        return False


class Checks:
    def __init__(self):
        self.tried = self.lost = 0

    def want(self, what, holds, found=""):
        self.tried += 1
        self.lost += not holds
        print(f"{'as wanted' if holds else 'LOST'}: {what}{f' ({found})' if found != '' else ''}", flush=True)


def launched(work, name, steps, launch_flags=(), train_flags=(), secret=SECRET, ranks=2):
    folder = rank_runs.make_folder(work / name, steps, 0)
    # Without HOME, where one would be made.
    environment = {"OCTAVO_RENDEZVOUS_SECRET": secret} if secret else {"HOME": ""}
    return rank_runs.Launched(folder, ["--nproc", str(ranks), *launch_flags], train_flags, environment=environment)


def seen_step(run):
    path = run.folder.path / "runs" / "run" / "metrics.jsonl"
    return path.read_bytes().count(b'"train/loss"') if path.exists() else 0


def wait_for_step(run, step, patience=60):
    deadline = time.monotonic() + patience
    while seen_step(run) < step and run.process.poll() is None and time.monotonic() < deadline:
        time.sleep(0.05)
    if seen_step(run) < step:
        sys.exit(f"{run.folder.path.name}: no step {step}\n{run.said()[-3000:]}")


def default_ports(checks, work):
    run = launched(work, "default", 400, secret="")
    wait_for_step(run, 3)
    own, ranks = listeners(run.process.pid), {rank: listeners(pid) for rank, pid in run.ranks().items()}
    everywhere = own.union(*ranks.values())
    unauthenticated = [real_client(address, secret) for address in own for secret in (b"", b"guessed by somebody")]
    run.end()
    checks.want("by default all that listens is loopback", {a for a, _ in everywhere} == {"127.0.0.1"}, everywhere)
    checks.want("the launcher listens once, for the rendezvous", len(own) == 1, own)
    # Gloo has a port for each of three groups; an endpoint for metrics would be a fourth.
    checks.want("without metrics_address no endpoint", [len(p) for p in ranks.values()] == [3, 3], ranks)
    checks.want("a run of one node has a secret even when none was given", unauthenticated == [None, None], unauthenticated)
    alone = common.Folder(work / "alone", rank_runs.CONFIG.format(steps=400, checkpoint_freq=0))
    process = alone.start()
    common.wait_for_step(process, 3)
    found = listeners(process.pid)
    process.kill()
    process.communicate()
    checks.want("a run of one process listens nowhere", not found, found)


def stated_ports(checks, work):
    meeting, metrics = (MEETING, free_port()), ("::1" if has_ipv6_loopback() else METRICS, free_port())
    written = f"[{metrics[0]}]:{metrics[1]}" if ":" in metrics[0] else f"{metrics[0]}:{metrics[1]}"
    run = launched(work, "stated", 400, ["--master_address", meeting[0], "--master_port", str(meeting[1])],
                   ["--metrics_address", written])
    wait_for_step(run, 3)
    own, ranks = listeners(run.process.pid), {rank: listeners(pid) for rank, pid in run.ranks().items()}
    run.end()
    checks.want("the rendezvous is at the stated address and port", own == {meeting}, own)
    checks.want("the metrics are at the stated address and port, on rank 0",
                metrics in ranks[0] and len(ranks[0]) == len(ranks[1]) + 1, ranks)
    checks.want("no listener at all addresses", not {a for p in [own, *ranks.values()] for a, _ in p} & {"0.0.0.0", "::"})


def refusals(checks, work):
    with socket.socket() as busy:
        busy.bind(("127.0.0.1", 0))
        busy.listen()
        port = str(busy.getsockname()[1])
        cases = {
            "busy-meeting": (["--master_port", port], [], ENVIRONMENT, ["in use", port]),
            # Nobody stops a training because nobody can watch it: a warning, and on.
            "busy-metrics": ([], ["--metrics_address", f"127.0.0.1:{port}"], 0, ["no metrics endpoint", "in use", port]),
            "every-interface": (["--master_address", "0.0.0.0"], [], USAGE, ["every interface"]),
            "no-secret": (["--master_address", "192.0.2.1", "--nnodes", "2", "--node_rank", "0"], [], USAGE,
                          ["OCTAVO_RENDEZVOUS_SECRET"]),
            "short-secret": (["--master_address", "127.0.0.1"], [], USAGE, ["16 or more"])}
        for name, (launch_flags, train_flags, code, words) in cases.items():
            secret = {"no-secret": "", "short-secret": "short"}.get(name, SECRET)
            run = launched(work, name, 5, launch_flags, train_flags, secret)
            found = run.wait(60)
            run.end()
            said = run.said() + run.log(0)
            checks.want(f"{name}: exit code {code} and the words {words}",
                        found == code and all(word in said for word in words), f"exit code {found}")
            if found != code:
                print(said[-1500:])


def step_times(run):
    """Milliseconds, as the metrics have them."""
    path = run.folder.path / "runs" / "run" / "metrics.jsonl"
    records = [common.json.loads(line) for line in path.read_text().splitlines()]
    return [1000 * r["perf/step_seconds"] for r in records if "perf/step_seconds" in r]


def median(values):
    return sorted(values)[len(values) // 2]


class Attack:
    """Everything that is bad, at one running training, and somebody good in between."""

    def __init__(self, run, counts):
        ranks = run.ranks()
        self.pids = [run.process.pid, *ranks.values()]
        meeting, = listeners(run.process.pid)
        web, = [address for address in listeners(ranks[0]) if address[0] == METRICS]
        gloo = [address for pid in ranks.values() for address in sorted(listeners(pid)) if address != web]
        self.before = self.sizes()
        self.good, self.waits, self.run, self.first_step = 0, [], run, seen_step(run)
        self.floods = {"rendezvous": [Flood(Rendezvous(meeting, SECRET.encode()), counts[0], 6)],
                       "web": [Flood(Web(web), counts[1], 3)],
                       "gloo": [Flood(Gloo(address), counts[2] // len(gloo), 8, 0.05) for address in gloo]}
        self._be_good(meeting, web)
        for flood in self.all():
            flood.finish()
        self.last_step, self.still_runs = seen_step(run), run.process.poll() is None
        self.after = self._settled()

    def sizes(self):
        """Open files and resident bytes of launcher and ranks."""
        return [(open_files(pid), rank_runs.status_bytes(pid, "VmRSS")) for pid in self.pids]

    def all(self):
        return [flood for floods in self.floods.values() for flood in floods]

    def _be_good(self, meeting, web):
        while not all(flood.done() for flood in self.all()):
            self.waits.append(real_client(meeting, SECRET.encode()))
            statuses = [page(web, path) for path in (b"/metrics", b"/healthz")]
            self.good += self.waits[-1] is not None and statuses == [200, 200]
            done, total = sum(f.made for f in self.all()), sum(f.made + max(f.left, 0) for f in self.all())
            print(f"connections {done} of {total}, step {seen_step(self.run)}", file=sys.stderr, flush=True)
            time.sleep(0.2)

    def _settled(self):
        """Open files and memory, once the bad connections had their time."""
        deadline = time.monotonic() + HANDSHAKE + 3
        while True:
            now = self.sizes()
            if all(n[0] <= b[0] for n, b in zip(now, self.before)) or time.monotonic() > deadline:
                return now
            time.sleep(0.2)


def flood(checks, work, steps, counts):
    def flags():
        return ["--master_address", MEETING, "--master_port", str(free_port())], ["--metrics_address", f"{METRICS}:0"]

    undisturbed = launched(work, "undisturbed", steps, *flags())
    if undisturbed.wait(600) != 0:
        sys.exit(f"the undisturbed run failed:\n{undisturbed.said()[-3000:]}")
    run = launched(work, "attacked", steps, *flags())
    wait_for_step(run, 10)
    time.sleep(1)  # its memory is taken by now
    attack = Attack(run, counts)
    code = run.wait(600)
    run.end()
    checks.want("the training outlives the attack", attack.still_runs, f"step {attack.last_step} of {steps}")
    checks.want("it ends with exit code 0", code == 0, code)
    difference = common.record_difference(run.folder.records(), undisturbed.folder.records())
    checks.want("its losses are those of the undisturbed run, bit for bit", not difference, difference)
    weights = run.folder.tensors(steps)
    checks.want("so are its weights", weights and weights == undisturbed.folder.tensors(steps), f"{len(weights)} files")
    for name, floods in attack.floods.items():
        mistakes, wrong = sum(f.mistakes for f in floods), [f.wrong for f in floods if f.wrong]
        checks.want(f"{name}: nobody is authenticated, of {sum(f.made for f in floods)}", mistakes == 0, wrong or 0)
    checks.want("who has the secret and who reads pages is served meanwhile",
                attack.good == len(attack.waits) > 0, f"{attack.good} of {len(attack.waits)}")
    files = [(b[0], a[0]) for b, a in zip(attack.before, attack.after)]
    checks.want("open files of launcher and ranks come back", all(a <= b for b, a in files), files)
    growth = [a[1] / b[1] - 1 for b, a in zip(attack.before, attack.after)]
    checks.want("memory does not grow by more than 5%", max(growth) <= MOST_GROWTH,
                " ".join(f"{share:+.1%}" for share in growth))
    times = step_times(run)  # of one run: other work on the machine changes them more between two
    calm, attacked = median(times[attack.last_step:] or [0]), median(times[attack.first_step:attack.last_step] or [0])
    checks.want(f"the median step is not {TIMES_SLOWER} times slower", 0 < attacked < TIMES_SLOWER * calm,
                f"{calm:.1f} ms, {attacked:.1f} ms under attack")
    waits = [wait for wait in attack.waits if wait is not None]
    return {"connections": sum(f.made for f in attack.all()), "let_in": sum(f.mistakes for f in attack.all()),
            "turned_away": sum(f.turned_away for f in attack.all()), "real_clients": len(waits),
            "slowest_real_client_ms": round(1000 * max(waits, default=0)),
            "memory_growth": f"{max(growth):.4f}", "step_ms": f"{calm:.1f}", "step_ms_attacked": f"{attacked:.1f}"}


def late(checks, work):
    """Node 1 comes while the rendezvous of node 0 is attacked."""
    meet = ["--nnodes", "2", "--master_address", MEETING, "--master_port", str(free_port())]
    first = launched(work, "late", 100, [*meet, "--node_rank", "0"], ranks=1)
    address, deadline = (MEETING, int(meet[-1])), time.monotonic() + 20
    while time.monotonic() < deadline:
        try:
            connect(address, 1).close()
            break
        except OSError:
            time.sleep(0.05)
    attack = Flood(Rendezvous(address, SECRET.encode()), 1_000_000, 6)
    time.sleep(0.5)
    second = rank_runs.Launched(first.folder, ["--nproc", "1", *meet, "--node_rank", "1"],
                                environment={"OCTAVO_RENDEZVOUS_SECRET": SECRET})
    wait_for_step(first, 1)
    made, attack.left = attack.made, 0  # it continued until the two had met
    attack.finish()
    codes = [first.wait(120), second.wait(120)]
    for run in (first, second):
        run.end()
    checks.want("a node that joins during the attack trains with the other to the end", codes == [0, 0], codes)
    if codes != [0, 0]:
        print(first.said()[-1500:], second.said()[-1500:])
    return {"late_connections": made}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--short", action="store_true")
    short = parser.parse_args().short
    common.require_files()
    checks = Checks()
    with tempfile.TemporaryDirectory() as temporary:
        work = pathlib.Path(temporary)
        common.prepare_data(work)
        default_ports(checks, work)
        stated_ports(checks, work)
        refusals(checks, work)
        results = flood(checks, work, 300 if short else 1500, (800, 160, 240) if short else (8000, 1400, 720))
        if not short:
            results |= late(checks, work)
    print(" ".join(f"{key}={value}" for key, value in results.items()), f"effects={checks.lost}",
          f"tried={checks.tried} survived={checks.tried - checks.lost} lost={checks.lost}")
    sys.exit(1 if checks.lost else 0)


if __name__ == "__main__":
    main()
