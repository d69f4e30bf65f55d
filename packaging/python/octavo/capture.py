"""Saves what the linear layers of a PyTorch model compute with in one step, for `octavo diagnose --capture FOLDER`.

Three lines in a script, around one forward and backward pass:

    from octavo.capture import capture
    with capture(model, "captured"):
        model(**batch).loss.backward()

or none, for a script whose optimizer is one of torch.optim:

    python -m octavo.capture --step 10 --output captured train.py --its arguments

FOLDER gets capture.json and a safetensors file for each layer: input [tokens, inputs], weight [outputs, inputs] and the gradient of
the output [tokens, outputs], in the dtypes that the model has them in. Of large ones rows are sampled: `rows` tokens and `rows`
outputs, in whole groups of 128 so that blocks of 32 and 128 stay together, the groups spread evenly and always with those that hold
the largest magnitude, so that scales of whole tensors stay what they are. The same step gives the same rows.

Hooks exist in the captured step alone; no attribute of the model is replaced. Needs torch (2.2 or newer) and nothing else, so this
file also works by itself, copied beside a script. Of several ranks the first saves, its own shards.
"""
import argparse
import contextlib
import ctypes
import datetime
import json
import os
import re
import runpy
import struct
import sys

GROUP = 128
ROWS = 512
LEAST_ROWS = 2 * GROUP  # two groups of tokens, and of outputs, may have to be there
MANIFEST = "capture.json"
SAMPLING = ("groups of 128 consecutive rows, evenly spaced, and always those with the largest magnitude of the input, the weight "
            "and the gradient")
DTYPES = {"float64": "F64", "float32": "F32", "float16": "F16", "bfloat16": "BF16"}
PLAIN_NAME = re.compile(r"[A-Za-z0-9_.-]{1,512}")  # a filter that is pasted into a program has these names in it
# Linear layers by the names of their classes, or of those that they derive from: torch's and Transformer Engine's, and Megatron's; and
# the attributes that have the weight's sizes.
LINEAR = {"Linear", "LayerNormLinear", "ColumnParallelLinear", "RowParallelLinear"}
SIZES = (("out_features", "in_features"), ("output_size_per_partition", "input_size"), ("output_size", "input_size_per_partition"))
WRAPPERS = {"_orig_mod", "_fsdp_wrapped_module", "_checkpoint_wrapped_module"}


def _say(text):
    print(f"octavo.capture: {text}", file=sys.stderr)


def _keeper():
    """A tensor in the care of autograd: activation checkpointing and offloading do with it as with the layer's own input, so that
    holding it costs no memory that they had saved. The node is in no graph: its one other input is a leaf of its own."""
    import torch

    class Keep(torch.autograd.Function):
        @staticmethod
        def forward(ctx, leaf, kept):
            ctx.save_for_backward(kept)
            return leaf.clone()

        @staticmethod
        def backward(ctx, gradient):
            return gradient, None

    return lambda tensor: Keep.apply(torch.zeros((), requires_grad=True), tensor.detach()).grad_fn


def _unwrapped(model):
    """The model inside DistributedDataParallel, torch.compile and the like."""
    while True:
        children = dict(model.named_children())
        if len(children) != 1 or not (set(children) <= WRAPPERS | {"module"}):
            return model
        model = next(iter(children.values()))


def _plain_name(name):
    return ".".join(part for part in name.split(".") if part not in WRAPPERS)


def _layout(module):
    """How a linear layer stores its weight, out_in or in_out (Conv1D of GPT-2); None: not a linear layer."""
    import torch
    weight = getattr(module, "weight", None)
    if not torch.is_tensor(weight) or weight.dim() != 2 or isinstance(module, torch.nn.Embedding):
        return None
    if type(module).__name__ == "Conv1D" and getattr(module, "nf", None) == weight.shape[1]:
        return "in_out"
    known = isinstance(module, torch.nn.Linear) or any(kind.__name__ in LINEAR for kind in type(module).__mro__)
    fits = any(tuple(weight.shape) == (getattr(module, rows, None), getattr(module, columns, None)) for rows, columns in SIZES)
    return "out_in" if known and fits else None


def _local(tensor):
    return tensor.detach().to_local() if hasattr(tensor, "to_local") else tensor.detach()


def _normed(module, x):
    """The input of a GEMM whose module begins with a norm, as Transformer Engine's LayerNormLinear does; any other as it is."""
    import torch
    if getattr(module, "layer_norm_weight", None) is None:
        return x
    shift = getattr(module, "layer_norm_bias", None)
    values = x.float()
    if module.normalization == "LayerNorm":
        values = values - values.mean(-1, keepdim=True)
    gain = _local(module.layer_norm_weight).float() + (1 if module.zero_centered_gamma else 0)
    values = values * torch.rsqrt(values.square().mean(-1, keepdim=True) + module.eps) * gain
    return (values if shift is None else values + _local(shift).float()).to(x.dtype)


def _groups_of_peak(tensor):
    """The groups of rows and of columns in which the largest magnitude is."""
    import torch
    row = int(torch.maximum(tensor.amax(1), -tensor.amin(1)).argmax())  # without a copy of the whole
    return row // GROUP, int(tensor[row].abs().argmax()) // GROUP


def _chosen(size, most, peaks):
    """The groups to keep of `size` rows, at most `most` of these (0: all)."""
    groups, wanted = -(-size // GROUP), most // GROUP
    if most == 0 or groups <= wanted:
        return list(range(groups))
    chosen = set(peaks)
    for i in range(wanted):
        if len(chosen) < wanted:
            chosen.add((2 * i + 1) * groups // (2 * wanted))
    return sorted(chosen)


def _rows_of(groups, size, device):
    import torch
    return torch.cat([torch.arange(g * GROUP, min((g + 1) * GROUP, size), device=device) for g in groups])


def write_safetensors(path, tensors):
    """{name: tensor}, by hand: the format is a length, a JSON header and the bytes."""
    header, offset = {}, 0
    for name, tensor in tensors.items():
        end = offset + tensor.numel() * tensor.element_size()
        dtype = DTYPES[str(tensor.dtype).removeprefix("torch.")]
        header[name] = {"dtype": dtype, "shape": list(tensor.shape), "data_offsets": [offset, end]}
        offset = end
    text = json.dumps(header).encode()
    text += b" " * (-(8 + len(text)) % 64)
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        for tensor in tensors.values():
            bytes_of = ctypes.c_char * (tensor.numel() * tensor.element_size())
            file.write(bytes_of.from_address(tensor.data_ptr()))


class Capture:
    """start() puts the hooks in place, finish() takes them away and writes the manifest. `capture` below does both."""

    def __init__(self, model, folder, rows=ROWS, step=None):
        if rows != 0 and (rows < LEAST_ROWS or rows % GROUP != 0):
            raise ValueError(f"octavo.capture: wanted rows as a multiple of {GROUP} from {LEAST_ROWS} on, or 0 for all, found {rows}")
        self.model, self.folder, self.rows, self.step = _unwrapped(model), os.fspath(folder), rows, step
        self.layers, self.left_out, self.handles, self.stance, self.running = {}, {}, [], None, False
        self.writes = int(os.environ.get("RANK", "0")) == 0
        if self.writes and os.path.exists(os.path.join(self.folder, MANIFEST)):
            raise FileExistsError(f"octavo.capture: {self.folder} has a capture already; name another folder, or remove it")

    def start(self):
        import torch
        self.running, self.keep = True, _keeper()
        # Compiled code would pass by the hooks: this step runs as if nothing were compiled.
        if "torch._dynamo" in sys.modules and hasattr(torch.compiler, "set_stance"):
            self.stance = torch.compiler.set_stance("force_eager")
        if not self.writes:
            return self
        os.makedirs(self.folder, exist_ok=True)
        self.owners = {id(p): name for name, p in self.model.named_parameters()}
        for raw, module in self.model.named_modules():
            self._consider(_plain_name(raw), raw, module)
        if not self.layers:
            self.remove()
            raise RuntimeError(f"octavo.capture: {type(self.model).__name__} has no linear layer to capture{self._reasons()}")
        return self

    def _consider(self, name, raw, module):
        import torch
        layout = _layout(module)
        own = {key: p for key, p in module.named_parameters(recurse=False) if p.dim() >= 2}
        if layout is None:
            if own and not isinstance(module, torch.nn.Embedding):
                self.left_out[name or "(the model itself)"] = f"a {type(module).__name__}, which is not a plain linear layer"
            return
        dtype = str(module.weight.dtype).removeprefix("torch.")
        name = name or "model"
        if dtype not in DTYPES:
            self.left_out[name] = f"its weight is stored as {dtype}"
        elif not PLAIN_NAME.fullmatch(name):
            self.left_out[name] = "its name has other characters than letters, digits and _ . -"
        else:
            weight = f"{raw}.weight" if raw else "weight"
            owner = self.owners.get(id(module.weight), weight)
            self.layers[name] = {"name": name, "class": type(module).__name__, "layout": layout, "calls": 0,
                                 "tied_to": None if owner == weight else _plain_name(owner), "file": None}
            hook = module.register_forward_hook(
                lambda m, given, named, output, layer=self.layers[name]: self._on_output(layer, m, given, named, output), with_kwargs=True)
            self.handles.append(hook)

    def _on_output(self, layer, module, given, named, output):
        import torch
        y = output[0] if isinstance(output, tuple) else output
        x = given[0] if given else next(iter(named.values()), None)
        # The first pass of reentrant checkpointing has no gradients: its second comes here again.
        if not (torch.is_tensor(x) and torch.is_tensor(y) and y.requires_grad):
            return
        kept = self.keep(x)
        y.register_hook(lambda gradient: self._on_gradient(layer, module, kept, gradient))

    def _on_gradient(self, layer, module, kept, gradient):
        if not self.running:
            return
        layer["calls"] += 1
        if layer["file"] is not None or layer["name"] in self.left_out:
            return
        try:  # whatever goes wrong here must not end a training run; it is said at the end
            self._save(layer, module, kept.saved_tensors[0], gradient)
        except Exception as error:
            self.left_out[layer["name"]] = f"{type(error).__name__}: {error}"[:300]

    def _save(self, layer, module, x, gradient):
        import torch
        with torch.no_grad():
            w = _local(module.weight)
            w = w.t() if layer["layout"] == "in_out" else w
            outputs, inputs = w.shape
            x, dy = _normed(module, _local(x)).reshape(-1, inputs), _local(gradient).reshape(-1, outputs)
            tokens = x.shape[0]
            if dy.shape[0] != tokens or tokens == 0:
                raise ValueError(f"{tokens} rows of input, {dy.shape[0]} of gradient")
            in_dy = _groups_of_peak(dy)
            of_tokens = _chosen(tokens, self.rows, [_groups_of_peak(x)[0], in_dy[0]])
            of_outputs = _chosen(outputs, self.rows, [_groups_of_peak(w)[0], in_dy[1]])
            rows, columns = _rows_of(of_tokens, tokens, x.device), _rows_of(of_outputs, outputs, w.device)
            saved = {"input": x.index_select(0, rows), "weight": w.index_select(0, columns),
                     "gradient": dy.index_select(0, rows).index_select(1, columns)}
            name = f"layer-{list(self.layers).index(layer['name']):05d}.safetensors"
            write_safetensors(os.path.join(self.folder, name), {key: t.contiguous().cpu() for key, t in saved.items()})
        layer |= {"outputs": outputs, "inputs": inputs, "tokens": tokens, "trainable": module.weight.requires_grad,
                  "token_groups": of_tokens, "output_groups": of_outputs, "file": name}

    def remove(self):
        self.running = False
        for handle in self.handles:
            handle.remove()
        self.handles = []
        if self.stance is not None:
            self.stance.__exit__(None, None, None)
            self.stance = None

    def _reasons(self):
        return "".join(f"\n  {name}: {why}" for name, why in list(self.left_out.items())[:20])

    def finish(self):
        """The folder's manifest; {} on ranks that do not save."""
        self.remove()
        if not self.writes:
            return {}
        import torch
        taken = [layer for layer in self.layers.values() if layer["file"] is not None]
        for layer in self.layers.values():
            if layer["file"] is None:
                self.left_out.setdefault(layer["name"], "no gradient came to its output in this step")
        if not taken:
            raise RuntimeError("octavo.capture: no layer was captured; the backward pass must be inside, too" + self._reasons())
        manifest = {"format": "octavo-capture", "version": 1, "model": type(self.model).__name__, "torch": torch.__version__,
                    "created": datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds"), "step": self.step,
                    "sampling": {"rows": self.rows, "group": GROUP, "rule": SAMPLING}, "layers": taken,
                    "not_captured": [{"name": name, "why": why} for name, why in self.left_out.items()]}
        path = os.path.join(self.folder, MANIFEST)
        with open(path + ".part", "w") as file:
            json.dump(manifest, file, indent=1)
        os.replace(path + ".part", path)
        size = sum(os.path.getsize(os.path.join(self.folder, layer["file"])) for layer in taken)
        _say(f"{len(taken)} linear layers of {manifest['model']} in {self.folder} ({size / 1e6:.1f} MB)"
             + (f", {len(self.left_out)} left out:{self._reasons()}" if self.left_out else ""))
        _say(f"next: octavo diagnose --capture {self.folder}")
        return manifest


@contextlib.contextmanager
def capture(model, folder, rows=ROWS, step=None):
    """Captures what runs forward and backward inside. `rows`: of tokens and of outputs at most; 0: all."""
    running = Capture(model, folder, rows, step).start()
    try:
        yield running
    except BaseException:
        running.remove()
        raise
    running.finish()


class _Watch:
    """Captures one step of a script: the first module with linear layers that is called in training mode is its model, and a step
    is one of the first optimizer that steps."""

    def __init__(self, options):
        self.options, self.steps, self.optimizer, self.finder, self.running, self.done = options, 0, None, None, None, False

    def start(self):
        from torch.optim.optimizer import register_optimizer_step_post_hook, register_optimizer_step_pre_hook
        register_optimizer_step_pre_hook(self.before_step)
        register_optimizer_step_post_hook(self.after_step)
        if self.options.step == 1:
            self.look_for_model()

    def look_for_model(self):
        from torch.nn.modules.module import register_module_forward_pre_hook
        self.finder = register_module_forward_pre_hook(self.on_call)

    def on_call(self, module, _):
        import torch
        if not (module.training and torch.is_grad_enabled() and any(p.requires_grad for p in module.parameters())):
            return
        if not any(_layout(part) for part in module.modules()):
            return
        self.finder.remove()
        self.finder = None
        _say(f"step {self.options.step}: hooks on {type(_unwrapped(module)).__name__}")
        self.running = Capture(module, self.options.output, self.options.rows, self.options.step).start()

    def before_step(self, optimizer, *_):
        self.optimizer = optimizer if self.optimizer is None else self.optimizer
        if optimizer is self.optimizer and self.running is not None:
            self.end()
            if self.options.stop:
                raise SystemExit(0)

    def after_step(self, optimizer, *_):
        if optimizer is not self.optimizer:
            return
        self.steps += 1
        if self.steps == self.options.step - 1:
            self.look_for_model()

    def end(self):
        """The captured step is over. What counts steps stays: torch goes through the list of such hooks just now."""
        running, self.running, self.done = self.running, None, True
        running.finish()


def main():
    parser = argparse.ArgumentParser(
        prog="python -m octavo.capture", formatter_class=argparse.RawDescriptionHelpFormatter,
        usage="%(prog)s [--step N] [--output FOLDER] [--rows N] [--stop] SCRIPT.py [ARGUMENT…]",
        description=__doc__, epilog="Ranks: torchrun -m octavo.capture --step 10 train.py")
    parser.add_argument("--step", type=int, default=1, metavar="N", help="the optimizer step to capture, counted from 1 (1)")
    parser.add_argument("--output", default="captured", metavar="FOLDER", help="where to (captured)")
    parser.add_argument("--rows", type=int, default=ROWS, metavar="N", help=f"tokens and outputs kept of a layer, at most; 0: all ({ROWS})")
    parser.add_argument("--stop", action="store_true", help="end the script after that step's backward pass, before the update")
    parser.add_argument("-m", dest="module", action="store_true", help="SCRIPT.py is the name of a module instead")
    parser.add_argument("script", metavar="SCRIPT.py")
    parser.add_argument("arguments", nargs=argparse.REMAINDER)
    options = parser.parse_args()
    if options.step < 1:
        parser.error(f"wanted --step from 1 on, found {options.step}")
    watch = _Watch(options)
    watch.start()
    sys.argv = [options.script, *options.arguments]
    if options.module:
        sys.path.insert(0, os.getcwd())
        runpy.run_module(options.script, run_name="__main__", alter_sys=True)
    else:
        sys.path.insert(0, os.path.dirname(os.path.abspath(options.script)))
        runpy.run_path(options.script, run_name="__main__")
    if watch.running is not None:
        watch.end()
    elif not watch.done:
        sys.exit(f"octavo.capture: wanted step {options.step}, found a script of {watch.steps} optimizer steps in which no model in "
                 "training mode was called for it; name an earlier --step, or use the three lines")


if __name__ == "__main__":
    main()
