"""Runs of several ranks: a tiny Llama, a folder for each run, and `octavo launch` on one node or on several that are
processes of this machine."""
import json
import os
import socket
import subprocess

import common
from common import OCTAVO

# Every recipe can run, and the rows of some matrices do not divide by 3.
LLAMA = {"model_type": "llama", "architectures": ["LlamaForCausalLM"], "hidden_size": 128, "intermediate_size": 256,
         "num_hidden_layers": 3, "num_attention_heads": 4, "num_key_value_heads": 2, "max_position_embeddings": 128,
         "vocab_size": 257, "rms_norm_eps": 1e-5, "rope_theta": 10000.0, "tie_word_embeddings": False,
         "hidden_act": "silu"}
GLOBAL_BATCH = 24  # samples of a step, for 1, 2, 3, 4 and 8 ranks


def write_model(folder, **changes):
    folder.mkdir(exist_ok=True)
    (folder / "config.json").write_text(json.dumps(LLAMA | changes))
    return folder


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


class Job:
    """One run of some ranks."""

    def __init__(self, path, model, steps=50, **keys):
        self.path = path
        path.mkdir()
        settings = {"model_name": model, "tokenizer": "bytes", "dataset": path.parent / "data", "max_seq_length": 32,
                    "max_steps": steps, "learning_rate": 1e-3, "eval_freq": 0, "run_name": "run",
                    "checkpoint_freq": 0, "log_freq": 1000, "device": "cpu"} | keys
        (path / "train.yaml").write_text("".join(f"{k}: {json.dumps(v) if isinstance(v, bool) else v}\n"
                                                 for k, v in settings.items()))

    def commands(self, ranks, nodes=1, launch_flags=(), flags=()):
        train = ["--", "train", "train.yaml", *map(str, flags)]
        if nodes == 1:
            return [[OCTAVO, "launch", "--nproc", str(ranks), *launch_flags, *train]]
        meet = ["--nnodes", str(nodes), "--master_address", "127.0.0.1", "--master_port", str(free_port())]
        return [[OCTAVO, "launch", "--nproc", str(ranks // nodes), "--node_rank", str(n), *meet, *launch_flags, *train]
                for n in range(nodes)]

    def start(self, ranks, nodes=1, launch_flags=(), flags=(), environment=None):
        env = os.environ | {"OMP_WAIT_POLICY": "passive", "OMP_NUM_THREADS": "1"} | (environment or {})
        processes = []
        for n, command in enumerate(self.commands(ranks, nodes, launch_flags, flags)):
            with open(self.path / f"node-{n}.txt", "a") as log:
                processes.append(subprocess.Popen(command, cwd=self.path, env=env, stdout=log, stderr=log))
        return processes

    def finish(self, ranks, nodes=1, **more):
        codes = [p.wait(timeout=300) for p in self.start(ranks, nodes, **more)]
        if any(codes):
            raise RuntimeError(f"{self.path.name} ended with {codes}:\n{self.log()[-3000:]}")
        return self

    def log(self):
        return "".join(p.read_text() for p in sorted(self.path.glob("node-*.txt")))

    def losses(self):
        lines = (self.path / "runs" / "run" / "metrics.jsonl").read_text().splitlines()
        return [r["train/loss"] for r in map(json.loads, lines) if "train/loss" in r]

    def norms(self):
        lines = (self.path / "runs" / "run" / "metrics.jsonl").read_text().splitlines()
        return [r["train/grad_norm"] for r in map(json.loads, lines) if "train/grad_norm" in r]

    def receipt(self):
        return json.loads((self.path / "runs" / "run" / "receipt.json").read_text())


def prepared(work):
    """A folder with data and the model."""
    common.require_files()
    common.prepare_data(work)
    return write_model(work / "llama")
