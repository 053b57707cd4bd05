"""What bench/audits.py audits: audited_training.py MODEL trains one of three small models of transformers' with AdamW, as
a user would, on made-up data. It knows nothing of audits."""

import sys

import torch
import transformers

STEPS = 3
WORDS, TOKENS = 4096, 128


def gpt2():
    config = transformers.GPT2Config(n_layer=4, n_embd=192, n_head=4, vocab_size=WORDS, n_positions=TOKENS, use_cache=False)
    return transformers.GPT2LMHeadModel(config), texts(4)


def resnet():
    config = transformers.ResNetConfig(embedding_size=32, hidden_sizes=[32, 64, 128, 256], depths=[3, 4, 6, 3], num_labels=10)
    return transformers.ResNetForImageClassification(config), lambda: {
        "pixel_values": torch.randn(8, 3, 64, 64),
        "labels": torch.randint(10, (8,)),
    }


def lora():
    from peft import LoraConfig, get_peft_model

    config = transformers.LlamaConfig(
        vocab_size=WORDS, hidden_size=192, intermediate_size=512, num_hidden_layers=4, num_attention_heads=4,
        num_key_value_heads=2, max_position_embeddings=TOKENS, use_cache=False,
    )  # fmt: skip
    adapters = LoraConfig(r=8, lora_dropout=0.1, target_modules=["q_proj", "v_proj"], task_type="CAUSAL_LM")
    return get_peft_model(transformers.LlamaForCausalLM(config), adapters), texts(4)


def texts(batch):
    def draw():
        tokens = torch.randint(WORDS, (batch, TOKENS))
        return {"input_ids": tokens, "labels": tokens}

    return draw


def main():
    model, batch = {"gpt2": gpt2, "resnet": resnet, "lora": lora}[sys.argv[1]]()
    model.train()
    optimizer = torch.optim.AdamW([parameter for parameter in model.parameters() if parameter.requires_grad], lr=1e-3)
    for _ in range(STEPS):
        optimizer.zero_grad()
        model(**batch()).loss.backward()
        optimizer.step()


if __name__ == "__main__":
    main()
