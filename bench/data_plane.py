#!/usr/bin/env -S sh -c 'exec "$(dirname "$0")/../.deps/venv/bin/python" "$0" "$@"'
# bench: measures="src/data src/object_store"
"""What reading tokens costs at the size of a large pretraining run, and how well they are shuffled.

Large: 100,000 shards of 100 million tokens each (holes: 20 TB that take 3 GB of disk), 10^13 tokens; a rank of 8 and a rank
alone read samples of 4096 tokens. Resident memory of the whole process, shard files open at one time, microseconds of a
sample by the clock, bytes asked of the kernel (/proc/self/io) over bytes of samples.
Disk: 3 GB of random tokens. One epoch through the loader beside `dd` over the same files, in turn, both with the files taken
out of the page cache before; the median ratio of their rates, and what the disk itself was asked for.
S3: 16 ranks, each a process, read a data set from a server (moto) behind a proxy that holds every request back by 20 ms; a step
takes 100 ms without the loader, and ends when all ranks have made it, as collectives see to. Late: steps, but a rank's first,
that waited for data, of all ranks. Then again, with what the first ones left on the disk.
Quality: steps of 1024 samples from 100,000 shards in the order of blocks and in a uniform one: shards that a step draws from,
distance between consecutive samples (a third of the data when independent), and the spread, over steps, of the share of
samples from one tenth of the data (a source that lies together).

usage: data_plane.py [--shards N] [--pairs N] [--folder PATH]
       data_plane.py --quality    only writes docs/pictures/shuffle.json, which docs/diagrams.py draws
"""
import argparse
import asyncio
import json
import logging
import pathlib
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import threading
import time

import boto3
from moto.server import ThreadedMotoServer

ROOT = pathlib.Path(__file__).resolve().parents[1]
TOOL = pathlib.Path(os.environ.get("OCTAVO_BUILD", ROOT / "build" / "release")) / "bin" / "data_plane_tool"
LENGTH, TOKENS = 4096, 100_000_000
MOST = {"amplification": 1.1, "resident_mb": 300, "files": 64, "us": 50}
LEAST_RATE = 0.8
STEP_SAMPLES, SHARDS = 1024, 100_000  # of the order whose quality is told
S3_RANKS, S3_ROWS, S3_STEPS, STEP_MS, LATENCY = 16, 4, 150, 100, 0.02


def tool(*words):
    done = subprocess.run([TOOL, *map(str, words)], stdout=subprocess.PIPE, text=True, check=False)
    if done.returncode:
        sys.exit(f"data_plane_tool {words[0]}: exit code {done.returncode}")
    return json.loads(done.stdout) if done.stdout else None


def large(folder, shards):
    begin = time.time()
    tool("sparse", folder, shards, TOKENS)
    print(f"{shards} shards in {time.time() - begin:.0f} s")
    worst = dict.fromkeys(MOST, 0.0)
    for name, rows, world, step in (("one rank of 8", 8, 8, 512), ("a rank alone", 8, 1, 64), ("a rank alone", 1, 1, 1)):
        result = tool("read", folder, LENGTH, rows, world, step, 600_000, 10**9 // 512 * 512 * world)
        result["us"] = result["us_a_sample"]
        print(f"{name:14} steps of {step:4}: {result['us']:.1f} us a sample ({result['cpu_us_a_sample']:.1f} of CPU), "
              f"{result['amplification']:.3f} bytes read for each used, {result['resident_mb']:.0f} MB resident "
              f"(index {result['index_mb']:.0f}), {result['files']} shard files open, index read in {result['open_seconds']:.1f} s")
        for key in worst:
            worst[key] = max(worst[key], result[key])
    return worst


def sequential(folder):
    """MB/s of dd over all shards."""
    tool("forget", folder)
    files = sorted(folder.glob("*.tok"))
    begin = time.time()
    for path in files:
        subprocess.run(["dd", f"if={path}", "of=/dev/null", "bs=1M"], check=True, stderr=subprocess.DEVNULL)
    return sum(path.stat().st_size for path in files) / 1e6 / (time.time() - begin)


def disk(folder, pairs):
    tool("random", folder, 15, TOKENS)
    samples = 15 * TOKENS // LENGTH - 1
    ratios, amplification, of_disk = [], 0.0, 0.0
    for _ in range(pairs):
        dd = sequential(folder)
        tool("forget", folder)
        result = tool("read", folder, LENGTH, 8, 1, 64, samples)
        ratios.append(result["mb_a_second"] / dd)
        amplification = max(amplification, result["amplification"])
        of_disk = max(of_disk, result["disk_amplification"])
        print(f"disk: dd {dd:.0f} MB/s, loader {result['mb_a_second']:.0f} MB/s, {result['amplification']:.3f} asked of the "
              f"kernel and {result['disk_amplification']:.3f} of the disk for each byte used")
    return statistics.median(ratios), amplification, of_disk


class SlowServer:
    """An S3 server, and a way to it on which every request takes LATENCY longer."""

    def __init__(self):
        logging.getLogger("werkzeug").setLevel(logging.ERROR)
        self.server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
        self.server.start()
        self.direct = self.server.get_host_and_port()
        self.requests, self.loop, started = 0, asyncio.new_event_loop(), threading.Event()

        async def serve():
            listener = await asyncio.start_server(self.connect, "127.0.0.1", 0)
            self.port = listener.sockets[0].getsockname()[1]
            started.set()

        def run():
            self.loop.create_task(serve())
            self.loop.run_forever()

        threading.Thread(target=run, daemon=True).start()
        started.wait()

    async def connect(self, reader, writer):
        there = await asyncio.open_connection(*self.direct)

        async def copy(source, target, wait):
            try:
                while chunk := await source.read(1 << 18):
                    if wait:
                        self.requests += 1
                        await asyncio.sleep(LATENCY)
                    target.write(chunk)
                    await target.drain()
            except ConnectionError:
                pass
            target.close()

        await asyncio.gather(copy(reader, there[1], True), copy(there[0], writer, False))

    def environment(self):
        own = {name: value for name, value in os.environ.items() if not name.startswith("AWS_")}
        return own | {"AWS_ENDPOINT_URL": f"http://127.0.0.1:{self.port}", "AWS_ACCESS_KEY_ID": "key", "AWS_SECRET_ACCESS_KEY": "secret",
                      "AWS_REGION": "us-east-1", "AWS_EC2_METADATA_DISABLED": "true"}

    def upload(self, folder):
        host, port = self.direct
        client = boto3.client("s3", endpoint_url=f"http://{host}:{port}", aws_access_key_id="key", aws_secret_access_key="secret",
                              region_name="us-east-1")
        client.create_bucket(Bucket="data")
        for path in sorted(folder.iterdir()):
            client.upload_file(str(path), "data", f"set/{path.name}")


def of_ranks(address, cache, environment, meeting):
    """What each rank's steps were like. In each step they wait for each other, through the file `meeting`."""
    meeting.write_bytes(bytes(8))
    words = ["steps", address, LENGTH, S3_ROWS, "RANK", S3_RANKS, S3_STEPS, STEP_MS, cache, 1_000_000_000, meeting]
    started = [subprocess.Popen([str(rank if word == "RANK" else word) for word in (TOOL, *words)],
                                stdout=subprocess.PIPE, text=True, env=environment) for rank in range(S3_RANKS)]
    found = []
    for process in started:
        out, _ = process.communicate(timeout=600)
        if process.returncode:
            sys.exit(f"data_plane_tool steps: exit code {process.returncode}")
        found.append(json.loads(out))
    return found


def object_store(folder):
    """Late steps of all ranks, the worst wait and bytes read for each used; reading from S3."""
    tool("random", folder / "set", 16, 4_000_000)
    server = SlowServer()
    server.upload(folder / "set")
    here = of_ranks(folder / "set", "-", dict(os.environ), folder / "meeting")
    late = worst = amplification = 0
    for name in ("S3, 20 ms", "S3, kept"):
        before = server.requests
        found = of_ranks("s3://data/set", folder / "cache", server.environment(), folder / "meeting")
        if [rank["token_sum"] for rank in found] != [rank["token_sum"] for rank in here]:
            sys.exit(f"{name}: other tokens than from the folder")
        late += sum(rank["late_steps"] for rank in found)
        worst = max(worst, *(rank["most_seconds"] for rank in found))
        amplification = max(amplification, *(rank["amplification"] for rank in found))
        print(f"{name}: {S3_RANKS} ranks, {S3_STEPS} steps of {STEP_MS} ms: {sum(rank['late_steps'] for rank in found)} steps waited for "
              f"data, the last of them step {max(rank['last_late_step'] for rank in found)}, {1e3 * max(rank['most_seconds'] for rank in found):.1f} ms at most; the first batch took "
              f"{max(rank['first_seconds'] for rank in found):.2f} s; {server.requests - before} messages to the server, "
              f"{max(rank['amplification'] for rank in found):.2f} bytes for each used", flush=True)
    return late, worst, amplification


def order_quality():
    return tool("quality", 10**13 // LENGTH, LENGTH, STEP_SAMPLES, SHARDS)


def write_quality(path):
    """What docs/diagrams.py draws."""
    numbers = {"samples": 10**13 // LENGTH, "step_samples": STEP_SAMPLES, "shards": SHARDS, "steps": 1000}
    for name, found in order_quality().items():
        numbers[name] = {key: [round(each, 5) for each in value] if isinstance(value, list) else round(value, 5)
                         for key, value in found.items()}
    path.write_text("{\n" + ",\n".join(f' "{key}": {json.dumps(value)}' for key, value in numbers.items()) + "\n}\n")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--shards", type=int, default=100_000)
    parser.add_argument("--pairs", type=int, default=3)
    parser.add_argument("--folder", type=pathlib.Path)
    parser.add_argument("--quality", action="store_true")
    options = parser.parse_args()
    if options.quality:
        return write_quality(ROOT / "docs" / "pictures" / "shuffle.json")
    folder = pathlib.Path(tempfile.mkdtemp(prefix="data_plane.", dir=options.folder))
    try:
        worst = large(folder / "large", options.shards)
        subprocess.run(["rm", "-rf", folder / "large"], check=True)  # faster than shutil
        rate, amplification, of_disk = disk(folder / "disk", options.pairs)
        late, longest, from_s3 = object_store(folder / "s3")
    finally:
        shutil.rmtree(folder)
    quality = order_quality()
    for name, found in quality.items():
        print(f"quality, {name:7}: {found['shards_in_a_step']:.0f} shards in a step of 1024, mean distance "
              f"{found['mean_distance']:.4f}, spread of a tenth's share {found['share_spread']:.4f}")
    worst["amplification"] = max(worst["amplification"], amplification)
    failed = sum(worst[key] > most for key, most in MOST.items()) + (rate < LEAST_RATE) + (options.shards < 100_000) + (late > 0)
    print(f"virtual_tokens={options.shards * TOKENS:.0e} amplification={worst['amplification']:.3f} disk_amplification={of_disk:.3f} "
          f"resident_mb={worst['resident_mb']:.0f} files={worst['files']} sample_us={worst['us']:.1f} rate_of_dd={rate:.2f} "
          f"step_shards={quality['blocks']['shards_in_a_step']:.0f} s3_late_steps={late} s3_longest_wait_ms={1e3 * longest:.1f} "
          f"s3_amplification={from_s3:.2f} failed={failed}")
    sys.exit(failed > 0)


if __name__ == "__main__":
    main()
