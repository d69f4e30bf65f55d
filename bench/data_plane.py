#!/usr/bin/env python3
# bench:
"""What reading tokens costs at the size of a large pretraining run, and how well they are shuffled.

Large: 100,000 shards of 100 million tokens each (holes: 20 TB that take 3 GB of disk), 10^13 tokens; a rank of 8 and a rank
alone read samples of 4096 tokens. Resident memory of the whole process, shard files open at one time, microseconds of a
sample by the clock, bytes asked of the kernel (/proc/self/io) over bytes of samples.
Disk: 3 GB of random tokens. One epoch through the loader beside `dd` over the same files, in turn, both with the files taken
out of the page cache before; the median ratio of their rates, and what the disk itself was asked for.
Quality: steps of 1024 samples from 100,000 shards in the order of blocks and in a uniform one: shards that a step draws from,
distance between consecutive samples (a third of the data when independent), and the spread, over steps, of the share of
samples from one tenth of the data (a source that lies together).

usage: data_plane.py [--shards N] [--pairs N] [--folder PATH]
"""
import argparse
import json
import pathlib
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parents[1]
TOOL = pathlib.Path(os.environ.get("OCTAVO_BUILD", ROOT / "build" / "release")) / "bin" / "data_plane_tool"
LENGTH, TOKENS = 4096, 100_000_000
MOST = {"amplification": 1.1, "resident_mb": 300, "files": 64, "us": 50}
LEAST_RATE = 0.8


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


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--shards", type=int, default=100_000)
    parser.add_argument("--pairs", type=int, default=3)
    parser.add_argument("--folder", type=pathlib.Path)
    options = parser.parse_args()
    folder = pathlib.Path(tempfile.mkdtemp(prefix="data_plane.", dir=options.folder))
    try:
        worst = large(folder / "large", options.shards)
        subprocess.run(["rm", "-rf", folder / "large"], check=True)  # faster than shutil
        rate, amplification, of_disk = disk(folder / "disk", options.pairs)
    finally:
        shutil.rmtree(folder)
    quality = tool("quality", 10**13 // LENGTH, LENGTH, 1024, 100_000)
    for name, found in quality.items():
        print(f"quality, {name:7}: {found['shards_in_a_step']:.0f} shards in a step of 1024, mean distance "
              f"{found['mean_distance']:.4f}, spread of a tenth's share {found['share_spread']:.4f}")
    worst["amplification"] = max(worst["amplification"], amplification)
    failed = sum(worst[key] > most for key, most in MOST.items()) + (rate < LEAST_RATE) + (options.shards < 100_000)
    print(f"virtual_tokens={options.shards * TOKENS:.0e} amplification={worst['amplification']:.3f} disk_amplification={of_disk:.3f} "
          f"resident_mb={worst['resident_mb']:.0f} files={worst['files']} sample_us={worst['us']:.1f} rate_of_dd={rate:.2f} "
          f"step_shards={quality['blocks']['shards_in_a_step']:.0f} failed={failed}")
    sys.exit(failed > 0)


if __name__ == "__main__":
    main()
