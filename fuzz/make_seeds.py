"""Makes the seeds of every target: small sound files of the programs that usually write them, and of our own formats.

usage: make_seeds.py FOLDER    writes FOLDER/TARGET/NAME
"""
import gzip
import json
import pathlib
import sqlite3
import struct
import sys
import tempfile

import numpy
import pyarrow
import pyarrow.ipc
import pyarrow.parquet
import safetensors.numpy
import tokenizers
import xxhash

HASH = "0123456789abcdef" * 2
FINGERPRINT = xxhash.xxh3_128_hexdigest(b"fuzz").encode()  # of the tokenizer, as fuzz/shard.cpp has it


def safetensors_seeds():
    arrays = {"wte.weight": numpy.ones((2, 3), numpy.float32), "h.0.b": numpy.zeros(4, numpy.float16),
              "steps": numpy.array(7, numpy.int64), "flags": numpy.array([True, False])}
    yield "plain", safetensors.numpy.save(arrays)
    yield "metadata", safetensors.numpy.save(arrays, {"format": "pt", "note": "é"})
    yield "empty", safetensors.numpy.save({"nothing": numpy.zeros((0, 5), numpy.float32)})
    header = json.dumps({"a": {"dtype": "F8_E4M3", "shape": [2, 2], "data_offsets": [0, 4]},
                         "b": {"dtype": "BF16", "shape": [1], "data_offsets": [4, 6]}}).encode()
    yield "fp8", struct.pack("<Q", len(header)) + header + bytes(6)


def jinja_seeds():
    yield "chatml", "{% for m in messages %}{{ '<|im_start|>' + m['role'] + '\\n' + m.content|trim }}{% endfor %}{{ eos_token }}"
    yield "namespace", "{%- set ns = namespace(n=0) -%}{% for k, v in d.items() if v %}{% set ns.n = ns.n + 1 %}{{ loop.index0 ~ k }}{% else %}-{% endfor %}{{ ns.n }}"
    yield "macro", "{% macro m(a, b='c') %}{{ caller(a) }}{{ b|upper }}{% endmacro %}{% call(x) m(1) %}{{ x }}{% endcall %}"
    yield "filters", "{{ l|sort|join(', ') }}{{ messages|selectattr('role', 'equalto', 'user')|map(attribute='content')|list|tojson(indent=2) }}"
    yield "text", "{{ 'a b'.split(' ')[-1][::-1].title() ~ '%s %05.2f' % ('x', 1.5) ~ '{} {}'.format(1, 2) }}{{ s|replace('e', 'E')|indent(2, true) }}"
    yield "blocks", "{% set x %}a{% endset %}{% filter upper %}{{ x }}{% endfilter %}{% with y = 2 %}{{ y ** 3 // 2 }}{% endwith %}{% raw %}{{{% endraw %}{# c #}"
    yield "generation", "{% generation %}{{ messages[0].content if messages is defined and messages is not none else 'x' }}{% endgeneration %}\n"
    yield "loops", "{% for i in range(9) %}{% if i is even %}{% continue %}{% elif i > 5 %}{% break %}{% endif %}{{- loop.previtem|default('-') }}{% endfor %}"


def model_index_seeds():
    first, second = "model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors"
    weights = {"a": first, "b": first, "c": second}
    yield "whole", json.dumps({"metadata": {"total_size": 48}, "weight_map": weights})
    yield "part", json.dumps({"weight_map": {"a": first}})
    yield "twice", json.dumps({"weight_map": {"a": first, "b": first, "c": "again.safetensors"}})
    yield from (("config", "C{}"), ("list", "C[]"), ("no_weights", "N{}"))
    yield "wrong", json.dumps({"weight_map": {"a": second, "b": "../x.safetensors"}})


def model_config_seeds():
    llama = {"model_type": "llama", "architectures": ["LlamaForCausalLM"], "num_hidden_layers": 2, "hidden_size": 64,
             "intermediate_size": 128, "num_attention_heads": 4, "num_key_value_heads": 2, "vocab_size": 256,
             "max_position_embeddings": 128, "rms_norm_eps": 1e-5, "hidden_act": "silu", "tie_word_embeddings": True,
             "attention_bias": False, "mlp_bias": False, "rope_theta": 10000.0, "torch_dtype": "bfloat16"}
    rope = {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
            "original_max_position_embeddings": 8192}
    yield "llama", json.dumps(llama)
    yield "llama3", json.dumps(llama | {"rope_scaling": rope, "head_dim": 16, "pretraining_tp": 1})
    yield "llama5", json.dumps(llama | {"rope_parameters": rope | {"rope_theta": 5e5}})
    yield "qwen2", json.dumps(llama | {"model_type": "qwen2", "use_sliding_window": False, "sliding_window": None,
                                       "max_window_layers": 2, "layer_types": ["full_attention"] * 2})
    yield "mistral", json.dumps(llama | {"model_type": "mistral", "sliding_window": 64})
    yield "gpt2", json.dumps({"model_type": "gpt2", "n_layer": 2, "n_head": 2, "n_embd": 64, "vocab_size": 256,
                              "n_positions": 64, "layer_norm_epsilon": 1e-5, "activation_function": "gelu_new",
                              "scale_attn_weights": True, "n_ctx": 64, "reorder_and_upcast_attn": False})


def tokenizer_file(pre, normalizer=None, post=None, trained=True):
    made = tokenizers.Tokenizer(tokenizers.models.BPE())
    made.normalizer, made.pre_tokenizer = normalizer, pre
    made.decoder = tokenizers.decoders.ByteLevel()
    trainer = tokenizers.trainers.BpeTrainer(
        vocab_size=300 if trained else 260, special_tokens=["<|endoftext|>", "<|im_start|>"], show_progress=False,
        initial_alphabet=tokenizers.pre_tokenizers.ByteLevel.alphabet() if trained else [])
    made.train_from_iterator(["the theme of the thesis then 123 é", "in the inn"] * 4, trainer)
    if post:
        made.post_processor = post(made)
    return made.to_str()


def tokenizer_seeds():
    byte_level = tokenizers.pre_tokenizers.ByteLevel
    split = tokenizers.pre_tokenizers.Split
    text = "\n====\nThe theme 123 of\tcafé\u0301 <|endoftext|>!\n"
    patterned = lambda pattern: tokenizers.pre_tokenizers.Sequence(
        [split(tokenizers.Regex(pattern), "isolated"), byte_level(add_prefix_space=False, use_regex=False)])
    yield "gpt2", tokenizer_file(byte_level(add_prefix_space=False)) + text
    yield "prefix", tokenizer_file(byte_level(add_prefix_space=True)) + text
    yield "digits", tokenizer_file(tokenizers.pre_tokenizers.Sequence(
        [tokenizers.pre_tokenizers.Digits(individual_digits=True), byte_level(add_prefix_space=False)])) + text
    yield "nfc", tokenizer_file(byte_level(add_prefix_space=False), tokenizers.normalizers.NFC()) + text
    yield "regex", tokenizer_file(patterned(r"\p{Lu}?\p{Ll}+|\d{1,3}|[^\s\p{L}]+(?!\S)|\s+")) + text
    yield "regex2", tokenizer_file(patterned(r"(?i:'s|'t)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}|\s*[\r\n]+|\s+"),
                                   trained=False) + text
    yield "template", tokenizer_file(
        byte_level(add_prefix_space=False), None, lambda made: tokenizers.processors.TemplateProcessing(
            single="<|im_start|> $A", special_tokens=[("<|im_start|>", made.token_to_id("<|im_start|>"))])) + text
    # A small one by hand: a vocabulary of a few bytes is soon mutated into all that may be wrong with one.
    small = {"added_tokens": [{"id": 6, "content": "</s>", "single_word": True, "lstrip": True, "rstrip": True,
                               "normalized": True, "special": True}],
             "normalizer": {"type": "Sequence", "normalizers": [{"type": "NFC"}]},
             "pre_tokenizer": {"type": "Sequence", "pretokenizers": [
                 {"type": "Split", "pattern": {"Regex": "a+|b"}, "behavior": "Isolated", "invert": False},
                 {"type": "Digits", "individual_digits": False},
                 {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": True, "use_regex": False}]},
             "post_processor": {"type": "Sequence", "processors": [
                 {"type": "ByteLevel"},
                 {"type": "TemplateProcessing", "single": [{"SpecialToken": {"id": "</s>", "type_id": 0}},
                                                           {"Sequence": {"id": "A", "type_id": 0}}], "pair": [],
                  "special_tokens": {"</s>": {"id": "</s>", "ids": [6], "tokens": ["</s>"]}}}]},
             "decoder": {"type": "ByteLevel"},
             "model": {"type": "BPE", "dropout": None, "unk_token": None, "ignore_merges": True, "byte_fallback": False,
                       "vocab": {"a": 0, "b": 1, "Ġ": 2, "ab": 3, "aa": 4, "aaaa": 5},
                       "merges": ["a b", ["a", "a"], "aa aa"]}}
    yield "small", json.dumps(small) + "\n====\naab baaaa </s>"
    for i, pattern in enumerate((r"\v|\x41|\x{1F600}|\u0042|\t", ".|[^.]", "(a|b)c", "(?=a)b", "(?<n>a)", "(*F)", r"\q", r"\x9", r"\x80",
                                 r"\p{Foo}", "a{2", "a{1,2}?b*+", "(?i:ab)|(?i:k)", "(?i:[a-z])", r"[a\-\]\d\p{L}]", "[[:alpha:]]",
                                 "[a&&b]", r"\.\|\(", "(?i:ss)", "a|", "\\")):
        small["pre_tokenizer"]["pretokenizers"][0]["pattern"]["Regex"] = pattern
        yield f"pattern{i}", json.dumps(small) + "\n====\naab"
    yield from fallback_seeds()


def fallback_file(**changes):
    """Of characters with byte fallback, as Llama 2's; small, by hand."""
    mark = "\u2581"
    vocab = [f"<0x{byte:02X}>" for byte in "\n\u00e9\u2581<".encode()] + ["<unk>", mark, "a", "b", mark + "a", "ab", mark + "ab", mark * 2]
    replace = lambda old, new: {"type": "Replace", "pattern": {"String": old}, "content": new}
    file = {"added_tokens": [{"id": 7, "content": "<unk>", "single_word": False, "lstrip": False, "rstrip": False, "normalized": False,
                              "special": True},
                             {"id": 300, "content": "[B ]", "single_word": False, "lstrip": True, "rstrip": True, "normalized": True,
                              "special": False}],
            "normalizer": {"type": "Sequence", "normalizers": [{"type": "Prepend", "prepend": mark}, replace(" ", mark)]},
            "pre_tokenizer": None,
            "decoder": {"type": "Sequence", "decoders": [replace(mark, " "), {"type": "ByteFallback"}, {"type": "Fuse"},
                                                         {"type": "Strip", "content": " ", "start": 1, "stop": 0}]},
            "model": {"type": "BPE", "unk_token": "<unk>", "fuse_unk": True, "byte_fallback": True,
                      "vocab": {token: i for i, token in enumerate(vocab)},
                      "merges": [[mark, "a"], ["a", "b"], [mark + "a", "b"], [mark, mark]]}}
    model = changes.pop("model", {})
    return json.dumps({**file, **changes, "model": {**file["model"], **model}}, ensure_ascii=False, separators=(",", ":"))


def fallback_seeds():
    text = "\n====\n  ab a\u2581b\n\u00e9<unk>[B ] <0x0A> "
    metaspace = lambda scheme, split: {"type": "Metaspace", "replacement": "\u2581", "prepend_scheme": scheme, "split": split}
    literal = lambda behavior: {"type": "Split", "pattern": {"String": "b"}, "behavior": behavior, "invert": behavior == "Contiguous"}
    yield "llama2", fallback_file() + text
    yield "mistral", fallback_file(normalizer=None, pre_tokenizer=metaspace("first", False)) + text
    yield "always", fallback_file(normalizer=None, pre_tokenizer=metaspace("always", True), decoder=metaspace("always", True)) + text
    yield "gemma", fallback_file(normalizer={"type": "Replace", "pattern": {"String": " "}, "content": "\u2581"},
                                 pre_tokenizer=literal("MergedWithPrevious")) + text
    yield "next", fallback_file(pre_tokenizer=literal("MergedWithNext"), model={"byte_fallback": False, "fuse_unk": False}) + text
    yield "contiguous", fallback_file(pre_tokenizer=literal("Contiguous"), model={"byte_fallback": False, "unk_token": None}) + text
    yield "normalizers", fallback_file(model={"ignore_merges": True}, normalizer={"type": "Sequence", "normalizers": [
        {"type": "NFC"}, {"type": "Lowercase"}, {"type": "Strip", "strip_left": True, "strip_right": True}]}) + text


def tokenizer_text_seeds():
    texts = {
        "english": "It's THE theme, isn't it?  123456 and\r\n\r\n  more   \n",
        "scripts": "Ünïcödé\u0301 e\u0301\u0323 漢字かな 한글 \u1100\u1161\u11a8 عربى ١٢٣ 🙂\u200d🙂 \u00a0\u3000x",
        "markers": "<|endoftext|> <a <ab <|im_start|>user\n  hi<|im_end|>",
        "runs": "a" * 70 + " " * 40 + "!" * 30 + "\n" * 10}
    for name, text in texts.items():
        for which in range(9):  # of the tokenizers
            yield f"{name}{which}", chr(which) + text
    yield "broken", b"\0ok \xc3\x28 \xed\xa0\x80 \xf4\x90\x80\x80"


def yaml_seeds():
    yield "train", ("model_name: gpt2\ndataset: 'input.txt'\nmax_steps: 100\nlearning_rate: 3e-4\nuse_fp8: true\n"
                    "batch_size: 8\nlora_target: [q_proj, v_proj]\n")
    yield "comments", "# a run\nmodel_name: \"custom\"   # ours\nn_layer: 2\nn_head: 2\nn_embd: 64\nseed: 0x10\n"
    yield "wrong", "base: &b {a: 1}\nother: *b\n---\nlist:\n  - 1\n  - [2]\ntext: |\n  two\n  lines\n? key\n: !!str v\n"


def sweep_seeds():
    yield "bayes", ("method: bayes\nmetric:\n  name: val/loss\n  goal: minimize\n  target: 1.5\nrun_cap: 20\n"
                    "parameters:\n  learning_rate:\n    distribution: log_uniform_values\n    min: 0.00001\n    max: 0.01\n"
                    "  batch_size:\n    values: [8, 16, 32]\n  seed:\n    value: 1\n  max_steps:\n    min: 10\n    max: 90\n"
                    "early_terminate:\n  type: hyperband\n  min_iter: 3\n  eta: 2\n  s: 2\n")
    yield "grid", "program: train.py\nname: g\nmethod: grid\nparameters:\n  weight_decay:\n    values: [0.0, 0.1]\n"
    yield "quantized", ("method: random\nparameters:\n  warmup_steps:\n    distribution: q_uniform\n    min: 0\n    max: 100\n"
                        "    q: 10\n  learning_rate:\n    distribution: normal\n    mu: 0.001\n    sigma: 0.0001\n")
    fields = {"probabilities": "values: [8, 16]\n    probabilities: [0.5, 0.5]", "sum": "values: [8, 16]\n    probabilities: [0.5, 2]",
              "share": "values: [8]\n    probabilities: [0.5]", "unread": "value: 8\n    q: 1", "step": "min: 1\n    max: 9\n    q: 0",
              "exponents": "distribution: log_uniform\n    min: -9\n    max: 1", "far": "distribution: log_uniform\n    min: 0\n    max: 999",
              "inverse": "distribution: inv_log_uniform\n    min: 1\n    max: 2", "zero": "distribution: log_uniform_values\n    min: 0\n    max: 1",
              "halves": "distribution: int_uniform\n    min: 0.5\n    max: 9", "q": "distribution: q_uniform\n    min: 1\n    max: 9\n    q: -1",
              "bell": "distribution: q_log_normal\n    mu: 1\n    sigma: 2\n    q: 1", "sigma": "mu: 1\n    sigma: -1"}
    for name, text in fields.items():
        for key in ("learning_rate", "batch_size", "model_name"):
            yield f"{name}-{key}", f"method: random\nparameters:\n  {key}:\n    {text}\n"


def import_seeds():
    yield "llamafactory", ("ymodel_name_or_path: meta-llama/Llama-3.2-1B\nstage: sft\ndo_train: true\nfinetuning_type: lora\n"
                           "lora_rank: 8\nlora_target: all\ndataset: alpaca_en_demo\ntemplate: llama3\ncutoff_len: 2048\n"
                           "per_device_train_batch_size: 1\ngradient_accumulation_steps: 8\nlearning_rate: 1.0e-4\n"
                           "num_train_epochs: 3.0\nlr_scheduler_type: cosine\nwarmup_ratio: 0.1\nbf16: true\nfp8: true\n"
                           "output_dir: saves/x\nlogging_steps: 10\nreport_to: [wandb, none]\nresume_from_checkpoint: null\n")
    yield "guide", "ymodel_name: gpt2\nuse_fp8: true\noptimizer:\n  params:\n    lr: 0.1\n"
    yield "deepspeed", "j" + json.dumps({
        "train_batch_size": "auto", "train_micro_batch_size_per_gpu": 4, "gradient_clipping": 1.0, "bf16": {"enabled": True},
        "zero_optimization": {"stage": 2, "overlap_comm": True, "reduce_bucket_size": 5e8, "offload_optimizer": {"device": "cpu"}},
        "optimizer": {"type": "AdamW", "params": {"lr": 3e-4, "betas": [0.9, 0.95], "eps": 1e-8}},
        "communication_data_type": "fp32", "steps_per_print": 10})
    yield "script", "sexport NCCL_DEBUG=INFO\nCUDA_VISIBLE_DEVICES=0,1 NVTE_FP8_DPA_BWD=1 python train.py\nWANDB_API_KEY=\"abc\"\n# x\n"


def import_programs_seeds():
    configs = pathlib.Path(__file__).resolve().parents[1] / "tests" / "conformance" / "foreign_configs"
    letters = {".toml": "t", ".py": "p", ".sh": "s", ".args": "a"}
    for path in sorted(configs.iterdir()):
        if path.suffix in letters:
            yield path.name, letters[path.suffix] + path.read_text()
    yield "toml", ("t[training]\nsteps = 300\n[x.y]\na = 0x1F\nb = [1, [2], {c = 3}]\nd = \"\"\"e\\\n f\"\"\"\n[[g]]\n"
                   "h = 1979-05-27\n")
    yield "python", ("pdef f():\n    return T.Config(training=A(steps=300), n=None, k={'a': [1, -2]})\n\ndef g():\n    c = f()\n"
                     "    c.training.steps = 400\n    for x in y:\n        pass\n    return c\n")
    yield "script", ("s#SBATCH --nodes=2\nN=2\nA=(--num-layers $N --hidden-size $((N * 32)) --num-attention-heads 2)\n"
                     "if [[ $N == 2 ]]; then A+=(\"--micro-batch-size ${M:-1}\"); fi\ntorchrun pretrain_gpt.py ${A[@]} --vocab-size 99\n")
    yield "yaml", "ymodel:\n  num_layers: 2\n  hidden_size: 64\n  num_attention_heads: 2\nmicro_batch_size: 1\nfp8: hybrid\n"


def table():
    return pyarrow.table({
        "text": ["one", "two é \"quoted\"\n", None, "four"], "id": pyarrow.array([1, 2, 3, None], pyarrow.int64()),
        "label": pyarrow.array(["a", "b", "a", "a"]).dictionary_encode(),
        "messages": [[{"role": "user", "content": "hi"}], [], None, [{"role": "assistant", "content": "yo"}] * 2]})


def parquet_seeds():
    """Every kind of column once; the codecs and encodings with two columns, which are read faster."""
    for name, options in (("plain", {"compression": "none"}), ("snappy", {"compression": "snappy"}),
                          ("zstd", {"compression": "zstd", "row_group_size": 2}),
                          ("gzip", {"compression": "gzip", "data_page_version": "2.0", "use_dictionary": False}),
                          ("delta", {"use_dictionary": False, "column_encoding": {"id": "DELTA_BINARY_PACKED"}})):
        chosen = table() if name == "plain" else table().select(["text", "id"])
        sink = pyarrow.BufferOutputStream()
        pyarrow.parquet.write_table(chosen, sink, **options)
        yield name, sink.getvalue().to_pybytes()


def arrow_seeds():
    for name, opened, options in (
            ("file", pyarrow.ipc.new_file, None), ("stream", pyarrow.ipc.new_stream, None),
            ("lz4", pyarrow.ipc.new_file, pyarrow.ipc.IpcWriteOptions(compression="lz4")),
            ("zstd", pyarrow.ipc.new_stream, pyarrow.ipc.IpcWriteOptions(compression="zstd"))):
        sink = pyarrow.BufferOutputStream()
        chosen = table().select(["text", "id"]) if options else table()
        with opened(sink, chosen.schema, options=options) as writer:
            for batch in chosen.to_batches(max_chunksize=3):
                writer.write_batch(batch)
        yield name, sink.getvalue().to_pybytes()
    views = pyarrow.table({"text": pyarrow.array(["short", "a string that is longer than twelve"], pyarrow.string_view()),
                           "large": pyarrow.array([["x"], ["y", "z"]], pyarrow.large_list(pyarrow.large_string()))})
    sink = pyarrow.BufferOutputStream()
    with pyarrow.ipc.new_stream(sink, views.schema) as writer:
        writer.write_table(views)
    yield "views", sink.getvalue().to_pybytes()


ROWS = [{"messages": [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Hi <|im_end|>"},
                      {"role": "assistant", "content": "Hello."}]},
        {"conversations": [{"from": "human", "value": "Q"}, {"from": "gpt", "value": "A"}]},
        {"instruction": "Add.", "input": "1 2", "output": "3"}, {"question": "Why?", "answer": "Because #### 4"},
        {"prompt": "P", "completion": "C"}, {"text": "plain \\ \u2028 text"}]


def json_rows_seeds():
    yield "array", json.dumps(ROWS[2:4], indent=1)
    yield "lines", "\n".join(map(json.dumps, ROWS[:2])) + "\n"
    yield "mark", "\ufeff[ ]"
    yield "texts", json.dumps(["one", {"text": "two"}, 3])


def chat_seeds():
    for i, row in enumerate(ROWS):
        yield f"row{i}", json.dumps(row)


def shard_seeds():
    def seed(tokens, width, documents, vocabulary, sample=0):
        data = b"".join(struct.pack("<H" if width == 2 else "<I", t) for t in tokens)
        padded = data + bytes(-len(data) % 8)
        tables = b"".join(struct.pack("<Q", d) for d in documents) + bytes(8 if data else 0)
        header = struct.pack("<8sIIQQQQ32sQQQ", b"OCTOKEN\n", 1, width, len(tokens), len(documents), 1 << 20, vocabulary,
                             FINGERPRINT, 0, 0, sample)
        return b"\0" + header.ljust(128, b"\0") + padded + tables
    yield "bytes", seed([1, 2, 3, 256, 5, 6, 7], 2, [0, 4], 257)
    yield "wide", seed([1, 70000, 3], 4, [0], 100000)
    yield "packed", seed([1 | 1 << 30, 2 | 1 << 31, 3, 4], 4, [0], 257, 2)
    yield "empty", seed([], 2, [], 257)
    for bit in range(7):  # in what the index differs, or which hash is wrong
        yield f"other{bit}", bytes([1 << bit]) + seed([1, 2, 3, 256, 5, 6, 7], 2, [0, 4], 257)[1:]


def dataset_index_seeds():
    shard = {"name": "train-00000.bin", "tokens": 8, "documents": 2, "bytes": 4136, "hash": HASH}
    index = {"format": "octavo-tokens", "version": 1, "fingerprint": HASH, "plan": "p",
             "tokenizer": {"name": "bytes", "fingerprint": "bytes", "vocab_size": 257}, "options": {},
             "sources": {"list": "sources.jsonl", "files": 1, "bytes": 10, "fingerprint": HASH},
             "splits": {"train": {"tokens": 8, "documents": 2, "shards": [shard]},
                        "val": {"tokens": 0, "documents": 0, "shards": []}}}
    yield "plain", json.dumps(index, indent=1)
    yield "packed", json.dumps(index | {"sample_length": 4, "splits": {"train": index["splits"]["train"] | {
        "shards": [shard | {"learned": 3, "padding": 1}]}}})


def manifest_seeds():
    entry = {"name": "model.safetensors", "size": 100, "hash": HASH, "tensors": 1, "tensor_hashes": {"a": HASH},
             "header_hash": HASH}
    manifest = {"version": 1, "step": 250, "tokens": 1000, "precision": "fp32", "recipe": "", "val_loss": 1.5,
                "created": "2026-01-01T00:00:00Z", "extra": {"seed": 1}, "files": [entry]}
    ranked = [entry | {"name": f"model-0000{r + 1}-of-00002.safetensors", "group": "model", "rank": r, "tensors": 0,
                       "tensor_hashes": {}} for r in range(2)]
    parts = manifest | {"version": 2, "save_id": "s1", "files": ranked, "val_loss": None,
                        "parts": [{"name": f"part-0000{r + 1}-of-00002.json", "size": 10, "hash": HASH} for r in range(2)],
                        "tensors": {"model": {"a": {"dtype": "F32", "shape": [4, 2], "rank": 0, "every": 2},
                                              "b": {"dtype": "BF16", "shape": [5], "at": [[0, 1], [3, 0]]},
                                              "c": {"dtype": "I64", "shape": [], "rank": 1}}}}
    piece = {"dtype": "F32", "shape": [4, 2], "first_row": 2, "rows": 2}
    listed = {"version": 2, "step": 250, "save_id": "s1", "rank": 1, "ranks": 2,
              "files": [ranked[1] | {"tensors": 1, "tensor_hashes": {"a": HASH}, "pieces": {"a": piece}}]}
    wrong = {"version": manifest | {"version": 3}, "step": manifest | {"step": -1}, "no_parts": parts | {"parts": []},
             "hidden": manifest | {"files": [entry | {"name": ".model"}]}, "rank": parts | {"files": [ranked[0] | {"rank": 9}]},
             "damaged": manifest | {"files": [entry | {"size": 10}]},  # as long as the file that fuzz/manifest.cpp has
             "no_tensors": manifest | {"files": [entry | {"size": 10, "tensors": 0, "tensor_hashes": {}}]}}
    for name, value in (("one", manifest), ("parts", parts), ("list", listed), *wrong.items()):
        yield name, json.dumps(value, indent=2)
    yield "hash", "{\n  \"manifest_hash\": \"" + HASH + "\",\n  \"version\": 1}"


def capture_seeds():
    layer = {"name": "lm_head", "class": "Linear", "layout": "out_in", "calls": 1, "tied_to": "embed.weight",
             "file": "layer-00000.safetensors", "outputs": 300, "inputs": 64, "tokens": 200, "trainable": True,
             "token_groups": [0, 1], "output_groups": [0, 2]}
    capture = {"format": "octavo-capture", "version": 1, "model": "M", "torch": "2.9.0", "step": None, "layers": [layer],
               "not_captured": [{"name": "c", "why": "a Conv2d"}]}
    wrong = {"file": {"file": "layer-0/1.safetensors"}, "name": {"name": "a b"}, "groups": {"token_groups": [1, 0]},
             "large": {"inputs": 1 << 39}, "size": {"outputs": 0}, "layout": {"layout": "x"}, "empty": {"token_groups": []}}
    yield "one", json.dumps(capture)
    yield "step", json.dumps(capture | {"step": 3, "not_captured": [], "layers": [layer | {"tied_to": None}]})
    for name, change in wrong.items():
        yield name, json.dumps(capture | {"layers": [layer | change]})
    for name, change in {"version": {"version": 2}, "format": {"format": "x"}, "none": {"layers": []}, "twice": {"layers": [layer] * 2}}.items():
        yield name, json.dumps(capture | change)


def adapter_seeds():
    config = {"peft_type": "LORA", "task_type": "CAUSAL_LM", "base_model_name_or_path": "gpt2", "r": 8, "lora_alpha": 16,
              "lora_dropout": 0.05, "target_modules": ["q_proj", "v_proj"], "bias": "none", "fan_in_fan_out": False,
              "inference_mode": True, "use_rslora": True, "use_dora": False, "modules_to_save": None, "rank_pattern": {},
              "alpha_pattern": {}, "layers_to_transform": None}
    yield "list", json.dumps(config)
    yield "text", json.dumps(config | {"target_modules": "all-linear", "use_rslora": False, "lora_alpha": 0.5})


def rendezvous_seeds():
    def strings(items):
        return struct.pack("<I", len(items)) + b"".join(struct.pack("<I", len(s)) + s for s in items)

    def request(op, keys, values=(), number=0, wait=0):
        return struct.pack("<BIq", op, wait, number) + strings(keys) + strings(values)

    requests = {"set": request(1, [b"k"], [b"v"]), "get": request(2, [b"k"], wait=1), "add": request(3, [b"n"], number=5),
                "check": request(4, [b"k", b"n"]), "wait": request(5, [b"k"]), "swap": request(6, [b"k"], [b"v", b"w"]),
                "delete": request(7, [b"k"]), "size": request(8, []), "append": request(9, [b"k"], [b"x"]),
                "gets": request(10, [b"k", b"k"]), "sets": request(11, [b"a", b"b"], [b"1", b"2"]),
                "missing": request(12, [b"rank/"], number=4), "clear": request(13, [b"rank/"])}
    for name, body in requests.items():
        yield name, b"\1" + body
        yield name + "-framed", b"\xff" + struct.pack("<I", len(body)) + body
    both = requests["set"], requests["get"], requests["append"], requests["size"]
    counted = [request(1, [b"n"], [b"x"]), request(3, [b"n"], number=1), request(1, [b"n"], [b"9223372036854775807"]),
               request(3, [b"n"], number=1), requests["set"], requests["swap"], request(6, [b"k"], [b"w", b"z"])]
    ranked = [request(1, [b"rank/%d" % rank], [b""]) for rank in (0, 2, 7)] + [request(1, [b"rank/x"], [b""]), requests["missing"]]
    full = [request(1, [b"k"], [b"v" * 900]), request(11, [b"%d" % i for i in range(70)], [b"v"] * 70), request(9, [b"k"], [b"v" * 90])]
    for name, several in (("several", both), ("counted", counted), ("ranked", ranked), ("full", full)):
        yield name, b"\x41" + b"".join(struct.pack("<I", len(b)) + b for b in several)
    yield "hello", b"\xfe" + b"OCTAVORV" + struct.pack("<H", 1) + bytes(32) + bytes(32)
    yield "reply", b"\1" + struct.pack("<Bq", 0, 3) + strings([b"v", b"w"])


def checksum(data, polynomial):
    value = 0xFFFFFFFF
    for byte in data:
        value ^= byte
        for _ in range(8):
            value = value >> 1 ^ (polynomial if value & 1 else 0)
    return value ^ 0xFFFFFFFF


def masked(data):
    value = checksum(data, 0x82F63B78)
    return struct.pack("<I", ((value >> 15 | value << 17) + 0xA282EAD8) & 0xFFFFFFFF)


def field(number, content):
    """Of a protobuf message: bytes, an integer, or a double."""
    if isinstance(content, int):
        return bytes([number << 3, content])
    if isinstance(content, float):
        return bytes([number << 3 | 1]) + struct.pack("<d", content)
    tag = bytes([number << 3 | 2]) if number < 16 else bytes([(number << 3 | 2) & 0x7F | 0x80, number >> 4])
    return tag + bytes([len(content)]) + content


def foreign_logs_seeds():
    """The first byte says how checksums are treated: 'r' as they are, 'e' and 'w' made for an event or a W&B record."""
    scalar = field(1, b"train/loss") + b"\x15" + struct.pack("<f", 2.5)
    tensor = field(1, b"eval/loss") + field(8, field(1, 2) + field(6, struct.pack("<d", 2.25)))
    event = field(1, 1e9) + field(2, 7) + field(5, field(1, scalar) + field(1, tensor))
    start = field(1, 1e9) + field(2, 3) + field(7, field(1, 1))
    length = struct.pack("<Q", len(event))
    yield "event", b"e" + event
    yield "start", b"e" + start
    yield "events", b"r" + length + masked(length) + event + masked(event)
    row = field(2, b"".join(field(1, field(2, name) + field(16, value)) for name, value in (
        (b"train/loss", b"2.5"), (b"train/global_step", b"7"), (b"_timestamp", b"1e9"), (b"eval/loss", b"NaN"))) + field(2, field(1, 7)))
    piece = b"\1" + row
    yield "row", b"w" + row
    yield "wandb", b"r:W&B\xe1\xbe\0" + struct.pack("<IH", checksum(piece, 0xEDB88320), len(row)) + piece
    yield "csv", 'r"Step","a - train/loss","a - train/loss__MIN"\n0,1.5,1\n10,NaN,\n'
    yield "lightning", "repoch,step,train_loss,val_loss\n0,9,2.5,\n0,9,,2.25\n"
    yield "jsonl", 'r{"current_steps": 5, "loss": 5.5, "total_tokens": 9}\n{"current_steps": 6, "eval_loss": NaN}\n{"step": 1, "train": {"loss": null}}\n'
    yield "state", 'r{\n "log_history": [{"step": 1, "loss": 2.5}, {"step": 1, "eval_loss": -Infinity}]}\n'
    yield "megatron", ("r iteration  1/ 50 | elapsed time per iteration (ms): 9.5 | lm loss: 1.0E+01 | number of skipped iterations: 1 |"
                       " number of nan iterations: 1 |\n validation loss at iteration 1 | lm loss value: 2E+00 |\n")
    yield "torchtitan", ("r\x1b[31mstep:  1  loss: 12.5  grad_norm: 8.2  memory: 87.87GiB(62.89%)  tps: 5,970  mfu: 4%\n"
                         "validate step:  1  loss: 12.5  tps: 7\n")
    yield "nanogpt", "riter 1: loss 4.2, time 25.10ms, mfu 3%\nstep 1: train loss 4.2, val loss 4.3\n"
    yield "nanochat", "rstep 00001/21400 (0.00%) | loss: 10.8 | dt: 649.22ms | tok/sec: 807,569 |\nStep 00001 | Validation bpb: 3.3\n"
    yield "llmc", "rs:0 trl:11.0 lr:0.1\ns:0 tel:11\nval loss 3\nstep 2/9 | loss 10.9 (+0.1z)| 120.51 ms | 4350 tok/s\rval loss 2\n"


def http_seeds():
    yield "address", b"@127.0.0.1:9400"
    yield "address6", b"@[::1]:9400"
    yield "port", b"#GET /metrics HTTP/1.1\r\n\r\n"
    yield "late", b"#GET /"
    yield "metrics", b"\xffGET /metrics HTTP/1.1\r\nHost: x\r\n\r\n"
    yield "head", b"\2HEAD /health?a=b HTTP/1.0\r\n\r\n"
    yield "post", b"\xffPOST / HTTP/1.1\r\nContent-Length: 2\r\n\r\nhi"
    yield "long", b"\xffGET /" + b"a" * 5000 + b" HTTP/1.1\r\n\r\n"


def audit_seeds():
    """Traces: kineto's, an old one, octavo's own, gzipped, cut; an Nsight export; kernel names alone behind a #."""
    kernel = {"ph": "X", "cat": "kernel", "name": "nvjet_sm100_qrtst_128x256_128x6_2x1_2cta_v_bz_NNT", "pid": 0, "tid": 7, "ts": 10.5,
              "dur": 3.25, "args": {"External id": 4, "correlation": 9, "stream": 7, "device": 0, "grid": [1, 1, 1]}}
    op = {"ph": "X", "cat": "cpu_op", "name": "aten::_scaled_mm", "pid": 1, "tid": 2, "ts": 1, "dur": 9,
          "args": {"External id": 4, "Input Dims": [[8, 1000], [1000, 16]], "Input type": ["c10::Float8_e4m3fn", "c10::Float8_e5m2"]}}
    launch = {"ph": "X", "cat": "cuda_runtime", "name": "cudaLaunchKernel", "pid": 1, "tid": 2, "ts": 2, "dur": 1, "args": {"correlation": 9}}
    copy = {"ph": "X", "cat": "gpu_memcpy", "name": "Memcpy HtoD (Pinned -> Device)", "ts": 20, "dur": 1, "args": {"bytes": 64}}
    top = {"schemaVersion": 1, "deviceProperties": [{"name": "H100"}], "distributedInfo": {"rank": 0, "world_size": 2}}
    whole = json.dumps(top | {"traceEvents": [op, launch, kernel, copy]})
    yield "kineto", whole
    yield "cut", whole[:-30]
    yield "list", json.dumps([kernel | {"cat": "Kernel"}, op | {"cat": "Operator"}])
    yield "gzip", gzip.compress(whole.encode(), mtime=0)
    yield "own", json.dumps({"otherData": {"dropped": 0}, "traceEvents": [
        {"ph": "X", "pid": 0, "tid": 1, "ts": 1.001, "name": "forward", "cat": "range", "dur": 5},
        {"ph": "b", "pid": 0, "tid": 1, "ts": 2, "name": "all-gather", "cat": "gather", "id": "rank0-1", "args": {"bytes": 8}},
        {"ph": "e", "pid": 0, "tid": 1, "ts": 3, "name": "all-gather", "cat": "gather", "id": "rank0-1"}]})
    names = ("sm90_xmma_gemm_e4m3bf16_e4m3f32_f32_tn_n", "cutlass_80_tensorop_bf16_s16816gemm_relu_bf16_128x64",
             "cutlass3x_sm100_bstensorop_s256gemm_block_scaled_ue8m0xe4m3_ue8m0xe5m2_f32_f16_f16", "bmm_E4m3_E4m3E4m3_Fp32_t128",
             "void cutlass::device_kernel<flash::enable_sm90<(int)4, cutlass::float_e4m3_t>>", "gemv2T_kernel<int, int, float>")
    for i, name in enumerate(names):
        yield f"name{i}", "#" + name
    with tempfile.TemporaryDirectory() as folder:
        file = pathlib.Path(folder) / "x.sqlite"
        with sqlite3.connect(file) as base:
            base.execute("PRAGMA page_size=512")
            base.execute("CREATE TABLE StringIds (id INTEGER, value TEXT)")
            base.execute("CREATE TABLE CUPTI_ACTIVITY_KIND_KERNEL (start, end, deviceId, streamId, correlationId, globalPid, demangledName)")
            base.execute("INSERT INTO StringIds VALUES (1, 'ampere_sgemm_32x128_nn')")
            base.execute("INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL VALUES (5, 9, 0, 7, 1, 16777216, 1)")
        base.close()
        yield "nsight", file.read_bytes()


def python_env_seeds():
    torch = ("Metadata-Version: 2.4\nName: torch\nVersion: 2.9.1+cu128\nRequires-Python: >=3.10\n"
             "Requires-Dist: nvidia-cudnn-cu12==9.10.2.21; platform_system == \"Linux\"\n"
             "Requires-Dist: triton==3.5.1; platform_system == \"Linux\" and platform_machine == \"x86_64\"\n"
             "Requires-Dist: opt-einsum>=3.3; extra == 'opt-einsum'\n\nDescription\n")
    yield "torch", "m" + torch
    yield "lines", "m" + torch.replace("\n", "\r\n").replace("Name: ", "Name:\r\n ")
    yield "old", "mMetadata-Version: 1.2\nName: a\nVersion: 1.0\nRequires-Dist: b[c] (>=1,!=1.5.*,<2) ; python_version<'3'\n"
    yield "record", ("rtorch/lib/libc10.so,sha256=abc,12\n\"a,\"\"b.so\",,\n../../bin/x.so,,\n/etc/a.so,,\n"
                     "torch-2.9.1.dist-info/RECORD,,\n")
    yield "venv", "chome = /usr/bin\ninclude-system-site-packages = false\nversion = 3.11.2\n"
    for number, pair in enumerate((("2.8.0a0+5228986c39.nv25.06", "2.8.0"), ("1!2.0.post1.dev3", "v2.0-1"),
                                   ("1.0-rc.1", "1.0.dev0+local.7"), ("2.7.4.post1", "2.7.4"))):
        yield f"versions{number}", "v" + "\n".join(pair)
    for number, pair in enumerate((("2.9.0", ">=2.6.0a0,<2.10"), ("1.4.5", "~=1.4.2,!=1.4.5"), ("1.0+git1", "==1.0.*"),
                                   ("1.0", "===1.0"))):
        yield f"specifier{number}", "s" + "\n".join(pair)
    yield "marker", "q(python_version >= '3.9' and os_name != \"nt\") or 'linux' in sys_platform"
    yield "marker_not_in", "qplatform_machine not in 'x86_64 aarch64'"


SEEDS = {"adapter": adapter_seeds, "arrow": arrow_seeds, "audit": audit_seeds, "capture": capture_seeds, "chat": chat_seeds,
         "config": yaml_seeds, "dataset_index": dataset_index_seeds, "foreign_logs": foreign_logs_seeds, "http": http_seeds,
         "import": import_seeds, "import_programs": import_programs_seeds, "json_rows": json_rows_seeds,
         "jinja": jinja_seeds, "manifest": manifest_seeds, "model_config": model_config_seeds, "model_index": model_index_seeds,
         "parquet": parquet_seeds, "python_env": python_env_seeds, "rendezvous": rendezvous_seeds,
         "safetensors": safetensors_seeds, "shard": shard_seeds, "sweep": sweep_seeds, "tokenizer": tokenizer_seeds,
         "tokenizer_text": tokenizer_text_seeds}


# Targets that choose what to do by the length of the input, modulo this, and do not mind spaces at its end.
BY_LENGTH = {"chat": 16, "config": 4, "manifest": 8, "model_config": 2}


def main():
    root = pathlib.Path(sys.argv[1])
    for target, seeds in SEEDS.items():
        folder = root / target
        folder.mkdir(parents=True, exist_ok=True)
        for name, content in seeds():
            content = content if isinstance(content, bytes) else content.encode()
            (folder / name).write_bytes(content)
            for more in range(1, BY_LENGTH.get(target, 1)):
                (folder / f"{name}+{more}").write_bytes(content + b" " * more)


if __name__ == "__main__":
    main()
