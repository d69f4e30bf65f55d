#!/usr/bin/env -S sh -c 'exec "$(dirname "$0")/../../.deps/venv/bin/python" "$0" "$@"'
# test: label=integration timeout=300 gate="" night=""
"""Two nodes of which the second was started with another setting or with other data: both launchers end with exit code 2 before a
step, and what differs is named, with both values. What is a node's own business (threads, sinks, where its data lies) may differ. The same of launchers: one with
other options than node 0's, or whose command is wrong before it starts a rank, ends both, and node 0 says which node it was.

Last line: cases=N refused=N trained=N slowest_s=… failed=0
"""
import pathlib
import shutil
import sys
import tempfile
import time

import common
from missing_node import free_port
from rank_runs import Launched, make_folder

SECRET = {"OCTAVO_RENDEZVOUS_SECRET": "of this test only, and long enough"}
STEPS, PATIENCE, USAGE = 3, 60, 2
REFUSED = {"learning_rate": "1e-2", "max_steps": "4", "n_layer": "1", "seed": "5", "batch_size": "4", "eval_freq": "1",
           "sharding_mode": "fsdp_full", "mixed_precision": "bf16", "data": "other"}
LAUNCHERS = {"max_restarts": "4", "nproc": "2"}  # options of the second launcher itself
WRONG = {"learning_rate": "fast"}  # found before the launchers join
TRAINED = {"num_threads": "2", "verbose": "true", "hang_timeout": "50", "data": "copy"}


def trial(work, key, value):
    """(exit codes, what both said, seconds)"""
    folder, port, began = make_folder(work / f"run-{key}-{value}", STEPS, 0, "sharding_mode: ddp\ndist_timeout: 30\n"), free_port(), time.monotonic()
    nodes = []
    for node in range(2):
        told = {"nproc": "1", "nnodes": "2", "node_rank": str(node), "master_address": "127.0.0.1", "master_port": port, "max_restarts": "3"}
        is_data, is_odd, is_launcher = key == "data", node == 1, key in LAUNCHERS
        if is_odd and is_launcher:
            told[key] = value
        launch = [word for name, given in told.items() for word in (f"--{name}", given)]
        nodes.append(Launched(folder, launch, [f"--{key}", value] if is_odd and not is_data and not is_launcher else [], environment=SECRET,
                              dataset=work / value if is_odd and is_data else None))
    try:
        codes = [node.wait(PATIENCE) for node in nodes]
    finally:
        for node in nodes:
            node.end()
    said = "".join(node.said() for node in nodes) + "".join(nodes[0].log(rank) for rank in range(2))
    return codes, said, time.monotonic() - began


def main():
    common.require_files()
    failed, slowest = 0, 0.0
    with tempfile.TemporaryDirectory() as temporary:
        work = pathlib.Path(temporary)
        common.prepare_data(work)
        (work / "other.txt").write_bytes(common.TEXT.read_bytes()[:300_000])
        common.octavo(work, "data", "prepare", "other.txt", "--output", "other", "--tokenizer", "bytes")
        shutil.copytree(work / "data", work / "copy")
        cases = [(key, value, wanted) for wanted in (REFUSED, LAUNCHERS, WRONG, TRAINED) for key, value in wanted.items()]
        for key, value, wanted in cases:
            codes, said, seconds = trial(work, key, value)
            if wanted is REFUSED:
                named = "wanted the data of the first rank" if key == "data" else f"{key}: "
                good = codes == [USAGE] * 2 and named in said and "restart 1 of" not in said and "step 1 " not in said
                slowest = max(slowest, seconds)
            elif wanted is not TRAINED:
                named = [f"{key} {value} (node 0 has "] if wanted is LAUNCHERS else [f"{key}: ", value]
                good = codes == [USAGE] * 2 and all(part in said for part in [*named, "node 1 ended with exit code 2: "])
                good = good and "restart 1 of" not in said and "step 1 " not in said
                slowest = max(slowest, seconds)
            else:
                good = codes == [0, 0]
            print(f"{key} {value}: {codes} in {seconds:.1f} s{'' if good else ' WRONG'}", flush=True)
            if not good:
                failed += 1
                print(said[-4000:])
    print(f"cases={len(cases)} refused={len(REFUSED) + len(LAUNCHERS) + len(WRONG)} trained={len(TRAINED)} slowest_s={slowest:.1f} failed={failed}")
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
