"""Stand-ins for what the files of configs/ name, in the layout of a Hugging Face cache: tiny models with the first tokens of the real tokenizers,
a few rows of the data sets, and, for plan, the real models' config.json alone."""
import json
import shutil

from common import DATA
from finetuning import SFT, TOKENIZERS, in_cache

KEPT = 1024  # of a tokenizer's vocabulary: with all of it most of the time goes into the head
# Multiples of 32, so that every recipe can run.
SIZE = dict(num_hidden_layers=2, hidden_size=32, intermediate_size=64, num_attention_heads=2, num_key_value_heads=2,
            max_position_embeddings=2048)
TEXTS = DATA / "data" / "text"
LLAMA3 = ("meta-llama/Meta-Llama-3-8B-Instruct", "meta-llama/Llama-3.1-8B-Instruct", "meta-llama/Llama-3.2-1B",
          "meta-llama/Llama-3.2-3B")
QWEN, GPT2 = "Qwen/Qwen2.5-14B", "openai-community/gpt2"
QWEN3 = ("Qwen/Qwen3-1.7B", "Qwen/Qwen3-8B")
QWEN3_MOE = "Qwen/Qwen3-30B-A3B"


def small_tokenizer(name):
    """The first KEPT tokens of a byte-level BPE and its added tokens behind them; (its text, ids by token, their number)."""
    file = json.loads((TOKENIZERS / name / "tokenizer.json").read_text())
    model = file["model"]
    model["vocab"] = {token: number for token, number in model["vocab"].items() if number < KEPT}
    pairs = [merge if isinstance(merge, list) else merge.split(" ") for merge in model["merges"][:4 * KEPT]]
    model["merges"] = [pair for pair in pairs if {*pair, "".join(pair)} <= model["vocab"].keys()]
    moved = {token["id"]: KEPT + i for i, token in enumerate(file["added_tokens"])}
    for token in file["added_tokens"]:
        token["id"] = moved[token["id"]]

    def renumber(part):
        if isinstance(part, dict):
            return {key: [moved[i] for i in value] if key == "ids" else renumber(value) for key, value in part.items()}
        return [renumber(value) for value in part] if isinstance(part, list) else part

    file["post_processor"] = renumber(file["post_processor"])
    return json.dumps(file), moved, KEPT + len(moved)


def tiny_models(home):
    import torch
    from transformers import (GPT2Config, GPT2LMHeadModel, LlamaConfig, LlamaForCausalLM, Qwen2Config, Qwen2ForCausalLM,
                              Qwen3Config, Qwen3ForCausalLM, Qwen3MoeConfig, Qwen3MoeForCausalLM)
    torch.manual_seed(1)
    text, ids, count = small_tokenizer("llama3")
    llama = LlamaConfig(**SIZE, vocab_size=count, bos_token_id=ids[128000], eos_token_id=ids[128001])
    models = {name: (LlamaForCausalLM(llama), text) for name in LLAMA3}
    text, ids, count = small_tokenizer("qwen2")
    models[QWEN] = Qwen2ForCausalLM(Qwen2Config(**SIZE, vocab_size=count, bos_token_id=ids[151643], eos_token_id=ids[151643])), text
    qwen3 = Qwen3Config(**SIZE, head_dim=32, vocab_size=count, bos_token_id=ids[151643], eos_token_id=ids[151643])
    models |= {name: (Qwen3ForCausalLM(qwen3), text) for name in QWEN3}
    experts = Qwen3MoeConfig(**SIZE, head_dim=32, vocab_size=count, bos_token_id=ids[151643], eos_token_id=ids[151643], num_experts=8,
                             num_experts_per_tok=2, moe_intermediate_size=32)
    models[QWEN3_MOE] = Qwen3MoeForCausalLM(experts), text
    text, ids, count = small_tokenizer("gpt2")
    size = dict(n_layer=2, n_head=2, n_embd=32, n_positions=1024)
    models[GPT2] = GPT2LMHeadModel(GPT2Config(**size, vocab_size=count, bos_token_id=ids[50256], eos_token_id=ids[50256])), text
    for name, (model, tokenizer) in models.items():
        folder = in_cache(home, "models", name)
        model.to(torch.bfloat16).save_pretrained(folder)
        (folder / "tokenizer.json").write_text(tokenizer)


def tiny_data_sets(home):
    import pyarrow
    import pyarrow.parquet

    def parquet(name, file, rows):
        path = in_cache(home, "datasets", name) / file
        path.parent.mkdir(parents=True)
        pyarrow.parquet.write_table(pyarrow.Table.from_pylist(rows), path)

    def documents(file):
        text = (TEXTS / file).read_text()
        return [{"text": text[at:at + 1500]} for at in range(0, 18000, 1500)]

    fineweb = "HuggingFaceFW/fineweb-edu"
    parquet(fineweb, "sample/10BT/000_00000.parquet", documents("fineweb_sample.txt"))
    card = "---\nconfigs:\n- config_name: default\n  data_files: data/*/*\n- config_name: sample-10BT\n  data_files:\n" \
           "  - split: train\n    path: sample/10BT/*\n---\n"
    for folder in (home / "hub" / "datasets--HuggingFaceFW--fineweb-edu" / "snapshots").iterdir():
        (folder / "README.md").write_text(card)
    parquet("Skylion007/openwebtext", "plain_text/train-00000-of-00001.parquet", documents("wikitext2_valid.txt"))
    with open(SFT / "openmathinstruct2_sample.jsonl") as lines:
        rows = [json.loads(line) for line, _ in zip(lines, range(20))]
    parquet("nvidia/OpenMathInstruct-2", "data/train_1M-00000-of-00001.parquet", rows)
    alpaca = json.loads((SFT / "instruction-data_alpaca-format.json").read_text())
    (in_cache(home, "datasets", "yahma/alpaca-cleaned") / "alpaca_data_cleaned.json").write_text(json.dumps(alpaca[:32]))


def real_shapes(home):
    """config.json of the real models, as published; no weights."""
    gpt2 = dict(model_type="gpt2", n_layer=12, n_head=12, n_embd=768, vocab_size=50257, n_positions=1024)
    common = dict(model_type="llama", vocab_size=128256, hidden_act="silu", rms_norm_eps=1e-5, rope_theta=500000.0,
                  num_key_value_heads=8, tie_word_embeddings=False)
    big = common | dict(num_hidden_layers=32, hidden_size=4096, intermediate_size=14336, num_attention_heads=32)
    small = common | dict(num_hidden_layers=16, hidden_size=2048, intermediate_size=8192, num_attention_heads=32,
                          tie_word_embeddings=True, head_dim=64)
    middle = common | dict(num_hidden_layers=28, hidden_size=3072, intermediate_size=8192, num_attention_heads=24,
                           tie_word_embeddings=True, head_dim=128)
    qwen = common | dict(model_type="qwen2", num_hidden_layers=48, hidden_size=5120, intermediate_size=13824,
                         num_attention_heads=40, vocab_size=152064)
    qwen3 = common | dict(model_type="qwen3", rms_norm_eps=1e-6, rope_theta=1e6, head_dim=128, vocab_size=151936)
    qwen3_sizes = (dict(num_hidden_layers=28, hidden_size=2048, intermediate_size=6144, num_attention_heads=16,
                        tie_word_embeddings=True),
                   dict(num_hidden_layers=36, hidden_size=4096, intermediate_size=12288, num_attention_heads=32))
    shapes = dict(zip(LLAMA3, (big, big, small, middle))) | {QWEN: qwen, GPT2: gpt2}
    shapes |= {name: qwen3 | size for name, size in zip(QWEN3, qwen3_sizes)}
    shapes[QWEN3_MOE] = qwen3 | dict(
        model_type="qwen3_moe", num_hidden_layers=48, hidden_size=2048, intermediate_size=6144, num_attention_heads=32,
        num_key_value_heads=4, max_position_embeddings=40960, num_experts=128, num_experts_per_tok=8, moe_intermediate_size=768,
        norm_topk_prob=True)
    for name, config in shapes.items():
        config = config | ({} if name == GPT2 else {"max_position_embeddings": 8192})
        folder = in_cache(home, "models", name)
        (folder / "config.json").write_text(json.dumps(config))
        shutil.copy(TOKENIZERS / "gpt2" / "tokenizer.json", folder)  # of no interest to plan, and looked for
