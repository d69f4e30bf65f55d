"""Base models that were tuned on chats here, exported, and used by transformers and peft as by anybody.

Tiny random models with the real tokenizers of Qwen2, Llama 3, SmolLM2 and GPT-2 learn one short answer, with every chat
template, all of their weights or adapters. Of each export:

1. transformers' tokenizer renders conversations by the exported chat_template to the ids that `octavo data prepare`
   gives (whole, and up to where the last answer begins, as for a model that is to continue);
2. eos_token_id of config.json and of generation_config.json has the token that ends an answer, and eos_token is it;
3. generate() of the merged model, and of the model with peft's adapters, stops at it of its own accord. The control: with
   the base model's end alone it continues to the limit.

Left out on purpose, since Jinja has one text where octavo has pieces: markers in somebody's text, answers that begin with
white space, and (template none) prompts without a line end."""
import collections
import json
import random
import subprocess
import sys

import torch
# Of Transformer Engine only the C library is installed; peft would import its Python part, which refuses.
sys.modules["transformer_engine"] = None
from peft import PeftModel
from transformers import (AutoModelForCausalLM, AutoTokenizer, GenerationConfig, GPT2Config, GPT2LMHeadModel, LlamaConfig,
                          LlamaForCausalLM, Qwen2Config, Qwen2ForCausalLM)

from model_parity import DATA, OCTAVO, randomize
from prepared import documents, prepare
import smollm2_model

CONVERSATIONS, LENGTH, NEW = 200, 1024, 16
QWEN, LLAMA, GPT2 = (DATA / "data" / "tokenizers" / name / "tokenizer.json" for name in ("qwen2", "llama3", "gpt2"))
SIZES = dict(num_hidden_layers=2, hidden_size=32, intermediate_size=64, num_attention_heads=2, num_key_value_heads=1,
             max_position_embeddings=256)
MODELS = {
    "llama": lambda vocab, end: LlamaForCausalLM(LlamaConfig(**SIZES, vocab_size=vocab, bos_token_id=None,
                                                             eos_token_id=end, tie_word_embeddings=True)),
    "qwen2": lambda vocab, end: Qwen2ForCausalLM(Qwen2Config(**SIZES, vocab_size=vocab, bos_token_id=None,
                                                             eos_token_id=end, tie_word_embeddings=True)),
    "gpt2": lambda vocab, end: GPT2LMHeadModel(GPT2Config(n_layer=2, n_head=4, n_embd=64, vocab_size=vocab, n_positions=256,
                                                          bos_token_id=end, eos_token_id=end)),
}
# template, model, tokenizer, the base's end of a text, what ends an answer, the base has tokenizer_config.json, and what is
# trained: all weights, adapters, or all for one step (nothing is learned: rendering and files alone are looked at)
CASES = (
    ("qwen2", "qwen2", QWEN, "<|endoftext|>", "<|im_end|>", True, ("all", "lora")),
    ("chatml", "llama", QWEN, "<|endoftext|>", "<|im_end|>", False, ("brief",)),
    ("smollm2", "llama", None, "<|endoftext|>", "<|im_end|>", True, ("all",)),
    ("llama3", "llama", LLAMA, "<|end_of_text|>", "<|eot_id|>", True, ("lora",)),
    ("llama31", "llama", LLAMA, "<|end_of_text|>", "<|eot_id|>", False, ("brief",)),
    ("alpaca", "gpt2", GPT2, "<|endoftext|>", "<|endoftext|>", False, ("all", "lora")),
    ("none", "llama", LLAMA, "<|end_of_text|>", "<|end_of_text|>", False, ("brief",)),
)
WORDS = ["sea", "naïve", "€5", "🐳", "Ahab", "中文", "x = 1;", "\n\n", "  ", "\t", "can't", "1234567", "{{ a }}", "'quoted'",
         "\\n", "é", "end.\n", "- item"]


def conversations(kind):
    """[messages]; the last message is an answer."""
    draw = random.Random(kind)

    def text(first=""):
        return first + " ".join(draw.choice(WORDS) for _ in range(draw.randint(1, 12)))

    made = []
    for number in range(CONVERSATIONS):
        messages = [{"role": "system", "content": text()}] if draw.random() < 0.4 else []
        for _ in range(draw.randint(1, 4)):
            messages.append({"role": "user", "content": text() + ("\n" if kind == "none" else "")})
            messages.append({"role": "assistant", "content": text(f"Answer {number}: ")})
        if kind == "none" and messages[0]["role"] == "system":
            messages[0]["content"] += "\n"
        made.append(messages)
    return made


def alpaca_rows():
    """Rows with Alpaca's second part of an instruction, and the same as messages."""
    rows = [{"instruction": f"Add {i} numbers.", "input": f"{i} {i * 7}" if i % 3 else "", "output": f"That is {i * 8}."}
            for i in range(60)]
    return rows, [[{"role": "user", "content": r["instruction"], "input": r["input"]},
                   {"role": "assistant", "content": r["output"]}] for r in rows]


def octavo(*arguments):
    done = subprocess.run([OCTAVO, *map(str, arguments)], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    assert done.returncode == 0, f"octavo {' '.join(map(str, arguments))}: exit {done.returncode}\n{done.stdout}"
    return done.stdout


def make_base(folder, model, tokenizer_file, end, with_config):
    """A base model: random weights, a real tokenizer, and an end of texts that is no end of answers."""
    folder.mkdir()
    (folder / "tokenizer.json").write_bytes(tokenizer_file.read_bytes())
    if with_config:
        (folder / "tokenizer_config.json").write_text(json.dumps(
            {"tokenizer_class": "PreTrainedTokenizerFast", "eos_token": end, "chat_template": "{{ 'another' }}"}))
    added = json.loads(tokenizer_file.read_text())
    vocab = max([*added["model"]["vocab"].values(), *(t["id"] for t in added["added_tokens"])]) + 1
    end_id = next(t["id"] for t in added["added_tokens"] if t["content"] == end)
    randomize(MODELS[model](vocab, end_id), 3).save_pretrained(folder)
    if not with_config:
        (folder / "generation_config.json").unlink(missing_ok=True)
    return end_id


def train(base, rows, kind, name, work, what):
    flags = ["--lora_rank", "16", "--learning_rate", "2e-2"] if what == "lora" else ["--learning_rate", "1e-2"]
    octavo("train", "--model_name", base, "--dataset", rows, "--chat_template", kind, "--data_cache", work / "cache",
           "--checkpoint_dir", work / name, "--runs_dir", work / "runs", "--run_name", name, "--max_seq_length", "128",
           "--batch_size", "4", "--max_steps", "1" if what == "brief" else "60", "--warmup_steps", "1", "--eval_freq", "0",
           "--checkpoint_freq", "0", "--mixed_precision", "fp32", *flags)
    return work / name


def check_ids(theirs, base, kind, work):
    """How many renderings of transformers have the ids of `octavo data prepare`."""
    kinds = {"chats": conversations(kind)}
    rows = {"chats": [{"messages": m} for m in kinds["chats"]]}
    if kind == "alpaca":
        rows["parts"], kinds["parts"] = alpaca_rows()
    same = 0
    for name, chats in kinds.items():
        path = work / f"{kind}-{name}.jsonl"
        path.write_text("".join(json.dumps(row) + "\n" for row in rows[name]))
        output = work / f"{kind}-{name}.tokens"
        padding = json.loads((base / "config.json").read_text())["eos_token_id"]
        prepare([path], output, tokenizer=base, chat_template=kind, val_fraction=0, max_seq_length=LENGTH)
        found = documents(output, padding)
        assert len(found) == len(chats)
        options = dict(tokenize=True, return_dict=False)
        wanted = {tuple(theirs.apply_chat_template(m, **options)): m for m in chats}
        for ids, in_loss in found:
            assert ids in wanted, f"{kind}: transformers has no conversation {theirs.decode(ids)!r}"
            last = max(i for i in range(1, len(ids)) if in_loss[i] and not in_loss[i - 1])
            opened = tuple(theirs.apply_chat_template(wanted[ids][:-1], add_generation_prompt=True, **options))
            assert opened == ids[:last], f"{kind}: {theirs.decode(opened)!r} is not how the answer begins"
            same += 2
        assert collections.Counter(ids for ids, _ in found) == collections.Counter(wanted.keys())
    return same


def check_files(folder, end, of_model):
    """The tokenizer as transformers loads it, and the end of answers, which the files name."""
    tokenizer = AutoTokenizer.from_pretrained(folder)
    end_id = tokenizer.convert_tokens_to_ids(end)
    for name in ["generation_config.json"] + (["config.json"] if of_model else []):
        ends = json.loads((folder / name).read_text())["eos_token_id"]
        assert end_id in (ends if isinstance(ends, list) else [ends]), f"{folder.name}/{name}: eos_token_id {ends}"
    assert tokenizer.eos_token == end and tokenizer.eos_token_id == end_id, tokenizer.eos_token
    assert tokenizer.chat_template == json.loads((folder / "tokenizer_config.json").read_text())["chat_template"]
    return tokenizer, end_id


def check_stop(model, tokenizer, config, end_id, base_end):
    """The answer ends of its own accord, and would not with the base's end."""
    prompt = torch.tensor([tokenizer.apply_chat_template([{"role": "user", "content": "How are you?\n"}],
                                                         add_generation_prompt=True, tokenize=True, return_dict=False)])
    options = dict(max_new_tokens=NEW, do_sample=False, pad_token_id=base_end)
    with torch.no_grad():
        answer = model.generate(prompt, attention_mask=torch.ones_like(prompt), generation_config=config, **options)
        on = model.generate(prompt, attention_mask=torch.ones_like(prompt), generation_config=GenerationConfig(
            eos_token_id=base_end), **options)
    new = answer[0, prompt.shape[1]:].tolist()
    assert new[-1] == end_id and len(new) < NEW, f"did not stop: {tokenizer.decode(new)!r}"
    assert "Fine" in tokenizer.decode(new), f"learned nothing: {tokenizer.decode(new)!r}"
    if end_id != base_end:
        assert on.shape[1] - prompt.shape[1] == NEW, "the base's end would have been enough"


def check_case(case, work, totals):
    kind, model, tokenizer_file, base_text, end, with_config, runs = case
    tokenizer_file = tokenizer_file or smollm2_model.folder() / "tokenizer.json"
    base = work / f"{kind}-base"
    base_end = make_base(base, model, tokenizer_file, base_text, with_config)
    rows = work / f"{kind}-train.jsonl"
    rows.write_text("".join(json.dumps({"messages": [{"role": "user", "content": f"How are you, {i}?\n"},
                                                     {"role": "assistant", "content": "Fine."}]}) + "\n" for i in range(48)))
    for number, what in enumerate(runs):
        name = f"{kind}-{what}"
        run = train(base, rows, kind, name, work, what)
        merged = work / f"{name}-export"
        octavo("checkpoints", "export", "latest", "--checkpoint_dir", run, "--output", merged)
        loaded = AutoModelForCausalLM.from_pretrained(merged, dtype=torch.float32).eval()
        tokenizer, end_id = check_files(merged, end, True)
        if what != "brief":
            check_stop(loaded, tokenizer, loaded.generation_config, end_id, base_end)
            totals["stops"] += 1
        same = check_ids(tokenizer, base, kind, work) if number == 0 else 0
        totals["chat_exports"] += 1
        if what == "lora":
            folder = work / f"{name}-peft"
            octavo("checkpoints", "export", "latest", "--checkpoint_dir", run, "--output", folder, "--export_format", "peft")
            adapted = PeftModel.from_pretrained(AutoModelForCausalLM.from_pretrained(base, dtype=torch.float32), folder)
            tokenizer, end_id = check_files(folder, end, False)
            check_stop(adapted.eval(), tokenizer, GenerationConfig.from_pretrained(folder), end_id, base_end)
            totals["chat_exports"] += 1
            totals["stops"] += 1
        print(f"{name}: an answer ends at {end}; {same} renderings with octavo's ids", flush=True)
        totals["same_ids"] += same


def check(work):
    """{name: number}"""
    totals = dict(chat_exports=0, stops=0, same_ids=0)
    work.mkdir()
    for case in CASES:
        check_case(case, work, totals)
    return totals
