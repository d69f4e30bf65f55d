#!/usr/bin/env -S sh -c 'exec "$(dirname "$0")/../../.deps/venv/bin/python" "$0" "$@"'
# test: label=integration timeout=600 gate="--short" night=""
"""A checkpoint that 4 ranks wrote (fsdp_full), loaded by 1, 2, 3 and 8 ranks in every mode. Each of these runs saves what
it has loaded, and that is the same bit for bit: weights, moments, scales, read here through the manifests. Then it continues,
and its losses are those of the run that was not interrupted: the same samples in the same order. Exports are the same files.
With --short: a third of the loads."""
import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile

import common
from ranks import free_port

TOOL = common.BUILD / "bin" / "reshard_tool"
SAVED, STEPS, SAMPLES = 3, 6, 24  # step of the checkpoint, of the end; samples of a step, for any number of ranks
TOLERANCE = 1e-4  # relative, of a loss: another number of ranks adds in another order
MODES = ("ddp", "zero1", "zero2", "fsdp_full", "hybrid")
BATCH = {1: 4, 2: 4, 3: 4, 4: 3, 8: 3}
NODES = {2: 1, 3: 1, 4: 2, 8: 2}  # of hybrid
CONFIG = f"""
model_name: custom
n_layer: 2
n_head: 2
n_embd: 48
max_seq_length: 32
max_steps: {STEPS}
learning_rate: 3e-3
eval_freq: 0
checkpoint_freq: {SAVED}
keep_checkpoints: 0
num_threads: 1
run_name: run
"""
PRECISIONS = {
    "fp32": "mixed_precision: fp32\n",
    # Moments in eight bits have scales of their own, cut by elements; delayed scaling is state too.
    "low": "mixed_precision: fp8\nfp8_recipe: delayed\nmaster_dtype: bf16\nmoment_dtype: fp8\ngradient_dtype: bf16\n",
}


def layout(ranks, mode):
    return ["--batch_size", str(BATCH[ranks]), "--gradient_accumulation_steps", str(SAMPLES // ranks // BATCH[ranks]),
            *(["--sharding_mode", mode] if ranks > 1 else [])]


def start_ranks(command, ranks, mode, folder):
    """Runs the ranks as a launcher would, their nodes all on this machine: the first one's output, exit codes, logs."""
    local = ranks // NODES[ranks] if mode == "hybrid" else ranks
    port = free_port()
    processes = []
    for rank in range(ranks):
        environment = os.environ | {"OMP_WAIT_POLICY": "passive"}
        if ranks > 1:
            environment |= {"RANK": str(rank), "WORLD_SIZE": str(ranks), "LOCAL_RANK": str(rank % local),
                            "LOCAL_WORLD_SIZE": str(local), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
        with open(folder / f"rank-{rank}.txt", "w") as log:
            processes.append(subprocess.Popen(command, cwd=folder, env=environment, text=True, stderr=log,
                                              stdout=subprocess.PIPE if rank == 0 else subprocess.DEVNULL))
    output = processes[0].communicate()[0]
    codes = [process.wait() for process in processes]
    return output, codes, [(folder / f"rank-{rank}.txt").read_text()[-4000:] for rank in range(ranks)]


def run_ranks(command, ranks, mode, folder):
    output, codes, logs = start_ranks(command, ranks, mode, folder)
    if any(codes):
        failed = "\n".join(log for code, log in zip(codes, logs) if code)
        sys.exit(f"{command[0].name}: {ranks} ranks, {mode}: exit codes {codes}\n{failed}")
    return output


def safetensors(path):
    """{name: (dtype, shape, bytes)}"""
    content = path.read_bytes()
    size = int.from_bytes(content[:8], "little")
    header = json.loads(content[8:8 + size])
    header.pop("__metadata__", None)
    data = content[8 + size:]
    return {name: (e["dtype"], e["shape"], data[slice(*e["data_offsets"])]) for name, e in header.items()}


def read_checkpoint(folder):
    """{(group, tensor): (dtype, shape, bytes)}, put together from the pieces that the ranks' lists speak of."""
    manifest = json.loads((folder / "manifest.json").read_text())
    if manifest["version"] == 1:
        return {(file["name"].removesuffix(".safetensors"), name): value for file in manifest["files"]
                for name, value in safetensors(folder / file["name"]).items()}
    pieces = {}
    for part in manifest["parts"]:
        for file in json.loads((folder / part["name"]).read_text())["files"]:
            values = safetensors(folder / file["name"])
            for name, piece in file["pieces"].items():
                dtype, shape, data = values[name]
                if shape[1:] != piece["shape"][1:] or dtype != piece["dtype"]:
                    sys.exit(f"{file['name']}: {name} is {dtype} {shape}, its list says {piece}")
                pieces.setdefault((file["group"], name), []).append((piece["first_row"], dtype, piece["shape"], data))
    return {key: (found[0][1], found[0][2], b"".join(data for _, _, _, data in found))
            for key, found in ((key, sorted(found)) for key, found in pieces.items())}


def differences(found, wanted):
    names = [f"{group}/{name}" for group, name in sorted(found.keys() | wanted.keys())
             if found.get((group, name)) != wanted.get((group, name))]
    return [f"{len(names)} tensors differ, {names[0]} first"] if names else []


def extra_differences(found, wanted):
    keys = ("data_position", "optimizer_steps", "data_fingerprint", "model", "fp8")
    a, b = (json.loads((folder / "manifest.json").read_text())["extra"] for folder in (found, wanted))
    return [f"{key} differs" for key in keys if a.get(key) != b.get(key)]


def loss_differences(found, wanted):
    worst = max(abs(found[step] - wanted[step]) / wanted[step] for step in wanted)
    return worst, [f"losses differ by {worst:.1e}"] if worst > TOLERANCE or found.keys() != wanted.keys() else []


class Source:
    """A run of 4 ranks, with its checkpoint in the middle and its losses after it."""

    def __init__(self, work, precision):
        self.folder = work / precision
        self.folder.mkdir()
        (self.folder / "train.yaml").write_text(CONFIG + PRECISIONS[precision])
        command = [common.OCTAVO, "train", "train.yaml", "--dataset", work / "data", "--checkpoint_dir", "checkpoints"]
        run_ranks(command + layout(4, "fsdp_full"), 4, "fsdp_full", self.folder)
        records = map(json.loads, (self.folder / "runs" / "run" / "metrics.jsonl").read_text().splitlines())
        self.losses = {r["step"]: r["train/loss"] for r in records if "train/loss" in r and r["step"] > SAVED}
        self.checkpoint = self.folder / "checkpoints" / "run" / f"step-{SAVED:08d}"
        self.tensors = read_checkpoint(self.checkpoint)

    def load(self, ranks, mode, data, checkpoint=None):
        """The folder that a run with this layout saved, and the differences."""
        out = self.folder / f"{ranks}-{mode}{'-again' if checkpoint else ''}"
        command = [TOOL, out, str(STEPS - SAVED), "train.yaml", "--dataset", data, "--resume", checkpoint or self.checkpoint]
        lines = run_ranks(command + layout(ranks, mode), ranks, mode, self.folder).splitlines()
        losses = {int(step): float(loss) for step, loss in map(str.split, lines)}
        saved = out / "run" / f"step-{SAVED:08d}"
        worst, found = loss_differences(losses, self.losses)
        return saved, worst, differences(read_checkpoint(saved), self.tensors) + extra_differences(
            saved, self.checkpoint) + found


def export(checkpoint, folder):
    done = subprocess.run([common.OCTAVO, "checkpoints", "export", checkpoint, "--output", folder], text=True,
                          capture_output=True)
    if done.returncode != 0:
        sys.exit(f"export of {checkpoint} ended with exit code {done.returncode}:\n{done.stderr}")
    return {file.name: file.read_bytes() for file in folder.glob("*.safetensors")}


def check_damage(source, data):
    """A flipped bit in a piece that one of three ranks finds: all of them refuse the checkpoint when it was named, and all
    take the one before when it was the latest."""
    folder = source.folder / "damaged"
    shutil.copytree(source.folder / "checkpoints", folder, symlinks=True)
    path = folder / "run" / f"step-{STEPS:08d}" / "optimizer-00004-of-00004.safetensors"
    content = bytearray(path.read_bytes())
    content[-5] ^= 16
    path.write_bytes(content)
    problems = []
    for resume, wanted in ((path.parent, [common.DAMAGED] * 3), ("latest", [0] * 3)):
        out = source.folder / f"after-{pathlib.Path(resume).name}"
        command = [TOOL, out, "0", "train.yaml", "--dataset", data, "--checkpoint_dir", folder, "--resume", resume]
        _, codes, logs = start_ranks(command + layout(3, "fsdp_full"), 3, "fsdp_full", source.folder)
        if codes != wanted or not any(f"{path.name}: tensor" in log for log in logs):
            problems.append(f"damaged, resume {resume}: exit codes {codes}, wanted {wanted}\n" + "\n".join(logs))
        elif resume == "latest":
            problems += differences(read_checkpoint(out / "run" / f"step-{SAVED:08d}"), source.tensors)
    return problems


def main():
    common.require_files()
    if not TOOL.exists():
        sys.exit(f"wanted {TOOL}, found none; ninja -C {common.BUILD} reshard_tool")
    loads = mismatched = 0
    worst_loss = 0.0
    with tempfile.TemporaryDirectory() as temporary:
        work = pathlib.Path(temporary)
        common.prepare_data(work)

        def check(source, ranks, mode, checkpoint=None):
            nonlocal loads, mismatched, worst_loss
            saved, worst, found = source.load(ranks, mode, work / "data", checkpoint)
            loads += 1
            mismatched += bool(found)
            worst_loss = max(worst_loss, worst)
            print(f"{source.folder.name}: {ranks} ranks, {mode}: {'; '.join(found) or 'same'}", flush=True)
            return saved

        plain = Source(work, "fp32")
        alone = check(plain, 1, "none")
        short = "--short" in sys.argv
        layouts = [(ranks, mode) for ranks in (2, 3, 8) for mode in MODES]
        for ranks, mode in layouts[::4] if short else layouts:
            check(plain, ranks, mode)
        check(plain, 4, "hybrid")
        check(plain, 4, "zero1", checkpoint=alone)  # what one process wrote, over four
        low = Source(work, "low")
        for ranks, mode in ((3, "fsdp_full"),) if short else ((1, "none"), (3, "fsdp_full"), (8, "zero2")):
            check(low, ranks, mode)
        damage = check_damage(plain, work / "data")
        print("\n".join(damage) or "a damaged piece: named; refused or fallen back from on all ranks alike")
        exports = export(plain.checkpoint, work / "export-4"), export(alone, work / "export-1")
        same_export = bool(exports[0]) and exports[0] == exports[1]
        tensors = len(plain.tensors) + len(low.tensors)
    print(f"loads={loads} mismatched={mismatched} tensors={tensors} worst_loss={worst_loss:.1e} "
          f"same_export={same_export} damage_named={not damage}")
    sys.exit(1 if mismatched or damage or not same_export else 0)


if __name__ == "__main__":
    main()
