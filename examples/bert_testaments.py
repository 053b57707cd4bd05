"""Trains a BERT classifier to tell verses of the Old Testament from verses of the New, with Hugging Face's Trainer in a
memory budget. Everything is made here: no downloads.

    scripts/kjv build/data/kjv.txt && python examples/bert_testaments.py --budget 40%
"""

from __future__ import annotations

import argparse
import random
import tempfile

import bible
import torch
from transformers import BertConfig, BertForSequenceClassification, EvalPrediction, Trainer, TrainingArguments

from remat.integrations.transformers import RematCallback


def collate(examples: list[tuple[list[int], int]]) -> dict[str, torch.Tensor]:
    longest = max(len(ids) for ids, _ in examples)
    ids = torch.tensor([ids + [bible.PADDING] * (longest - len(ids)) for ids, _ in examples])
    labels = torch.tensor([label for _, label in examples])
    return dict(input_ids=ids, attention_mask=(ids != bible.PADDING).long(), labels=labels)


def accuracy(result: EvalPrediction) -> dict[str, float]:
    return {"accuracy": float((result.predictions.argmax(-1) == result.label_ids).mean())}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", default=bible.DEFAULT, help="text that scripts/kjv wrote")
    parser.add_argument("--budget", default="40%", help='bytes ("6GiB"), or of plain\'s activation peak ("40%%")')
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--width", type=int, default=256)
    parser.add_argument("--layers", type=int, default=6)
    options = parser.parse_args()

    torch.manual_seed(1)
    testaments = bible.verses(options.data)
    vocabulary = bible.Vocabulary(testaments[0] + testaments[1], size=8192)
    examples = [
        ([bible.BEGIN, *vocabulary.encode(verse)[:63]], label)
        for label, testament in enumerate(testaments)
        for verse in testament
    ]
    random.Random(1).shuffle(examples)
    held_out = min(500, len(examples) // 5)
    config = BertConfig(
        vocab_size=vocabulary.size,
        hidden_size=options.width,
        intermediate_size=4 * options.width,
        num_hidden_layers=options.layers,
        num_attention_heads=max(1, options.width // 64),
        max_position_embeddings=64,
    )
    with tempfile.TemporaryDirectory() as folder:
        trainer = Trainer(
            model=BertForSequenceClassification(config),
            args=TrainingArguments(
                output_dir=folder,
                max_steps=options.steps,
                per_device_train_batch_size=options.batch,
                learning_rate=3e-4,
                logging_steps=max(1, options.steps // 10),
                save_strategy="no",
                report_to=[],
                disable_tqdm=True,
            ),
            train_dataset=examples[held_out:],
            eval_dataset=examples[:held_out],
            data_collator=collate,
            compute_metrics=accuracy,
            callbacks=[RematCallback(budget=options.budget)],
        )
        trainer.train()
        print(trainer.evaluate())


if __name__ == "__main__":
    main()
