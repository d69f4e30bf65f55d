#!/usr/bin/env -S sh -c 'exec "$(dirname "$0")/../../.deps/venv/bin/python" "$0" "$@"'
# test: label=conformance timeout=600 night="" measures="src/data src/tokenizer"
"""Data in every format. The same rows as JSON lines, JSON, Parquet (codecs, row groups, types) and Arrow (file, stream)
give the same shards; chats are the token ids that the models' own jinja templates give, with the answers marked;
damaged files end with an error, never with a crash; a large row group does not come into memory whole."""
import collections
import json
import pathlib
import random
import subprocess
import sys
import tempfile
import time

import jinja2.sandbox
import pyarrow as pa
import pyarrow.ipc as ipc
import pyarrow.parquet as pq
from tokenizers import Tokenizer

import smollm2_model
from prepared import DATA, command, documents, need, popen, prepare, run, shards

GSM8K = DATA / "sft" / "gsm8k_train.jsonl"
QWEN, LLAMA = DATA / "tokenizers" / "qwen2", DATA / "tokenizers" / "llama3"
LENGTH = 2048

# The official templates, for messages without tools.
QWEN_TEMPLATE = """
{%- if messages[0]['role'] == 'system' %}
    {{- '<|im_start|>system\\n' + messages[0]['content'] + '<|im_end|>\\n' }}
{%- else %}
    {{- '<|im_start|>system\\nYou are Qwen, created by Alibaba Cloud. You are a helpful assistant.<|im_end|>\\n' }}
{%- endif %}
{%- for message in messages %}
    {%- if (message.role == "user") or (message.role == "system" and not loop.first) or (message.role == "assistant") %}
        {{- '<|im_start|>' + message.role + '\\n' + message.content + '<|im_end|>' + '\\n' }}
    {%- endif %}
{%- endfor %}"""
LLAMA_TEMPLATE = (
    "{% set loop_messages = messages %}{% for message in loop_messages %}{% set content = '<|start_header_id|>' + "
    "message['role'] + '<|end_header_id|>\n\n'+ message['content'] | trim + '<|eot_id|>' %}{% if loop.index0 == 0 %}"
    "{% set content = bos_token + content %}{% endif %}{{ content }}{% endfor %}")
LLAMA31_TEMPLATE = """{{- bos_token }}
{%- if messages[0]['role'] == 'system' %}
    {%- set system_message = messages[0]['content']|trim %}
    {%- set messages = messages[1:] %}
{%- else %}
    {%- set system_message = "" %}
{%- endif %}
{{- "<|start_header_id|>system<|end_header_id|>\\n\\n" }}
{{- "Cutting Knowledge Date: December 2023\\n" }}
{{- "Today Date: 26 Jul 2024\\n\\n" }}
{{- system_message }}
{{- "<|eot_id|>" }}
{%- for message in messages %}
    {{- '<|start_header_id|>' + message['role'] + '<|end_header_id|>\\n\\n'+ message['content'] | trim + '<|eot_id|>' }}
{%- endfor %}"""


def chats(count):
    """Chats of one to three turns, a third of them with a system message; odd text in what users say."""
    rows = [json.loads(line) for line in GSM8K.read_text().splitlines()]
    odd = ["\n\nwith lines before", "  spaces  ", "naïve €5 🐳 \u0301", "a <b> &amp; \\ \" '", "\ttab\r\n", "12345 67"]
    random.seed(5)
    made = []
    for i in range(count):
        messages = [{"role": "system", "content": "Be brief.\n"}] if i % 3 == 0 else []
        for turn in range(1 + i % 3):
            row = rows[(7 * i + turn) % len(rows)]
            messages.append({"role": "user", "content": row["question"] + random.choice(odd) if i % 2 else
                             random.choice(odd) + row["question"]})
            messages.append({"role": "assistant", "content": row["answer"]})
        made.append({"messages": messages, "id": i})
    return made


def write_formats(rows, folder):
    """The rows in every format; {name: path}."""
    table, files = pa.Table.from_pylist(rows), {}
    folder.mkdir()

    def path(name):
        files[name] = folder / name
        return files[name]

    path("rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    path("utf8.jsonl").write_text("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows))
    path("compact.json").write_text(json.dumps(rows))
    path("indented.json").write_text(json.dumps(rows, indent=4, ensure_ascii=False))
    path("lines.json").write_text("\n".join(json.dumps(row) for row in rows))
    for codec in ("none", "snappy", "gzip", "brotli", "zstd", "lz4"):
        pq.write_table(table, path(f"{codec}.parquet"), compression=codec, row_group_size=173)
    pq.write_table(table, path("one_group.parquet"), row_group_size=1 << 20, data_page_size=4096, use_dictionary=False)
    pq.write_table(table, path("v2.parquet"), data_page_version="2.0", version="2.6", row_group_size=64)
    large = pa.schema([field.with_type(pa.large_string()) if field.type == pa.string() else field for field in table.schema])
    pq.write_table(table.cast(large), path("large.parquet"))
    for codec in (None, "lz4", "zstd"):
        options = ipc.IpcWriteOptions(compression=codec)
        with ipc.new_file(path(f"file_{codec}.arrow"), table.schema, options=options) as writer:
            writer.write_table(table, max_chunksize=100)
        with ipc.new_stream(path(f"stream_{codec}.arrow"), table.schema, options=options) as writer:
            writer.write_table(table, max_chunksize=77)
    return files


def check_formats(work):
    """How many files of how many formats gave the same shards as the JSON lines."""
    gsm = [json.loads(line) for line in GSM8K.read_text().splitlines()[:900]]
    kinds = {"prompts": gsm, "chats": chats(300),
             "texts": [{"id": i, "text": row["question"] * 3, "url": None} for i, row in enumerate(gsm)]}
    equal = 0
    for kind, rows in kinds.items():
        options = dict(tokenizer=DATA / "tokenizers" / "gpt2", val_fraction=0, shard_tokens=50_000, max_seq_length=512)
        wanted = None
        for name, path in write_formats(rows, work / kind).items():
            output = work / f"{kind}-{name}.out"
            prepare([path], output, num_workers=1 + equal % 3, **options)
            found = shards(output)
            wanted = wanted or found
            if found != wanted:
                sys.exit(f"{kind}: {name} gave other shards than JSON lines")
            if len(found) < 2:
                sys.exit(f"{kind}: wanted several shards")
            equal += 1
    return equal


def render(template, messages):
    environment = jinja2.sandbox.ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True)
    return environment.from_string(template).render(messages=messages, bos_token="<|begin_of_text|>",
                                                    eos_token="<|im_end|>", add_generation_prompt=False)


def expected(tokenizer, template, messages, end, trim):
    """Ids of the whole text at once, and which of them are an answer or its end marker."""
    text = render(template, messages)
    encoding = tokenizer.encode(text, add_special_tokens=False)
    answers, at = [], 0
    for message in messages:
        content = message["content"].strip() if trim else message["content"]
        at = text.index(content, at)
        if message["role"] == "assistant":
            answers.append((at, at + len(content) + len(end)))
        at += len(content)
    in_loss = tuple(int(any(b <= start < e for b, e in answers)) for start, _ in encoding.offsets)
    return tuple(encoding.ids), in_loss


def check_templates(work):
    rows = chats(400)
    path = work / "chats.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    smol = smollm2_model.folder()
    smol_template = json.loads((smol / "tokenizer_config.json").read_text())["chat_template"]
    cases = {  # name: tokenizer, template, marker behind an answer, content is trimmed
        "qwen2": (QWEN, QWEN_TEMPLATE, "<|im_end|>", False),
        "smollm2": (smol, smol_template, "<|im_end|>", False),
        "llama3": (LLAMA, LLAMA_TEMPLATE, "<|eot_id|>", True),
        "llama31": (LLAMA, LLAMA31_TEMPLATE, "<|eot_id|>", True),
    }
    matched = 0
    for name, (folder, template, end, trim) in cases.items():
        tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
        padding = next(tokenizer.token_to_id(t) for t in ("<|endoftext|>", "<|end_of_text|>") if tokenizer.token_to_id(t))\
            if name != "smollm2" else tokenizer.token_to_id("<|endoftext|>")
        wanted = [expected(tokenizer, template, row["messages"], end, trim) for row in rows]
        if max(len(ids) for ids, _ in wanted) > LENGTH:
            sys.exit("a chat is longer than a sample: the comparison would be with cut ones")
        options = dict(tokenizer=folder, max_seq_length=LENGTH, val_fraction=0)
        prepare([path], work / name, chat_template=name, **options)
        if name != "llama31":  # the tokenizer files themselves say the others
            prepare([path], work / f"{name}-auto", **options)
            if shards(work / f"{name}-auto") != shards(work / name):
                sys.exit(f"auto did not choose {name}")
        found = documents(work / name, padding)
        if collections.Counter(found) != collections.Counter(wanted):
            missing = next(iter(collections.Counter(wanted) - collections.Counter(found)))
            sys.exit(f"{name}: no document has these ids and marks: {tokenizer.decode(missing[0], False)!r}\n{missing}")
        matched += len(found)
        prepare([path], work / f"{name}-all", chat_template=name, train_on="all", **options)
        if sorted(ids for ids, _ in documents(work / f"{name}-all", padding)) != sorted(ids for ids, _ in wanted):
            sys.exit(f"{name}: train_on all has other tokens")
        for ids, in_loss in documents(work / f"{name}-all", padding):
            if in_loss != (0,) + (1,) * (len(ids) - 1):
                sys.exit(f"{name}: train_on all masks some")
    return matched


def check_damage(work, rounds):
    """Runs on damaged files by how they ended."""
    files = write_formats(chats(120), work / "sound")
    random.seed(9)
    ends = collections.Counter()
    for name in ("snappy.parquet", "v2.parquet", "zstd.parquet", "file_None.arrow", "file_lz4.arrow", "stream_None.arrow"):
        sound = files[name].read_bytes()
        for i in range(rounds):
            data = bytearray(sound)
            if i % 4 == 0:
                del data[random.randrange(len(data)):]
            else:  # the metadata is at the end of Parquet and Arrow files, and at the start of streams
                low, high = random.choice([(0, 1000), (len(data) - 1500, len(data)), (0, len(data))])
                for _ in range(random.choice([1, 3, 20])):
                    data[random.randrange(max(low, 0), high)] = random.randrange(256)
            path = work / f"damaged{pathlib.Path(name).suffix}"
            path.write_bytes(data)
            done = run([path], work / "damaged.out", max_seq_length=256, max_skipped_rows=1)
            if done.returncode not in (0, 2, 5) or "Error" in done.stderr.split("octavo:")[0]:
                path.rename(work.parent / f"crash-{name}")
                sys.exit(f"{name}, round {i}: exit {done.returncode}\n{done.stderr[-2000:]}")
            ends[done.returncode] += 1
            run_clean(work / "damaged.out")
    return ends


def check_restarts(work):
    """Preparations that were killed between two shards and taken up to the same shards."""
    rows = [json.loads(line) for line in GSM8K.read_text().splitlines()]
    files = write_formats(rows, work / "restart")
    options = dict(tokenizer=DATA / "tokenizers" / "gpt2", shard_tokens=20_000, max_seq_length=512, val_fraction=0)
    taken_up = 0
    for name in ("rows.jsonl", "indented.json", "one_group.parquet", "zstd.parquet", "file_lz4.arrow", "stream_None.arrow"):
        output, whole = work / f"killed-{name}", work / f"whole-{name}"
        prepare([files[name]], whole, **options)
        with popen([files[name]], output, **options) as process:
            while process.poll() is None and len(list(output.glob("*.tok"))) < 10:
                time.sleep(0.001)
            process.kill()
        said = prepare([files[name]], output, **options)
        if shards(output) != shards(whole):
            sys.exit(f"{name}: other shards after a kill")
        taken_up += "(0 kept" not in said
    return taken_up


def run_clean(folder):
    if folder.exists():
        for path in folder.iterdir():
            path.unlink()
        folder.rmdir()


def check_memory(work):
    """Peak memory in MB of preparing one row group of 600 MB of text."""
    line = (DATA / "text" / "wikitext2_test.txt").read_text()[:1_000_000]
    schema = pa.schema([("text", pa.large_string())])
    path = work / "large.parquet"
    with pq.ParquetWriter(path, schema, compression="zstd", use_dictionary=False) as writer:
        # Rows as on the web: a row of a megabyte makes pages of a gigabyte, because writers count rows.
        table = pa.table({"text": [line[i * 10_000:][:10_000] for i in range(100)] * 600}, schema)
        writer.write_table(table, row_group_size=1 << 20)
    text_bytes = table.nbytes
    # A child begins with its parent's pages, and this process is large: a small one in between measures.
    measure = ("import resource, subprocess, sys; subprocess.run(sys.argv[1:], check=True, capture_output=True); "
               "print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss)")
    options = dict(tokenizer=DATA / "tokenizers" / "gpt2", num_workers=2)
    peak = subprocess.run([sys.executable, "-c", measure, *command([path], work / "large.out", options)],
                          capture_output=True, text=True, check=True).stdout
    return text_bytes / 1e6, int(peak) / 1e3


def main():
    need(GSM8K, QWEN, LLAMA, DATA / "tokenizers" / "gpt2")
    quick = "--quick" in sys.argv
    with tempfile.TemporaryDirectory() as name:
        work = pathlib.Path(name)
        equal = check_formats(work)
        print(f"formats_equal={equal}", flush=True)
        matched = check_templates(work)
        print(f"chats_equal={matched}", flush=True)
        taken_up = check_restarts(work)
        print(f"taken_up={taken_up}", flush=True)
        ends = check_damage(work, 8 if quick else 200)
        print(f"damaged={dict(ends)}", flush=True)
        text_mb, peak_mb = check_memory(work) if not quick else (0, 0)
    crashes = 0  # a crash ends the program above
    print(f"formats_equal={equal} chats_equal={matched} taken_up={taken_up} damaged_refused={ends[5] + ends[2]} damage_unseen={ends[0]} "
          f"crashes={crashes} text_mb={text_mb:.0f} peak_mb={peak_mb:.0f}")
    sys.exit(0 if quick or (peak_mb < 0.8 * text_mb and ends[5] > 0 and taken_up >= 4) else 1)


if __name__ == "__main__":
    main()
