"""What the checks of our models against transformers share: where things are, the tool that runs ours, random weights,
and the comparison of logits and gradients."""
import dataclasses
import os
import pathlib
import subprocess
import sys

os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("OMP_WAIT_POLICY", "passive")  # spinning threads crawl on a machine that is shared

import torch
import torch.nn.functional as F
from safetensors.torch import load_file, save_file
from transformers import AutoModelForCausalLM
from transformers.utils import logging

ROOT = pathlib.Path(__file__).resolve().parents[2]
BUILD = pathlib.Path(os.environ.get("OCTAVO_BUILD", ROOT / "build" / "release"))
OCTAVO = BUILD / "bin" / "octavo"
TOOL = BUILD / "bin" / "model_parity_tool"
DATA = pathlib.Path(os.environ.get("OCTAVO_TEST_DATA", ROOT.parent / "shared"))
LOGIT_DIFF, COSINE, GRADIENT_NORM, LOSS_DIFF = 1e-4, 0.99999, 1e-4, 1e-5
# A gradient below this part of the largest is rounding alone (of queries and keys, when there is one token).
NOTHING = 1e-6

logging.set_verbosity_error()
logging.disable_progress_bar()


def require(*paths):
    """Ends the script when something is missing: a failure, or without CI a remark when it is test data."""
    for path in paths:
        if path.exists():
            continue
        is_data = DATA in path.parents
        print(f"wanted {path}, found none; " + ("set OCTAVO_TEST_DATA" if is_data else f"ninja -C {BUILD} {path.name}"))
        sys.exit(0 if is_data and os.environ.get("CI") != "true" else 1)


def run_tool(*arguments):
    """(exit code, standard output, standard error)"""
    done = subprocess.run([TOOL, *map(str, arguments)], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    return done.returncode, done.stdout.decode(), done.stderr.decode(errors="replace")


def tool(*arguments):
    """Its lines; ends the script when it fails."""
    code, out, errors = run_tool(*arguments)
    sys.stderr.write(errors)
    if code != 0:
        sys.exit(f"{TOOL.name} {arguments[0]} ended with exit code {code}")
    return out.splitlines()


def randomize(model, seed):
    """Every weight random, biases and norms too; larger than the usual 0.02, so that the logits are not tiny."""
    torch.manual_seed(seed)
    with torch.no_grad():
        for name, p in model.named_parameters():
            p.normal_(std=0.08)
            if name.endswith("weight") and ("norm" in name or ".ln_" in name):
                p.add_(1)
    return model.eval()


def save_batch(path, inputs, targets, starts=None):
    """[rows, length] each; starts: where documents begin in the rows laid end to end."""
    tensors = {"inputs": inputs, "targets": targets} | ({} if starts is None else {"starts": starts})
    save_file({name: torch.as_tensor(t).to(torch.int32).clone(memory_format=torch.contiguous_format)
               for name, t in tensors.items()}, path)


def cosine(a, b):
    a, b = a.flatten().double(), b.flatten().double()
    return (a @ b / (a.norm() * b.norm())).item()


def read_folder(folder):
    """All tensors of a folder's safetensors files."""
    return {name: t for file in sorted(folder.glob("*.safetensors")) for name, t in load_file(file).items()}


def check_round_trip(folder, again, model, inputs):
    """What was loaded and written again is what transformers wrote, bit for bit, and transformers reads it."""
    source, copy = read_folder(folder), read_folder(again)
    assert source.keys() == copy.keys(), f"tensors differ: {source.keys() ^ copy.keys()}"
    for name, tensor in source.items():
        wanted, found = tensor.float(), copy[name].float()  # exact: the files are BF16 or FP32
        assert torch.equal(wanted.view(torch.int32), found.view(torch.int32)), f"{name} changed on its way"
    reread, notes = AutoModelForCausalLM.from_pretrained(again, dtype=torch.float32, output_loading_info=True)
    assert type(reread) is type(model), f"wanted {type(model).__name__}, found {type(reread).__name__}"
    assert not any(notes[k] for k in ("missing_keys", "unexpected_keys", "mismatched_keys")), notes
    with torch.no_grad():
        assert torch.equal(reread.eval()(inputs).logits, model(inputs).logits), "logits differ after the round trip"


@dataclasses.dataclass
class Agreement:
    """How far apart two sides are at most."""
    logit_diff: float = 0.0
    worst_cosine: float = 1.0
    gradient_norm: float = 0.0
    logit_std: float = 0.0
    parameters: int = 0

    def add(self, other):
        self.logit_diff = max(self.logit_diff, other.logit_diff)
        self.worst_cosine = min(self.worst_cosine, other.worst_cosine)
        self.gradient_norm = max(self.gradient_norm, other.gradient_norm)
        self.parameters = max(self.parameters, other.parameters)
        return self

    def good(self):
        return (self.logit_diff <= LOGIT_DIFF and self.worst_cosine >= COSINE
                and self.gradient_norm <= GRADIENT_NORM)

    def __str__(self):
        return (f"logit_diff={self.logit_diff:.2e} worst_cosine={self.worst_cosine:.8f} "
                f"grad_norm_rel={self.gradient_norm:.2e}")


def compare_gradients(ours, theirs):
    """(worst cosine, worst relative difference of the norms) over all parameters."""
    assert ours.keys() == theirs.keys(), f"parameters differ: {ours.keys() ^ theirs.keys()}"
    least = NOTHING * max(t.norm().item() for t in theirs.values())
    worst_cosine, worst_norm = 1.0, 0.0
    for name, wanted in theirs.items():
        found = ours[name]
        assert found.shape == wanted.shape, f"{name}: wanted {wanted.shape}, found {found.shape}"
        if wanted.norm() <= least:
            assert found.norm() <= 2 * least, f"{name}: wanted no gradient, found a norm of {found.norm():.2e}"
            continue
        worst_cosine = min(worst_cosine, cosine(found, wanted))
        worst_norm = max(worst_norm, abs(found.norm() / wanted.norm() - 1).item())
    return worst_cosine, worst_norm


def split_experts(tensors):
    """Experts that transformers keeps in one tensor as its files have them: a tensor each."""
    split = {}
    for name, t in tensors.items():
        if name.endswith(".experts.gate_up_proj"):
            for e, (gate, up) in enumerate(one.chunk(2) for one in t):
                prefix = f"{name.removesuffix('gate_up_proj')}{e}."
                split |= {f"{prefix}gate_proj.weight": gate, f"{prefix}up_proj.weight": up}
        elif name.endswith(".experts.down_proj"):
            split |= {f"{name.removesuffix('down_proj')}{e}.down_proj.weight": one for e, one in enumerate(t)}
        else:
            split[name] = t
    return split


def balance_loss(model, result):
    """What transformers adds to the loss of a model with experts; 0 when it does not."""
    aux = getattr(result, "aux_loss", None)
    return 0.0 if aux is None else model.config.router_aux_loss_coef * aux


def check_routing(ours, model, inputs):
    """Rows of each expert in each layer, and the loss that balances them."""
    rows, balance = ours.pop("expert_rows"), ours.pop("balance_loss").item()
    with torch.no_grad():
        out = model(inputs, output_router_logits=True)
    config = model.config
    wanted = [torch.bincount(logits.topk(config.num_experts_per_tok).indices.flatten(), minlength=config.num_experts)
              for logits in out.router_logits]
    assert torch.equal(rows.long(), torch.cat(wanted)), "rows of experts differ"
    assert abs(balance - out.aux_loss.item()) < LOSS_DIFF, f"balance loss: wanted {out.aux_loss}, found {balance}"


def check_gradients(folder, model, length, *options, masked=0.0, rows=3):
    """Logits, loss and the gradient of every parameter of the mean loss over random tokens; `masked` of the targets are
    not in the loss. `folder` holds what `model` was saved as."""
    vocab = model.config.vocab_size
    generator = torch.Generator().manual_seed(length)
    inputs, targets = torch.randint(0, vocab, (2, rows, length), dtype=torch.int32, generator=generator).unbind()
    targets = torch.where(torch.rand(rows, length, generator=generator) < masked, -1, targets)
    targets[0, 0] = 0  # at least one is in the loss
    out = folder.parent / "-".join(["check", folder.name, str(length), *options])
    out.mkdir()
    save_batch(out / "batch.safetensors", inputs, targets)
    tool("check", folder, out / "batch.safetensors", out, *options)

    result = model(inputs.long())
    logits = result.logits
    model.zero_grad()
    loss = F.cross_entropy(logits.flatten(0, 1), targets.flatten().long(), ignore_index=-1)
    (loss + balance_loss(model, result)).backward()
    ours = load_file(out / "gradients.safetensors")
    if "expert_rows" in ours:
        check_routing(ours, model, inputs.long())
    diff = (load_file(out / "logits.safetensors")["logits"] - logits.detach().flatten(0, 1)).abs().max().item()
    assert abs(ours.pop("loss").item() - loss.item()) < LOSS_DIFF
    theirs = split_experts({name: p.grad for name, p in model.named_parameters()})
    check_round_trip(folder, out / "model", model, inputs.long())
    return Agreement(diff, *compare_gradients(ours, theirs), logits.std().item(), len(theirs))
