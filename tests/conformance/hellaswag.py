"""HellaSwag by transformers and PyTorch: what our own evaluation is held against.

Prompts and scores as lm-eval's task `hellaswag` has them: the label, ": ", ctx_a, " " and ctx_b capitalised, cleaned of
WikiHow's marks; an ending's score is the log likelihood of " " + ending. `pred` is the ending with the highest score,
`pred_norm` the one with the highest score per character of the ending.
"""
import itertools
import json
import re
import time

import torch

TOKENS_AT_ONCE = 1024  # of a padded batch


def clean(text):
    text = text.strip().replace(" [title]", ". ")
    return re.sub(r"\[.*?\]", "", text).replace("  ", " ")


def prompt_of(row):
    """(context, the four endings)"""
    context = row["activity_label"] + ": " + row["ctx_a"] + " " + row["ctx_b"].capitalize()
    return clean(context), [clean(ending) for ending in row["endings"]]


def read_rows(path, limit):
    with open(path, encoding="utf-8") as file:
        return [json.loads(line) for line in itertools.islice(file, limit)]


def encode(tokenizer, context, ending):
    """(ids, how many of them belong to the context). The ending's first token has the space before it."""
    ids = lambda text: tokenizer(text, add_special_tokens=False).input_ids
    return ids(context + " " + ending), len(ids(context))


def score_all(model, items):
    """Sum of the log likelihoods of every item's ids after the context; longest first, so that little is padding."""
    scores, order = [0.0] * len(items), sorted(range(len(items)), key=lambda i: -len(items[i][0]))
    done, total, start = 0, sum(len(ids) for ids, _ in items), time.monotonic()
    while order:
        longest = len(items[order[0]][0])
        batch, order = order[:max(1, TOKENS_AT_ONCE // longest)], order[max(1, TOKENS_AT_ONCE // longest):]
        ids, mask = torch.zeros(len(batch), longest, dtype=torch.long), torch.zeros(len(batch), longest)
        for row, i in enumerate(batch):
            ids[row, :len(items[i][0])], mask[row, :len(items[i][0])] = torch.tensor(items[i][0]), 1
        with torch.inference_mode():
            hidden = model.model(ids, attention_mask=mask).last_hidden_state
            for row, i in enumerate(batch):
                begin, end = items[i][1], len(items[i][0])
                logits = model.lm_head(hidden[row, begin - 1:end - 1]).log_softmax(1)
                scores[i] = logits.gather(1, ids[row, begin:end, None]).sum().item()
        done += sum(len(items[i][0]) for i in batch)
        print(f"{done}/{total} tokens in {time.monotonic() - start:.0f} s", flush=True)
    return scores


def evaluate(model, tokenizer, rows):
    """[{row, pred, pred_norm, label, scores}]"""
    prompts = [prompt_of(row) for row in rows]
    items = [encode(tokenizer, context, ending) for context, endings in prompts for ending in endings]
    scores, results = score_all(model, items), []
    for number, (row, (_, endings)) in enumerate(zip(rows, prompts)):
        sums = scores[4 * number:4 * number + 4]
        normed = [s / len(ending) for s, ending in zip(sums, endings)]
        results.append(dict(row=number, pred=sums.index(max(sums)), pred_norm=normed.index(max(normed)),
                            label=int(row["label"]), scores=[round(s, 3) for s in sums]))
    return results


def accuracy(results, key):
    return sum(r[key] == r["label"] for r in results) / len(results)
