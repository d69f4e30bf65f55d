#!/usr/bin/env -S sh -c 'exec "$(dirname "$0")/../../.deps/venv/bin/python" "$0" "$@"'
# test: label=conformance timeout=600 gate="" measures="src/data src/tokenizer"
"""Data on S3. A moto server on loopback holds text, JSON lines, JSON, Parquet and Arrow; prepared from s3:// addresses
they give the same shards as from files. What is missing, refused or gone is an error that shows no credentials."""
import json
import logging
import os
import pathlib
import sys
import tempfile

import boto3
import pyarrow as pa
import pyarrow.ipc as ipc
import pyarrow.parquet as pq
from moto.server import ThreadedMotoServer

from prepared import DATA, need, prepare, run, shards

GSM8K, TEXT = DATA / "sft" / "gsm8k_train.jsonl", DATA / "text" / "tinyshakespeare.txt"
KEY, SECRET = "AKIAOCTAVOTESTKEY000", "octavo-test-secret-that-is-never-shown"
BUCKET = "octavo-data"


def make_files(folder):
    rows = [json.loads(line) for line in GSM8K.read_text().splitlines()[:3000]]
    table = pa.Table.from_pylist(rows)
    (folder / "set").mkdir()
    (folder / "text.txt").write_bytes(TEXT.read_bytes())
    (folder / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (folder / "rows.json").write_text(json.dumps(rows, indent=1))
    pq.write_table(table, folder / "rows.parquet", row_group_size=500)
    with ipc.new_stream(folder / "rows.arrow", table.schema) as writer:
        writer.write_table(table, max_chunksize=300)
    for part in range(3):
        pq.write_table(table.slice(1000 * part, 1000), folder / "set" / f"part-{part}.parquet")
    return [path.relative_to(folder) for path in sorted(folder.rglob("*")) if path.is_file()]


def main():
    need(GSM8K, TEXT)
    for name in list(os.environ):  # this machine's own must not matter
        if name.startswith("AWS_"):
            del os.environ[name]
    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    environment = {"AWS_ENDPOINT_URL": f"http://{host}:{port}", "AWS_ACCESS_KEY_ID": KEY, "AWS_SECRET_ACCESS_KEY": SECRET,
                   "AWS_EC2_METADATA_DISABLED": "true"}
    client = boto3.client("s3", endpoint_url=environment["AWS_ENDPOINT_URL"], aws_access_key_id=KEY,
                          aws_secret_access_key=SECRET, region_name="us-east-1")
    client.create_bucket(Bucket=BUCKET)
    with tempfile.TemporaryDirectory() as name:
        work = pathlib.Path(name)
        (work / "files").mkdir()
        names = make_files(work / "files")
        for file in names:
            client.upload_file(str(work / "files" / file), BUCKET, f"some/{file}")

        options = dict(val_fraction=0.1, shard_tokens=200_000, max_seq_length=512, max_skipped_rows=1)
        equal = 0
        for file in [*(n for n in names if "set" not in n.parts), pathlib.Path("set")]:
            here, there = work / f"here-{file}", work / f"there-{file}"
            prepare([work / "files" / file], here, **options)
            prepare([f"s3://{BUCKET}/some/{file}"], there, env=environment, **options)
            if shards(here) != shards(there) or len(shards(here)) < 2:
                sys.exit(f"{file}: other shards from S3 than from the file")
            again = prepare([f"s3://{BUCKET}/some/{file}"], there, env=environment, **options)
            if "(0 kept" in again:
                sys.exit(f"{file}: an unchanged object was prepared again: {again}")
            equal += 1

        refused = 0
        for address, change, code, word in [
                (f"s3://{BUCKET}/none.jsonl", {}, 2, "nothing at"),
                ("s3://no-such-bucket/x.jsonl", {}, 2, "no-such-bucket"),
                (f"s3://{KEY}:{SECRET}@{BUCKET}/some/rows.jsonl", {}, 2, "AWS_ACCESS_KEY_ID"),
                (f"s3://{BUCKET}/some/rows.jsonl", {"AWS_ENDPOINT_URL": "http://127.0.0.1:9"}, 3, "AWS_ENDPOINT_URL"),
        ]:
            done = run([address], work / "refused", env=environment | change)
            shown = done.stdout + done.stderr
            if done.returncode != code or word not in shown:
                sys.exit(f"{address}: wanted exit {code} and '{word}', found {done.returncode}: {shown}")
            if SECRET in shown or KEY in shown:
                sys.exit(f"{address}: credentials were shown")
            refused += 1
    server.stop()
    print(f"equal={equal} refused={refused} credentials_shown=0")


if __name__ == "__main__":
    main()
