#!/usr/bin/env -S sh -c 'exec "$(dirname "$0")/../../.deps/venv/bin/python" "$0" "$@"'
# test: label=conformance timeout=600 gate="" measures="src/data src/object_store"
"""Training on prepared data that lies on S3 (a moto server on loopback): the losses of training and of evaluation are those of the
folder, bit for bit, with and without a local cache; a second run asks the server for no shard again. A damaged shard is exit code
5, a missing one 3, and neither message shows credentials.

Last line: runs=N different=0 refused=N requests_again=0 credentials_shown=0
"""
import json
import logging
import os
import pathlib
import subprocess
import sys
import tempfile

import boto3
from moto.server import ThreadedMotoServer

from prepared import DATA, OCTAVO, need, prepare

TEXT = DATA / "text" / "tinyshakespeare.txt"
KEY, SECRET = "AKIAOCTAVOTESTKEY000", "octavo-test-secret-that-is-never-shown"
BUCKET = "octavo-shards"
SIZES = ["--model_name", "custom", "--n_layer", 1, "--n_head", 2, "--n_embd", 32, "--max_seq_length", 64, "--batch_size", 4]
RUN = ["--max_steps", 30, "--eval_freq", 15, "--device", "cpu", "--seed", 3, "--tokenizer", "bytes"]


class CountedRequests(logging.Handler):
    """Of the server's log: GETs of shards."""

    def __init__(self):
        super().__init__()
        self.count = 0

    def emit(self, record):
        text = record.getMessage()
        self.count += "GET" in text and ".tok" in text


def train(work, name, dataset, env, *flags):
    words = [OCTAVO, "train", *SIZES, *RUN, "--dataset", dataset, "--run_name", name, *flags]
    return subprocess.run([*map(str, words)], cwd=work, env=os.environ | env, capture_output=True, text=True, check=False)


def losses(work, name, done):
    if done.returncode != 0:
        sys.exit(f"{name}: exit {done.returncode}\n{done.stderr[-2000:]}")
    records = [json.loads(line) for line in (work / "runs" / name / "metrics.jsonl").read_text().splitlines()]
    found = [(key, record[key]) for record in records for key in ("train/loss", "val/loss", "eval/loss") if key in record]
    if len(found) < 30:
        sys.exit(f"{name}: {len(found)} losses in its metrics")
    return found


def main():
    need(TEXT)
    for name in list(os.environ):  # this machine's own must not matter
        if name.startswith("AWS_"):
            del os.environ[name]
    counted, log = CountedRequests(), logging.getLogger("werkzeug")
    log.setLevel(logging.INFO)
    log.propagate = False
    log.handlers = [counted]
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=True)
    server.start()
    host, port = server.get_host_and_port()
    env = {"AWS_ENDPOINT_URL": f"http://{host}:{port}", "AWS_ACCESS_KEY_ID": KEY, "AWS_SECRET_ACCESS_KEY": SECRET,
           "AWS_EC2_METADATA_DISABLED": "true"}
    client = boto3.client("s3", endpoint_url=env["AWS_ENDPOINT_URL"], aws_access_key_id=KEY, aws_secret_access_key=SECRET,
                          region_name="us-east-1")
    client.create_bucket(Bucket=BUCKET)
    address = f"s3://{BUCKET}/set"
    with tempfile.TemporaryDirectory() as folder:
        work = pathlib.Path(folder)
        prepare([TEXT], work / "set", tokenizer="bytes", val_fraction=0.1, shard_tokens=200_000)
        for path in sorted((work / "set").iterdir()):
            client.upload_file(str(path), BUCKET, f"set/{path.name}")
        wanted = losses(work, "folder", train(work, "folder", work / "set", env))
        different, asked = 0, []
        for name, flags in (("cached", []), ("again", []), ("uncached", ["--data_cache_gb", 0])):
            before = counted.count
            different += losses(work, name, train(work, name, address, env, *flags)) != wanted
            asked.append(counted.count - before)
        if not (asked[0] > 0 and asked[2] > 0):
            sys.exit(f"wanted requests for shards, found {asked}: they are not counted")

        refused = shown = 0
        shard = sorted((work / "set").glob("train-*.tok"))[0]
        damaged = bytearray(shard.read_bytes())
        for place in range(4096 + 100, len(damaged) - 20_000, 60_000):
            damaged[place] ^= 1
        for body, code, word in ((bytes(damaged), 5, shard.name), (None, 3, shard.name)):
            if body is None:
                client.delete_object(Bucket=BUCKET, Key=f"set/{shard.name}")
            else:
                client.put_object(Bucket=BUCKET, Key=f"set/{shard.name}", Body=body)
            done = train(work, f"refused{code}", address, env, "--data_cache_gb", 0)
            text = done.stdout + done.stderr
            if done.returncode != code or word not in text:
                sys.exit(f"wanted exit {code} and '{word}', found {done.returncode}: {text[-2000:]}")
            refused += 1
            shown += SECRET in text or KEY in text
    server.stop()
    print(f"runs=4 different={different} refused={refused} requests_again={asked[1]} credentials_shown={shown}")
    sys.exit(different > 0 or asked[1] > 0 or shown > 0)


if __name__ == "__main__":
    main()
