#!/usr/bin/env -S sh -c 'exec "$(dirname "$0")/../../.deps/venv/bin/python" "$0" "$@"'
# test: label=conformance timeout=900 gate="--short bitwise parts clear shown_secrets" night="" measures="src/checkpoint src/object_store src/train/state"
"""Checkpoints to and from S3, over TLS with a test CA. The server (s3_server.py) is moto's behind a check of every signature
and checksum. The last line has the results.

bitwise      a run uploads and is killed (kill -9) again and again in the middle of an upload; each time its folders are deleted and it
             resumes from s3://: the weights at the end are those of the undisturbed run. What has a manifest is whole at every kill
ranks        the same with two ranks, once
page         the commands of docs/how-to/object-stores.md
parts        files of several parts; a checkpoint by its address; one that is damaged, and one without a manifest
credentials  each link of the chain that can be had on one machine
failing      the server answers 500, 403 or nothing: training goes on, it is reported, and no checkpoint on the disk is lost
clear        nothing is sent to a server without TLS that is not on loopback, nor to one whose certificate is not known

usage: s3_checkpoints.py [--short] [PART…]    --short: fewer kills, links and faults; no ranks and no page. PART: these parts only
"""
import hashlib
import http.server
import json
import os
import pathlib
import random
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time

import boto3

import s3_server

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "integration"))
import common  # noqa: E402
import rank_runs  # noqa: E402

KEY, SECRET = "AKIAOCTAVOENV", "octavo-secret-of-the-environment-never-shown"
BUCKET = "octavo-checkpoints"
USAGE, ENVIRONMENT = 2, 3
PATIENCE = 60
CONFIG = """
model_name: custom
n_layer: 2
n_head: 2
n_embd: {width}
max_seq_length: 32
batch_size: 2
max_steps: {steps}
learning_rate: 1e-3
eval_freq: 0
checkpoint_freq: {freq}
checkpoint_minutes: 0
keep_checkpoints: 3
num_threads: 1
mixed_precision: fp32
run_name: run
"""


class Bench:
    """The server, a client of it, and folders for runs."""

    def __init__(self, work):
        self.work, self.secrets = work, {KEY: (SECRET, "")}
        (work / "home").mkdir()
        self.certificates = s3_server.make_certificates(work)
        self.server = s3_server.Server(self.secrets, self.certificates)
        self.client = boto3.client("s3", endpoint_url=self.server.url, aws_access_key_id=KEY, aws_secret_access_key=SECRET,
                                   region_name="us-east-1", verify=str(self.certificates[0]))
        self.client.create_bucket(Bucket=BUCKET)
        self.logs = []

    def use(self, **variables):
        """The environment of the runs from now on: nothing of this machine's AWS, and the variables."""
        for name in [n for n in os.environ if n.startswith("AWS_")]:
            del os.environ[name]
        os.environ |= {"HOME": str(self.work / "home"), "AWS_ENDPOINT_URL": self.server.url,
                       "AWS_CA_BUNDLE": str(self.certificates[0]), "AWS_EC2_METADATA_DISABLED": "true"} | variables

    def use_keys(self, **variables):
        self.use(AWS_ACCESS_KEY_ID=KEY, AWS_SECRET_ACCESS_KEY=SECRET, **variables)

    def folder(self, name, steps=600, freq=20, width=32):
        folder = common.Folder(self.work / name, CONFIG.format(steps=steps, freq=freq, width=width))
        self.logs.append(folder)
        return folder

    def objects(self, prefix):
        pages = self.client.get_paginator("list_objects_v2").paginate(Bucket=BUCKET, Prefix=prefix + "/")
        return {item["Key"][len(prefix) + 1:]: item["Size"] for page in pages for item in page.get("Contents", [])
                if not item["Key"].endswith("/")}  # Arrow leaves empty objects for folders

    def body(self, key):
        return self.client.get_object(Bucket=BUCKET, Key=key)["Body"].read()

    def whole(self, prefix):
        """The steps there that have a manifest; ends the script when one of them is not what its manifest says."""
        objects, steps = self.objects(prefix), []
        for name in objects:
            if not name.endswith("/manifest.json"):
                continue
            step = name.split("/")[0]
            manifest = json.loads(self.body(f"{prefix}/{name}"))
            for file in manifest["files"] + manifest.get("parts", []):
                if objects.get(f"{step}/{file['name']}") != file["size"]:
                    sys.exit(f"{prefix}/{step} has a manifest, but not {file['name']} as it says: {objects}")
            steps.append(int(step.split("-")[1]))
        return sorted(steps)


def address(prefix):
    return f"s3://{BUCKET}/{prefix}"


def until(condition, what):
    end = time.time() + PATIENCE
    while not condition():
        if time.time() > end:
            sys.exit(f"waited {PATIENCE} s for {what}")
        time.sleep(0.01)


def tensors_hash(folder, step):
    return {name: hashlib.sha256(data).hexdigest() for name, data in folder.tensors(step).items()}


def expect(folder, code, *words, flags=()):
    found = folder.finish(*flags)
    log = folder.log()
    missing = [word for word in words if word not in log]
    if found != code or missing:
        sys.exit(f"{folder.path.name}: wanted exit code {code} and {words}, found {found}, without {missing}:\n{log[-3000:]}")
    return log


def bitwise(bench, kills):
    steps = 800 * (kills + 1)  # a fast machine makes 500 between two kills
    reference = bench.folder("reference", steps)
    reference.finish_or_exit()
    bench.use_keys()
    bench.server.faults.slow = 0.15  # each put, so that a kill finds one on its way
    folder = bench.folder("killed", steps)
    upload = ("--checkpoint_upload", address("some/prefix"))
    prefix, in_upload, resumed_from, dice = "some/prefix/run", 0, [], random.Random(7)
    for _ in range(kills):
        before = bench.whole(prefix)
        flags = ("--resume", address(prefix)) if before else ()
        process = folder.start(*upload, *flags)
        until(lambda: bench.whole(prefix) != before or process.poll() is not None, "a new checkpoint there")
        bench.server.putting.clear()
        until(lambda: bench.server.putting.is_set() or process.poll() is not None, "an upload")
        time.sleep(dice.random() * 0.3)
        if process.poll() is not None:
            sys.exit(f"the run ended before it was killed:\n{folder.log()[-2000:]}")
        process.send_signal(signal.SIGKILL)
        process.communicate()
        time.sleep(0.3)  # what the server still had to answer
        there = bench.whole(prefix)
        unfinished = {name.split("/")[0] for name in bench.objects(prefix)} - {f"step-{s:08d}" for s in there} - {"best_model"}
        in_upload += bool(unfinished)
        resumed_from.append(there[-1])
        shutil.rmtree(folder.path / "checkpoints")
        shutil.rmtree(folder.path / "runs")
    bench.server.faults.slow = 0
    expect(folder, 0, "every file as its manifest says", "uploaded ", flags=(*upload, "--resume", address(prefix)))
    if tensors_hash(folder, steps) != tensors_hash(reference, steps):
        sys.exit("the weights at the end are not those of the undisturbed run")
    there = bench.whole(prefix)
    if there[-1] != steps or len(there) > 3:
        sys.exit(f"wanted the last 3 checkpoints there (keep_checkpoints), found {there}")
    if {name for name in bench.objects(prefix) if int(name.split("/")[0].split("-")[1]) not in there}:
        sys.exit(f"uploads that were not finished are left: {sorted(bench.objects(prefix))}")
    for name, size in bench.objects(prefix).items():
        step, file = name.split("/")
        local = folder.checkpoints / step / file
        if local.exists() and local.read_bytes() != bench.body(f"{prefix}/{name}"):
            sys.exit(f"{name} there is not the file on the disk ({size} bytes)")
    uploads = folder.receipt()["uploads"]
    if uploads["uploads"] < 1 or SECRET in json.dumps(folder.receipt()):
        sys.exit(f"the receipt has {uploads}")
    return kills, in_upload


def ranks(bench):
    bench.use_keys()
    steps, flags, hashes = 1000, ("--nproc", "2", "--max_restarts", "0"), []
    for name, upload in (("ranks-reference", ()), ("ranks", ("--checkpoint_upload", address("ranks")))):
        folder = bench.folder(name, steps, 50)
        if upload:
            first = rank_runs.Launched(folder, flags, upload)
            until(lambda: bench.whole("ranks/run") or first.process.poll() is not None, "a checkpoint of two ranks there")
            first.end()
            time.sleep(0.3)
            if bench.whole("ranks/run")[-1] == steps:
                sys.exit("two ranks had ended before they were killed")
            shutil.rmtree(folder.path / "checkpoints")
            shutil.rmtree(folder.path / "runs")
            upload = (*upload, "--resume", address("ranks/run"))
        launched = rank_runs.Launched(folder, flags, upload)
        if launched.process.wait(PATIENCE) != 0:
            sys.exit(f"two ranks ended with {launched.process.returncode}:\n{launched.log_name.read_text()[-3000:]}")
        hashes.append(tensors_hash(folder, steps))
    if hashes[0] != hashes[1] or bench.whole("ranks/run")[-1] != steps:
        sys.exit("two ranks: the weights are not those of the undisturbed run, or not there")
    return len(hashes[0])


def parts(bench):
    bench.use_keys()
    before = bench.server.parts
    folder = bench.folder("parts", 4, 2, width=256)
    upload = ("--checkpoint_upload", address("parts"))
    expect(folder, 0, "uploaded 2 checkpoints", flags=upload)
    large = [name for name, size in bench.objects("parts/run").items() if size > 10 << 20]
    if bench.server.parts - before < 3 or not large:
        sys.exit(f"wanted files of several parts, found {bench.server.parts - before} parts of {bench.objects('parts/run')}")
    wanted = tensors_hash(folder, 2)
    # By its address; --max_steps: it is at its end and only downloaded.
    other = bench.folder("by-address", 4, 2, width=256)
    expect(other, 0, "is downloaded to", flags=("--resume", address("parts/run/step-00000002"), "--max_steps", "2"))
    if tensors_hash(other, 2) != wanted:
        sys.exit("a checkpoint by its address is another one")
    # Damaged there: the one before is taken; by its address it is refused.
    key = "parts/run/step-00000004/model.safetensors"
    body = bytearray(bench.body(key))
    body[len(body) // 2] ^= 1
    bench.client.put_object(Bucket=BUCKET, Key=key, Body=bytes(body))
    damaged = bench.folder("damaged", 4, 2, width=256)
    expect(damaged, 0, "CHECKPOINT NOT USABLE", "step-00000004/model.safetensors is damaged",
           flags=("--resume", address("parts/run"), "--max_steps", "2"))
    expect(damaged, common.DAMAGED, "is damaged", flags=("--resume", address("parts/run/step-00000004")))
    bench.client.delete_object(Bucket=BUCKET, Key="parts/run/step-00000004/manifest.json")
    expect(damaged, common.DAMAGED, "step-00000004, found no manifest.json",
           flags=("--resume", address("parts/run/step-00000004")))
    expect(damaged, USAGE, "wanted checkpoints at s3://octavo-checkpoints/nowhere", flags=("--resume", address("nowhere")))
    # Evaluation takes an address too.
    done = common.octavo(other.path, "eval", "--checkpoint", address("parts/run/step-00000002"), "--dataset",
                         bench.work / "data")
    if "loss" not in done.stdout + done.stderr:
        sys.exit(f"eval of an address: {done.stdout}")
    return bench.server.parts - before


def page(bench):
    """The commands of the page, as a reader would type them."""
    bench.use_keys()
    folder = bench.work / "page"
    for name in ("configs", "docs", "src"):
        shutil.copytree(common.ROOT / name, folder / name)
    commands = common.page_commands("how-to/object-stores.md", "s3_checkpoints")
    said = ""
    for command in commands:
        done = subprocess.run(command, shell=True, cwd=folder, env=common.page_environment(), text=True, stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, timeout=300)
        said += done.stdout
        if done.returncode != 0:
            sys.exit(f"docs/how-to/object-stores.md: {command} ended with {done.returncode}:\n{done.stdout[-3000:]}")
    if not re.search(r"resumed from \S*checkpoints/away/step-00000002 at step 2", said):
        sys.exit(f"docs/how-to/object-stores.md: the run did not resume:\n{said[-3000:]}")
    return len(commands)


class Metadata(http.server.BaseHTTPRequestHandler):
    """Where a cloud's machines and containers get their credentials."""
    answers, protocol_version = {}, "HTTP/1.1"

    def log_message(self, *_):
        pass

    def do_GET(self):
        self.answer(self.answers.get(self.path.rstrip("/")))

    def do_PUT(self):
        self.answer("a-session-of-imds" if self.path == "/latest/api/token" else None)

    def answer(self, text):
        body = (text or "").encode()
        self.send_response(200 if text else 404)
        self.send_header("Content-Length", str(len(body)))
        if text == "a-session-of-imds":
            self.send_header("X-aws-ec2-metadata-token-ttl-seconds", "21600")
        self.end_headers()
        self.wfile.write(body)


def credentials(bench, short):
    """How many links of the chain gave the key that signed the requests."""
    work = bench.work
    metadata = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Metadata)
    threading.Thread(target=metadata.serve_forever, daemon=True).start()
    url = f"http://127.0.0.1:{metadata.server_port}"

    def add(name, token=""):
        bench.secrets["AKIAOCTAVO" + name] = (f"octavo-secret-of-{name}-never-shown", token)
        return "AKIAOCTAVO" + name, *bench.secrets["AKIAOCTAVO" + name]

    def temporary(name):
        key, secret, token = add(name, f"octavo-token-of-{name}-never-shown")
        return json.dumps({"Code": "Success", "Type": "AWS-HMAC", "AccessKeyId": key, "SecretAccessKey": secret, "Token": token,
                           "LastUpdated": "2026-01-01T00:00:00Z", "Expiration": "2099-01-01T00:00:00Z"})

    links = {}
    key, secret, token = add("SESSION", "octavo-token-of-SESSION-never-shown")
    links["SESSION"] = {"AWS_ACCESS_KEY_ID": key, "AWS_SECRET_ACCESS_KEY": secret, "AWS_SESSION_TOKEN": token}
    key, secret, _ = add("PROFILE")
    (work / "credentials").write_text(f"[octavo]\naws_access_key_id = {key}\naws_secret_access_key = {secret}\n")
    links["PROFILE"] = {"AWS_SHARED_CREDENTIALS_FILE": str(work / "credentials"), "AWS_PROFILE": "octavo"}
    key, secret, _ = add("PROCESS")
    (work / "process.json").write_text(json.dumps({"Version": 1, "AccessKeyId": key, "SecretAccessKey": secret}))
    (work / "config").write_text(f"[default]\ncredential_process = cat {work / 'process.json'}\n")
    links["PROCESS"] = {"AWS_CONFIG_FILE": str(work / "config")}
    Metadata.answers["/container"] = temporary("CONTAINER")
    links["CONTAINER"] = {"AWS_CONTAINER_CREDENTIALS_FULL_URI": url + "/container"}
    roles = "/latest/meta-data/iam/security-credentials"
    Metadata.answers |= {roles: "octavo-role", roles + "/octavo-role": temporary("IMDS")}
    links["IMDS"] = {"AWS_EC2_METADATA_DISABLED": "false", "AWS_EC2_METADATA_SERVICE_ENDPOINT": url}
    for name in ("PROFILE", "IMDS") if short else links:
        variables = links[name]
        bench.use(**variables)
        bench.server.keys()
        folder = bench.folder("link-" + name, 2, 2)
        expect(folder, 0, "uploaded 1 checkpoints", flags=("--checkpoint_upload", address("links/" + name)))
        if bench.server.keys() != {"AKIAOCTAVO" + name} or bench.whole(f"links/{name}/run") != [2]:
            sys.exit(f"credentials of {name}: wanted its key alone, found another one:\n{folder.log()}")
    # A wrong secret is refused, and said.
    bench.use(AWS_ACCESS_KEY_ID=KEY, AWS_SECRET_ACCESS_KEY="wrong-secret-never-shown")
    bench.secrets["unused"] = ("wrong-secret-never-shown", "")
    expect(bench.folder("wrong", 2, 2), ENVIRONMENT, "CHECKPOINT NOT UPLOADED", "but not all that belong there in s3://",
           flags=("--checkpoint_upload", address("links/wrong")))
    metadata.shutdown()
    return (2 if short else len(links)) + 1  # the environment: everything else here


def failing(bench, short):
    """How many ways to fail were survived: for a while in three ways, and for good."""
    bench.use_keys()
    faults, kinds = bench.server.faults, {"500": {"status": 500}, "403": {"status": 403}, "hang": {"hang": True}}
    kinds = {"500": kinds["500"]} if short else kinds
    for name, keys in kinds.items():
        folder = bench.folder("failing-" + name, 6000, 500)
        vars(faults).update(keys)
        process = folder.start("--checkpoint_upload", address("failing-" + name))
        seen = common.wait_for_step(process, 3000)  # six are due by then, and none is there
        said = "CHECKPOINT NOT UPLOADED: step-00000500"
        deadline = time.monotonic() + PATIENCE
        while name != "hang" and said not in folder.log() and process.poll() is None and time.monotonic() < deadline:
            time.sleep(0.1)  # the SDK tries three times by itself, a few seconds apart
        there = bench.whole(f"failing-{name}/run")
        vars(faults).update(vars(s3_server.Faults()))
        bench.server.release()
        process.communicate()
        if not seen or process.returncode != 0 or there or bench.whole(f"failing-{name}/run")[-1] != 6000:
            sys.exit(f"{name}: wanted training to go on and the last one uploaded, found exit code {process.returncode}, "
                     f"{there} and {bench.whole(f'failing-{name}/run')}:\n{folder.log()[-3000:]}")
        if said not in folder.log() and name != "hang":
            sys.exit(f"{name}: the failed upload was not said:\n{folder.log()}")
        path = folder.path / "runs" / "run" / "metrics.jsonl"
        records = [json.loads(line) for line in path.read_text().splitlines()]
        counted = max(record.get("flags/failed_uploads", 0) for record in records)
        flagged = [flag for flag in common.read_flags(path) if flag["flag"] == "failed_upload"]
        if folder.unsound() or [int(n[5:]) for n in folder.named("step-")] != [5000, 5500, 6000]:
            sys.exit(f"{name}: checkpoints on the disk: {folder.named('step-')} {folder.unsound()}")
        if name != "hang" and (counted < 1 or not flagged or folder.receipt()["uploads"]["failed_attempts"] < 1):
            sys.exit(f"{name}: wanted failed uploads in metrics, flags and receipt, found {counted}, {flagged} and "
                     f"{folder.receipt()['uploads']}")
    # It never comes back: the run is done, its checkpoints are on the disk, and the exit code says what is missing.
    folder = bench.folder("gone", 40, 20)
    faults.status = 503
    expect(folder, ENVIRONMENT, "CHECKPOINT NOT UPLOADED", "--resume latest", flags=("--checkpoint_upload", address("gone")))
    faults.status = None
    if folder.unsound() or folder.newest() != 40 or bench.objects("gone/run"):
        sys.exit(f"gone: {folder.named('step-')} {bench.objects('gone/run')}")
    expect(folder, 0, "uploaded 1 checkpoints", flags=("--checkpoint_upload", address("gone"), "--resume", "latest"))
    if bench.whole("gone/run") != [40]:
        sys.exit("the resume did not upload what was missing")
    return len(kinds) + 1


def own_address():
    """An address of this machine that is not loopback; '' when it has none."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("192.0.2.1", 9))  # sends nothing
            return probe.getsockname()[0]
        except OSError:
            return ""


def clear(bench):
    """Bytes that a listener without TLS on another address than loopback has received; refusals."""
    heard, refused, listener = [], 0, socket.create_server((own_address() or "127.0.0.1", 0))

    def listen():
        while True:
            try:
                connection, _ = listener.accept()
            except OSError:
                return
            heard.append(connection.recv(1 << 16))
            connection.close()

    threading.Thread(target=listen, daemon=True).start()
    plain = f"http://{own_address() or 'octavo.invalid'}:{listener.getsockname()[1]}"
    flags = ("--checkpoint_upload", address("clear"))
    for variable in ("AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_S3"):
        bench.use_keys(**{variable: plain})
        expect(bench.folder("clear-" + variable, 2, 2), USAGE, "sent in clear", flags=flags)
        expect(bench.folder("clear-resume-" + variable, 2, 2), USAGE, "sent in clear", flags=("--resume", address("clear/run")))
        refused += 2
    # A profile may name a server too: it is not asked without TLS either.
    (bench.work / "plain-config").write_text(f"[default]\nregion = us-east-1\nendpoint_url = {plain}\n")
    bench.use_keys(AWS_CONFIG_FILE=str(bench.work / "plain-config"))
    expect(bench.folder("clear-profile", 2, 2), 0, "uploaded 1 checkpoints", flags=flags)
    if own_address() and heard:
        sys.exit(f"a server without TLS on {plain} was sent {heard[0][:200]}")
    # TLS with a certificate that nobody vouches for.
    bench.use_keys()
    del os.environ["AWS_CA_BUNDLE"]
    log = expect(bench.folder("unknown-ca", 2, 2), ENVIRONMENT, "CHECKPOINT NOT UPLOADED", flags=("--checkpoint_upload", address("ca")))
    if bench.objects("ca") or not re.search("certificate|SSL|TLS", log):
        sys.exit(f"a server with an unknown certificate was believed:\n{log}")
    refused += 1
    for bad in ("s3://user:hunter2@bucket/x", "s3:///x", "somewhere", "s3://b/../c"):
        log = expect(bench.folder("bad-" + hashlib.md5(bad.encode()).hexdigest()[:6], 2, 2), USAGE, "wanted no password" if "@" in bad else "wanted s3://",
                     flags=("--checkpoint_upload", bad))
        if "hunter2" in log:
            sys.exit("a password was shown")
        refused += 1
    # On loopback plain is allowed.
    server = s3_server.Server(bench.secrets)
    boto3.client("s3", endpoint_url=server.url, aws_access_key_id=KEY, aws_secret_access_key=SECRET,
                 region_name="us-east-1").head_bucket(Bucket=BUCKET)  # moto has one state
    bench.use_keys(AWS_ENDPOINT_URL=server.url)
    expect(bench.folder("loopback", 2, 2), 0, "uploaded 1 checkpoints", flags=("--checkpoint_upload", address("loopback")))
    server.stop()
    listener.close()
    return sum(map(len, heard)), refused


def shown_secrets(bench):
    """Secrets and session tokens in what runs said or wrote."""
    secrets = [text.encode() for pair in bench.secrets.values() for text in pair if text]
    shown = 0
    for folder in bench.logs:
        for path in folder.path.rglob("*"):
            if path.is_file() and path.suffix != ".safetensors":
                data = path.read_bytes()
                shown += sum(secret in data for secret in secrets)
    for prefix in ("some/prefix/run", "parts/run"):
        for name in bench.objects(prefix):
            if name.endswith(".json"):
                shown += sum(secret in bench.body(f"{prefix}/{name}") for secret in secrets)
    return shown


def main():
    common.require_files()
    wanted = [word for word in sys.argv[1:] if word != "--short"]
    short = "--short" in sys.argv[1:]
    with tempfile.TemporaryDirectory() as name:
        bench = Bench(pathlib.Path(name))
        common.prepare_data(bench.work)
        found = {"bitwise": (0, 0), "parts": 0, "credentials": 0, "failing": 0, "clear": (0, 0), "shown_secrets": 0}
        for part, arguments in ((bitwise, [2 if short else 12]), (parts, []), (credentials, [short]), (failing, [short]), (clear, []),
                                *(() if short else ((ranks, []), (page, []))), (shown_secrets, [])):
            if wanted and part.__name__ not in wanted:
                continue
            begin = time.time()
            found[part.__name__] = part(bench, *arguments)
            print(f"{part.__name__}: {found[part.__name__]} in {time.time() - begin:.1f} s", flush=True)
        wrong = [code for code in bench.server.refused if code in ("BadDigest", "MissingChecksum")]
        bench.server.stop()
        kills, in_upload = found["bitwise"]
        heard, refused = found["clear"]
        print(f"kills={kills} in_upload={in_upload} bitwise={int(kills > 0)} parts={found['parts']} checksums={bench.server.checksums} "
              f"bad_checksums={len(wrong)} links={found['credentials']} failing={found['failing']} lost=0 clear_bytes={heard} "
              f"refused={refused} credentials_shown={found['shown_secrets']}")
        missed = [part for part, seen in (("bitwise", in_upload > 0), ("parts", bench.server.checksums >= 20))
                  if not seen and (not wanted or part in wanted)]
        if wrong or heard or found["shown_secrets"] or missed:
            sys.exit("short of what is wanted")


if __name__ == "__main__":
    main()
