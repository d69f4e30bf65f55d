"""The loss of each source of a mixture, for mixture.py, beside two oracles: weighted by their tokens the losses are train/loss, and
transformers in FP64, on the samples that the run recorded, read from the shards by NumPy. Learning rate 0: all steps have one model."""
import json
import sys

from common import ROOT, octavo

sys.path.insert(0, str(ROOT / "tests" / "conformance"))
from prepared import ID, IN_LOSS, START, words  # noqa: E402

LENGTH, STEPS = 64, 6
NAMES, WEIGHTS = ("plays", "wiki", "rare"), "0.6,0.35,0.05"  # the last has no sample in most steps
# FP32 beside FP64; and the same FP64 numbers in another order.
ORACLE_LIMIT, SUM_LIMIT = 1e-5, 1e-9


def prepare(work, packed):
    """Folders of three sources: plain text, or rows with answers, whose prompts are not in the loss."""
    folders = []
    plays, wiki = (work / "plays.txt").read_text(), (work / "wiki.txt").read_text()
    for name, text in zip(NAMES, (plays, wiki, plays[-9000:])):
        source = work / f"{name}-losses.{'jsonl' if packed else 'txt'}"
        lines = [line for line in text.split("\n") if len(line) > 8]
        if packed:
            rows = [{"prompt": line[:6], "response": line[6:6 + 4 + n % 23]} for n, line in enumerate(lines)]
            source.write_text("".join(json.dumps(row) + "\n" for row in rows))
        else:
            source.write_text(text)
        folders.append(work / ("packed" if packed else "plain") / name)
        octavo(work, "data", "prepare", source, "--tokenizer", "bytes", "--max_seq_length", LENGTH, "--chat_template", "none",
               "--output", folders[-1])
    return folders


def make_model(folder):
    import torch
    from transformers import GPT2Config, GPT2LMHeadModel
    torch.manual_seed(3)
    model = GPT2LMHeadModel(GPT2Config(n_layer=2, n_head=2, n_embd=32, vocab_size=257, n_positions=LENGTH, resid_pdrop=0, embd_pdrop=0,
                                       attn_pdrop=0, bos_token_id=0, eos_token_id=0, initializer_range=0.3))
    model.save_pretrained(folder)
    return model.double().eval()


class Samples:
    """Of all sources one behind the other, as the run numbers them."""

    def __init__(self, folders, model):
        self.model, self.known, self.all = model, {}, []
        for number, folder in enumerate(folders):
            tokens, index = words(folder)
            self.packed = "sample_length" in index
            samples = tokens.reshape(-1, LENGTH) if self.packed else \
                [tokens[i:i + LENGTH + 1] for i in range(0, len(tokens) - LENGTH, LENGTH)]
            self.all += [(number, sample) for sample in samples]

    def loss(self, number):
        """(source, sum, tokens), by transformers; each document by itself."""
        import torch
        if number not in self.known:
            source, sample = self.all[number]
            sample = torch.tensor(sample.astype("int64"))
            starts = [0, *[i for i in range(1, len(sample)) if self.packed and sample[i] & START]]
            total, count = 0.0, 0
            for begin, end in zip(starts, [*starts[1:], len(sample)]):
                ids = sample[begin:end] & ID if self.packed else sample[begin:end]
                if len(ids) < 2:
                    continue
                with torch.no_grad():
                    each = torch.nn.functional.cross_entropy(self.model(ids[None, :-1]).logits[0], ids[1:], reduction="none")
                kept = (sample[begin + 1:end] & IN_LOSS) != 0 if self.packed else torch.ones(len(each), dtype=bool)
                total, count = total + each[kept].sum().item(), count + int(kept.sum())
            self.known[number] = source, total, count
        return self.known[number]


def compare(records, samples):
    """Worst difference from transformers, worst of the weighted sum, losses compared, and steps of a source without a loss."""
    worst = off = 0.0
    compared = absent = wrong = 0
    for record in records:
        sums = [[0.0, 0] for _ in NAMES]
        for number in record["data/samples"]:
            source, loss, tokens = samples.loss(number)
            sums[source][0] += loss
            sums[source][1] += tokens
        weighted = 0.0
        for name, (loss, tokens) in zip(NAMES, sums):
            found = record.get(f"data/{name}/loss", "none")
            if tokens == 0:
                absent += 1
                wrong += found != "none"
                continue
            if not isinstance(found, float):
                wrong += 1
                continue
            compared += 1
            worst = max(worst, abs(found * tokens / loss - 1))
            weighted += found * tokens
        off = max(off, abs(weighted / sum(tokens for _, tokens in sums) / record["train/loss"] - 1))
    return worst, off, compared, absent, wrong


def weighted_off(records, names):
    """The worst relative difference of train/loss from the sources' losses, weighted by the tokens of plain samples that came in each
    step; and the steps of a source that have a loss without tokens, or none with some."""
    worst, wrong, before = 0.0, 0, dict.fromkeys(names, 0)
    for record in records:
        came = {name: record[f"data/{name}/tokens"] - before[name] for name in names}
        before = {name: record[f"data/{name}/tokens"] for name in names}
        wrong += sum((f"data/{name}/loss" in record) != (came[name] > 0) for name in names)
        weighted = sum(came[name] * record.get(f"data/{name}/loss", 0) for name in names) / sum(came.values())
        worst = max(worst, abs(weighted / record["train/loss"] - 1))
    return worst, wrong


def check_losses(work, checks, new_place):
    """`new_place`: makes the folder of a run (mixture.Place). How many losses were compared, and the worst difference."""
    model = make_model(work / "model")
    compared_all, worst_all = 0, 0.0
    for packed in (False, True):
        folders = prepare(work, packed)
        samples = Samples(folders, model)
        config = f"""model_name: {work / 'model'}
tokenizer: bytes
dataset: [{', '.join(map(str, folders))}]
dataset_weights: [{WEIGHTS}]
max_seq_length: {LENGTH}
max_steps: {STEPS}
learning_rate: 0
warmup_steps: 0
eval_freq: 0
checkpoint_freq: 0
mixed_precision: fp32
num_threads: 1
device: cpu
record_samples: true
"""
        for name, ranks, flags in (
                ("a step of 6", 1, ("--batch_size", 6)),
                ("3 micro-batches on 2 ranks", 2, ("--batch_size", 1, "--gradient_accumulation_steps", 3)),
                ("chunks of the head", 1, ("--batch_size", 24)),  # more tokens than a chunk on a CPU
                ("fsdp_full", 2, ("--batch_size", 3, "--sharding_mode", "fsdp_full"))):
            what = f"losses of sources, {'rows with answers' if packed else 'text'}, {name}"
            place = new_place(work, f"losses-{packed}-{name.replace(' ', '-')}", config)
            done = place.train(*flags, ranks=ranks)
            records = place.records() if done.returncode == 0 else []
            worst, off, compared, absent, wrong = compare(records, samples)
            print(f"{what}: {compared} losses within {worst:.1e} of transformers, weighted within {off:.1e} of train/loss, "
                  f"{absent} times no sample", flush=True)
            checks.that(f"{what}: those of transformers on their samples", len(records) == STEPS and compared >= STEPS and
                        worst <= ORACLE_LIMIT, (worst, compared, done.stderr))
            checks.that(f"{what}: weighted by their tokens they are train/loss", len(records) == STEPS and off <= SUM_LIMIT, off)
            checks.that(f"{what}: none where a source has no sample", wrong == 0 and (absent > 0 or 24 in flags), (wrong, absent))
            compared_all, worst_all = compared_all + compared, max(worst_all, worst)
    # Where tensor types round, what is summed is still the same.
    place = new_place(work, "losses-bf16", config)
    done = place.train("--mixed_precision", "bf16", "--penalty_type", "z_loss", "--penalty_weight", "0.001", "--batch_size", "6")
    _, off, compared, _, wrong = compare(place.records() if done.returncode == 0 else [], samples)
    checks.that("losses of sources in BF16 with z-loss: weighted by their tokens they are train/loss", compared >= STEPS and wrong == 0 and
                off <= SUM_LIMIT, (off, compared, done.stderr))
    return compared_all, worst_all
