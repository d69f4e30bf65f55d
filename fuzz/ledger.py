"""fuzz/results.txt: what every target has been through so far, added up over all runs."""
import fcntl
import re

from targets import FINDINGS, ROOT, TARGETS

PATH = ROOT / "fuzz" / "results.txt"
HEAD = """# Written by fuzz/run.py: inputs that every target has been through under AddressSanitizer and UBSan, over all runs
# and versions of the code; lines of the parser's own files that the corpus reaches; inputs kept in fuzz/findings.
"""
FIELDS = {"executions": 0, "cpu_seconds": 0, "coverage": "-"}


def _read(text):
    entries = {target: dict(FIELDS) for target in TARGETS}
    for line in text.splitlines():
        words = line.split()
        if not line.startswith("#") and words and words[0] in entries:
            found = dict(re.findall(r"(\w+)=(\S+)", line))
            entries[words[0]] = {"executions": int(found["executions"]), "cpu_seconds": int(found["cpu_seconds"]),
                                 "coverage": found["coverage"]}
    return entries


def read():
    return _read(PATH.read_text() if PATH.exists() else "")


def kept(target):
    folder = FINDINGS / target
    return len(list(folder.iterdir())) if folder.exists() else 0


def add(target, executions=0, cpu_seconds=0.0, coverage=None):
    """Several runs may add at a time."""
    with open(PATH, "a+") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        file.seek(0)
        entries = _read(file.read())
        entry = entries[target]
        entry["executions"] += executions
        entry["cpu_seconds"] += round(cpu_seconds)
        entry["coverage"] = coverage or entry["coverage"]
        lines = [f"{name:15} executions={e['executions']} cpu_seconds={e['cpu_seconds']} "
                 f"per_cpu_second={round(e['executions'] / max(1, e['cpu_seconds']))} coverage={e['coverage']} "
                 f"findings={kept(name)}\n" for name, e in entries.items()]
        file.seek(0)
        file.truncate()
        file.write(HEAD + "".join(lines))
