#!/usr/bin/env -S sh -c 'exec "$(dirname "$0")/../../.deps/venv/bin/python" "$0" "$@"'
# test: label=conformance timeout=600 night=""
"""wandb's own tools read every value of a 3,000-step run that was killed and resumed, bit for bit: its reader of offline
files, and its uploader (`wandb sync`) into our own server on loopback. Short runs with
a key in the environment, and with one in the netrc file of `wandb login`, are uploaded as they grow, and the key is in none of their files."""
import json
import os
import pathlib
import subprocess
import sys
import tempfile

from wandb.proto import wandb_internal_pb2
from wandb.sdk.internal.datastore import DataStore

import sinks_run
from wandb_server import Server

KEY = "0123456789abcdef" * 2 + "01234567"  # forty characters, as real ones
LIVE_STEPS = 400
OWN = ("_timestamp", "_runtime", "_step")  # that wandb adds


def records_of(file):
    store = DataStore()
    store.open_for_scan(str(file))
    records = []
    while (data := store.scan_data()) is not None:
        record = wandb_internal_pb2.Record()
        record.ParseFromString(data)
        records.append(record)
    return records


def read_file(file):
    """(run, {(step, name): value}, exit record or None) of an offline file."""
    found, run, end = {}, None, None
    for record in records_of(file):
        kind = record.WhichOneof("record_type")
        if kind == "run":
            run = record.run
        elif kind == "exit":
            end = record.exit
        elif kind == "history":
            for item in record.history.item:
                found[record.history.step.num, item.nested_key[0]] = json.loads(item.value_json)
    return run, found, end


def split(values):
    """Numbers; histograms; samples."""
    values = {key: value for key, value in values.items() if key[1] not in OWN}
    numbers = {k: float(v) for k, v in values.items() if isinstance(v, (int, float))}
    return (numbers, {k: v for k, v in values.items() if isinstance(v, dict)},
            {k[0]: v for k, v in values.items() if k[1] == "samples"})


def wrong_with(values, run, label):
    numbers, histograms, samples = split(values)
    wrong = sinks_run.differences(numbers, sinks_run.values(run))
    for step, rows in sinks_run.tensors(run).items():
        for name, group in sinks_run.groups(rows).items():
            h = histograms.get((step, name))
            if h is None or h["_type"] != "histogram" or h["values"] != sinks_run.octave_counts(group, h["bins"]):
                wrong.append(f"{name} at step {step}: {h}")
    if samples != sinks_run.samples(run) or not samples:
        wrong.append(f"samples {samples}, wanted {sinks_run.samples(run)}")
    return [f"{label}: {line}" for line in wrong]


def environment(server, home):
    paths = {f"WANDB_{name}_DIR": str(home / name.lower()) for name in ("CACHE", "CONFIG", "DATA")}
    return os.environ | paths | {"WANDB_API_KEY": KEY, "WANDB_BASE_URL": server.address, "WANDB_ERROR_REPORTING": "false",
                                 "PATH": f"{pathlib.Path(sys.executable).parent}:{os.environ['PATH']}",
                                 "OMP_WAIT_POLICY": "passive"}


def rows_at(server, run_id):
    return {(row["_step"], name): value for row in server.rows.get(run_id, {}).values() for name, value in row.items()}


def upload(server, folder, home):
    """What arrives at the server of one offline run."""
    done = subprocess.run(["wandb", "sync", str(folder)], env=environment(server, home), cwd=home,
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=120)
    if done.returncode != 0:
        print(done.stdout[-2000:])
    return done.returncode


def check_files(run):
    """(complaints, the values of both parts of the run, folders of the parts)"""
    parts = sorted((run / "wandb").glob("offline-run-*"))
    if len(parts) != 2:
        return [f"{len(parts)} offline runs, wanted 2"], {}, parts
    read = [read_file(next(part.glob("run-*.wandb"))) for part in parts]
    (first, before, no_end), (second, after, end) = read
    wrong = []
    if first.run_id != second.run_id or second.starting_step != sinks_run.RESUMED_FROM + 1 or not second.resumed:
        wrong.append(f"the resumed part is not of the same run:\n{first}\n{second}")
    if (first.project, first.display_name) != ("tests", "three thousand"):
        wrong.append(f"project and name are {first.project}, {first.display_name}")
    if no_end is not None or end is None or end.exit_code != 0:
        wrong.append(f"ends: {no_end}, {end}")
    config = {item.key: json.loads(item.value_json) for item in first.config.update}
    if (config["n_embd"], config["fp8_execution"], config["use_wandb"]) != (32, "rehearse", True):
        wrong.append(f"config: {config}")
    values = {k: v for k, v in before.items() if k[0] <= sinks_run.RESUMED_FROM} | after
    return wrong + wrong_with(values, run, "offline file"), values, parts


def check_upload(parts, values, home):
    """The second part, whose end is there; the first is what a killed run leaves."""
    server = Server()
    code = upload(server, parts[1], home)
    run_id = parts[1].name.split("-")[-1]
    arrived, wanted = rows_at(server, run_id), {k: v for k, v in values.items() if k[0] > sinks_run.RESUMED_FROM}
    server.close()
    wrong = [] if code == 0 else [f"wandb sync ended with {code}"]
    same = [key for key in wanted if key in arrived and (arrived[key] == wanted[key] or key[1] in OWN)]
    if len(same) != len(wanted):
        missing = [key for key in wanted if key not in same][:5]
        wrong.append(f"upload: {len(same)} values of {len(wanted)} arrived; not {missing}")
    return wrong, len(same)


def logged_in(variables, server, work):
    """The environment after `wandb login`: the key is in a netrc file alone."""
    file = work / "netrc"
    file.write_text(f"machine {server.address.split('://')[1]}\n  login user\n  password {KEY}\n")
    file.chmod(0o600)
    return {key: value for key, value in variables.items() if key != "WANDB_API_KEY"} | {"NETRC": str(file)}


def check_live(work, in_netrc):
    server = Server()
    folder = sinks_run.common.Folder(work / ("login" if in_netrc else "live"), sinks_run.CONFIG)
    variables = environment(server, work)
    if in_netrc:
        variables = logged_in(variables, server, work)
    done = subprocess.run(
        [sinks_run.common.OCTAVO, "train", "train.yaml", "--dataset", work / "data", "--max_steps", str(LIVE_STEPS)],
        cwd=folder.path, env=variables, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    run = folder.path / "runs" / "run"
    part = next((run / "wandb").glob("offline-run-*"))
    _, values, _ = read_file(next(part.glob("run-*.wandb")))
    arrived = rows_at(server, part.name.split("-")[-1])
    server.close()
    wrong = [] if done.returncode == 0 else [f"the live run ended with {done.returncode}:\n{done.stdout[-2000:]}"]
    late = [key for key in values if key not in arrived]
    if late:
        wrong.append(f"live: {len(late)} of {len(values)} values did not arrive, {late[:3]}:\n{done.stdout[-1500:]}\n"
                     + (run / "wandb" / "upload.log").read_text()[-1500:])
    if not any(KEY[:8] in key or key.startswith("Basic ") for key in server.keys):
        wrong.append("live: the uploader did not say who it is")
    leaks = [str(path) for path in folder.path.rglob("*") if path.is_file() and KEY.encode() in path.read_bytes()]
    if leaks or KEY in done.stdout:
        wrong.append(f"the key is in {leaks or 'the output'}")
    return wrong, len(values) - len(late)


def main():
    with tempfile.TemporaryDirectory() as name:
        work = pathlib.Path(name)
        run = sinks_run.make(work)
        wrong, values, parts = check_files(run)
        uploaded = live = 0
        if not wrong:
            more, uploaded = check_upload(parts, values, work)
            wrong += more
            for in_netrc in (False, True):
                more, arrived = check_live(work, in_netrc)
                wrong, live = wrong + more, live + arrived
    for line in wrong[:20]:
        print(line[:3000])
    print(f"steps={sinks_run.STEPS} values={len(values)} uploaded={uploaded} live={live} wrong={len(wrong)} "
          f"{'FAILED' if wrong else 'ok'}")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
