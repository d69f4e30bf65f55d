"""The PyTorch side of bench/gpu_bytes.py: one eager training step of Llama's shape on the fake CUDA device, and every
operation of it with its tensors, as `step_bench operations` prints them.

usage: pytorch_llama_operations.py KIND CONFIG.json BATCH LENGTH
KIND: eager (as torchtitan writes the model: nn.RMSNorm, complex RoPE; BF16 by autocast, as bench/host_cost.py has it),
      weights (the same with weights in BF16 and no autocast), transformers (LlamaForCausalLM, autocast),
      torchao (eager with FP8 linear layers of torchao, one scale per tensor)
"""
import json
import pathlib
import sys

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils._python_dispatch import TorchDispatchMode

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "tests" / "integration"))
import fake_cuda

WORK = ("launches", "gemms", "copies_on_device", "memsets")


class Block(nn.Module):
    def __init__(self, c):
        super().__init__()
        width, dim = c["hidden_size"], c["head_dim"]
        self.heads, self.kv_heads, self.dim = c["num_attention_heads"], c["num_key_value_heads"], dim

        def linear(inputs, outputs):
            return nn.Linear(inputs, outputs, bias=False)

        self.attention_norm, self.mlp_norm = (nn.RMSNorm(width, c["rms_norm_eps"]) for _ in range(2))
        self.wq, self.wk, self.wv = (linear(width, n * dim) for n in (self.heads, self.kv_heads, self.kv_heads))
        self.wo = linear(self.heads * dim, width)
        self.gate, self.up = (linear(width, c["intermediate_size"]) for _ in range(2))
        self.down = linear(c["intermediate_size"], width)

    def rotated(self, x, angles):
        pairs = torch.view_as_complex(x.float().reshape(*x.shape[:-1], -1, 2))
        return torch.view_as_real(pairs * angles).flatten(3).type_as(x)

    def forward(self, x, angles):
        rows, length, _ = x.shape
        h = self.attention_norm(x)
        q, k, v = (w(h).view(rows, length, -1, self.dim) for w in (self.wq, self.wk, self.wv))
        q, k = self.rotated(q, angles), self.rotated(k, angles)
        a = F.scaled_dot_product_attention(q.transpose(1, 2), k.transpose(1, 2), v.transpose(1, 2), is_causal=True,
                                           enable_gqa=True)
        x = x + self.wo(a.transpose(1, 2).reshape(rows, length, -1))
        h = self.mlp_norm(x)
        return x + self.down(F.silu(self.gate(h)) * self.up(h))


class Llama(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.dim, self.theta = c["head_dim"], c["rope_theta"]
        self.tokens = nn.Embedding(c["vocab_size"], c["hidden_size"])
        self.blocks = nn.ModuleList(Block(c) for _ in range(c["num_hidden_layers"]))
        self.norm = nn.RMSNorm(c["hidden_size"], c["rms_norm_eps"])
        self.head = nn.Linear(c["hidden_size"], c["vocab_size"], bias=False)

    def set_angles(self, length):
        steps = torch.arange(length, dtype=torch.float)
        frequencies = 1 / self.theta ** (torch.arange(0, self.dim, 2, dtype=torch.float) / self.dim)
        turns = torch.outer(steps, frequencies)
        self.angles = torch.polar(torch.ones_like(turns), turns)[None, :, None, :].cuda()

    def forward(self, ids, labels):
        x = self.tokens(ids)
        for block in self.blocks:
            x = block(x, self.angles)
        return F.cross_entropy(self.head(self.norm(x)).flatten(0, 1).float(), labels.flatten())


def work():
    counts = fake_cuda.counters()
    return sum(counts[name] for name in WORK)


def tensors_of(value):
    if isinstance(value, torch.Tensor):
        return [value] if value.is_cuda else []
    if isinstance(value, (list, tuple)):
        return [t for item in value for t in tensors_of(item)]
    return []


def described(argument, role, t):
    return {"argument": argument, "role": role, "sizes": list(t.shape), "strides": list(t.stride()), "item": t.element_size()}


class OperationLog(TorchDispatchMode):
    def __init__(self):
        super().__init__()
        self.operations, self.attributed = [], 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        before = work()
        result = func(*args, **kwargs)
        own = work() - before
        if own:
            self.note(func, args, kwargs, result, own)
        return result

    def note(self, func, args, kwargs, result, own):
        tensors, written = [], set()
        for i, argument in enumerate(func._schema.arguments):
            value = args[i] if i < len(args) else kwargs.get(argument.name)
            writes = argument.alias_info is not None and argument.alias_info.is_write
            for t in tensors_of(value):
                tensors.append(described(argument.name, ("w" if argument.kwarg_only else "rw") if writes else "r", t))
                if writes:
                    written.add(id(t))
        tensors += [described("result", "w", t) for t in tensors_of(result) if id(t) not in written]
        self.operations.append({"name": func._schema.name, "work": own, "inside": [], "tensors": tensors})
        self.attributed += own


def make(kind, config, length):
    if kind == "transformers":
        from transformers import LlamaConfig, LlamaForCausalLM
        with torch.device("cuda"):
            model = LlamaForCausalLM(LlamaConfig(**config, attn_implementation="sdpa", use_cache=False))
        return lambda ids: model(input_ids=ids, labels=ids, use_cache=False).loss, model
    with torch.device("cuda"):
        model = Llama(config)
    model.set_angles(length)
    if kind == "weights":
        model.to(torch.bfloat16)
    if kind == "torchao":
        from torchao.float8 import convert_to_float8_training
        convert_to_float8_training(model, module_filter_fn=lambda m, name: name != "head")
    return lambda ids: model(ids, ids), model


def main():
    kind, config, batch, length = sys.argv[1], json.loads(pathlib.Path(sys.argv[2]).read_text()), *map(int, sys.argv[3:5])
    torch.backends.cuda.enable_cudnn_sdp(False)  # cuDNN does not start without a device; flash attention does
    loss_of, model = make(kind, config, length)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4, fused=True)
    host = torch.zeros(batch, length, dtype=torch.long).pin_memory()

    def step():
        ids = host.to("cuda", non_blocking=True)
        with torch.autocast("cuda", torch.bfloat16, enabled=kind != "weights"):
            loss = loss_of(ids)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        return loss.item()

    step()
    log = OperationLog()
    before = work()
    with log:
        step()
    print(json.dumps({"operations": log.operations, "unattributed": work() - before - log.attributed}))


if __name__ == "__main__":
    main()
