"""A Trainer of Lightning's for tests: one epoch on the CPU, which prints and writes nothing."""

from __future__ import annotations

import lightning


def make_trainer(path, callback, **options):
    """`callback`: None for none. `path`: where Lightning may leave files all the same."""
    return lightning.Trainer(
        max_epochs=1,
        accelerator="cpu",
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        default_root_dir=path,
        callbacks=[] if callback is None else [callback],
        **options,
    )
