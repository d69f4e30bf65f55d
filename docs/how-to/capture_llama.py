"""A small Llama of transformers that trains for three steps: what docs/how-to/capture.md captures a step of."""
import torch
from transformers import LlamaConfig, LlamaForCausalLM

torch.manual_seed(1)
model = LlamaForCausalLM(LlamaConfig(vocab_size=1024, hidden_size=256, intermediate_size=704, num_hidden_layers=2,
                                     num_attention_heads=4, num_key_value_heads=2)).to(torch.bfloat16).train()
with torch.no_grad():  # as trained heads are: sure of few tokens, so that the gradients of all others are tiny
    model.lm_head.weight.mul_(100)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
for _ in range(3):
    ids = torch.randint(0, 1024, (4, 256))
    model(input_ids=ids, labels=ids).loss.backward()
    optimizer.step()
    optimizer.zero_grad()
