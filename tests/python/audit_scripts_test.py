"""python -m remat audit: scripts that it does not know, and bad use."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import textwrap
from importlib.util import find_spec
from pathlib import Path

import pytest

import remat
from remat.audit.hints import hint
from remat.audit.processes import keep_server
from remat.audit.result import Difference, Row

pytestmark = pytest.mark.usefixtures("one_thread")


@pytest.fixture(scope="module")
def server():
    """A process for all audits that has imported what the scripts do: once instead of in each run."""
    installed = [name for name in ("transformers.trainer", "lightning") if find_spec(name.partition(".")[0])]
    with keep_server(["colorsys", *installed]):
        yield


def script(folder, text, name="train.py"):
    path = folder / name
    path.write_text(textwrap.dedent(text))
    return path


LOOP = """
    import sys, torch
    from torch import nn
    from layers import block

    print("arguments", sys.argv[1:])
    if __name__ == "__main__":
        torch.set_num_threads(1)
        model = nn.Sequential(*(block() for _ in range(3)))
        optimizer = torch.optim.AdamW(model.parameters())
        data = torch.utils.data.TensorDataset(torch.randn(80, 8))
        for i, (x,) in enumerate(torch.utils.data.DataLoader(data, batch_size=4, shuffle=True, num_workers=int(sys.argv[1]))):
            optimizer.zero_grad()
            nn.functional.mse_loss(model(x), x).backward()
            try:
                optimizer.step()
            except Exception:
                pass
            assert i < 5
"""
LAYERS = """
    from torch import nn

    def block():
        return nn.Sequential(nn.Linear(8, 16), nn.GELU(), nn.Dropout(0.1), nn.Linear(16, 8))
"""
WAYS = """
    import functools, random
    import torch, remat
    from torch.utils.checkpoint import checkpoint

    def forgetful(model):
        for block in remat.find_blocks(model):
            block.forward = functools.partial(checkpoint, block.forward, use_reentrant=False, preserve_rng_state=False)

    def seedless():
        random.random()
"""


def test_a_script_that_nobody_wrote_for_it(server, tmp_path):
    script(tmp_path, LAYERS, "layers.py")
    ways = script(tmp_path, WAYS, "ways.py")
    path = script(tmp_path, LOOP)
    result = remat.audit(
        path,
        {"offload": "offload", "remat:100%": "remat:100%", "forgetful": f"{ways}:forgetful", "seedless": "ways:seedless"},
        steps=2,
        arguments=["1"],
    )
    assert [row.status for row in result.rows] == ["same", "same", "same", "differs", "differs"], result
    assert result.noise == 0 and result.steps == 2
    first = result.row("forgetful").first
    assert (first.step, first.kind, first.name) == (1, "gradient", "2.3.weight")
    assert result.row("forgetful").operator["module"] == "2.2"
    assert result.row("seedless").first.name == "random before the model's call"
    assert all(row.peak_bytes > 1000 for row in result.rows)


def test_the_trainer_of_a_small_gpt2(server, tmp_path):
    pytest.importorskip("transformers")
    pytest.importorskip("accelerate")
    path = script(
        tmp_path,
        """
        import torch
        from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainingArguments

        torch.set_num_threads(1)
        model = GPT2LMHeadModel(GPT2Config(n_layer=2, n_head=2, n_embd=16, vocab_size=31, n_positions=16))
        data = [{"input_ids": torch.randint(0, 31, (8,)), "labels": torch.randint(0, 31, (8,))} for _ in range(32)]
        arguments = TrainingArguments(
            output_dir=".", per_device_train_batch_size=2, gradient_accumulation_steps=2, report_to=[], use_cpu=True, save_strategy="no",
            disable_tqdm=True,
        )
        Trainer(model=model, train_dataset=data, args=arguments).train()
        """,
    )
    result = remat.audit(path, ["checkpoint", "remat:100%"], steps=2)
    assert result.same and result.noise == 0, result


def test_a_lightning_module_whose_training_step_calls_a_part_of_it(server, tmp_path):
    pytest.importorskip("lightning")
    path = script(
        tmp_path,
        """
        import lightning, torch
        from torch import nn

        class Module(lightning.LightningModule):
            def __init__(self):
                super().__init__()
                self.body = nn.Sequential(*(nn.Sequential(nn.Linear(8, 16), nn.Dropout(0.1), nn.Linear(16, 8)) for _ in range(2)))

            def training_step(self, batch, index):
                return self.body(batch[0]).square().mean()

            def configure_optimizers(self):
                return torch.optim.Adam(self.parameters())

        torch.set_num_threads(1)
        data = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(torch.randn(64, 8)), batch_size=8)
        trainer = lightning.Trainer(max_epochs=1, accelerator="cpu", logger=False, enable_checkpointing=False, enable_progress_bar=False)
        trainer.fit(Module(), data)
        """,
    )
    ways = script(tmp_path, WAYS, "ways.py")
    result = remat.audit(path, {"forgetful": f"{ways}:forgetful"}, steps=2)
    assert [row.status for row in result.rows] == ["same", "differs"] and result.noise == 0, result
    assert result.row("forgetful").first.name == "body.1.2.weight"


def command(*words, folder):
    environment = {**os.environ, "PYTHONPATH": str(Path(remat.__file__).parents[1])}  # the tests' may be relative
    words = [sys.executable, "-m", "remat", "audit", *map(str, words)]
    return subprocess.run(words, capture_output=True, text=True, cwd=folder, env=environment, timeout=300)


def test_the_command(tmp_path):
    script(tmp_path, LAYERS, "layers.py")
    script(tmp_path, LOOP)
    script(tmp_path, WAYS, "ways.py")
    words = ["train.py", "--steps", "2", "--ways", "plain,offload", "--way", "mine=ways.py:forgetful", "--json", "out.json"]
    run = command(*words, "--", "0", folder=tmp_path)
    assert run.returncode == 1, run.stderr
    assert "plain twice: same bits in" in run.stdout and "[audit] mine: " in run.stdout
    found = json.loads((tmp_path / "out.json").read_text())
    assert [row["status"] for row in found["rows"]] == ["same", "same", "differs"]
    assert found["rows"][2]["first"]["kind"] == "gradient" and found["rows"][2]["operator"]["phase"] == "recomputed"
    assert run.stdout.count("arguments") == 0  # what a script prints is not shown


def test_scripts_that_cannot_be_audited(server, tmp_path):
    def refused(text, **options):
        with pytest.raises(remat.Error) as error:
            remat.audit(script(tmp_path, text), **{"ways": ["offload"], **options})
        return str(error.value), getattr(error.value, "exit_code", 1)

    words, code = refused("import torch")
    assert "ended without a step of an optimizer" in words and code == 2
    words, code = refused("def fails():\n    raise ValueError('no data')\nfails()")
    assert "fails by itself, without any way: ValueError: no data" in words and "line 2, in fails" in words and code == 1
    words, code = refused("import sys\nsys.exit(4)")
    assert "exit code 4" in words and code == 1
    words, code = refused("import os\nos._exit(5)")
    assert "its process ended with status 5" in words and code == 1
    words, code = refused("import time\ntime.sleep(100)", timeout=0.2)
    assert "ended after 0.2 s" in words and code == 1
    words, code = refused("import torch", ways={"mine": "no_such.py:way"})
    assert "no_such.py cannot be imported" in words and code == 2
    words, code = refused("import torch", ways={"mine": "json:no_such"})
    assert "json has no function no_such" in words and code == 2


def test_a_way_is_not_blamed_for_what_its_file_imports(server, tmp_path):
    path = script(tmp_path, """
        import random, torch
        model = torch.nn.Linear(2, 2)
        (model(torch.randn(1, 2)).sum() * random.random()).backward()
        torch.optim.SGD(model.parameters()).step()
    """)
    ways = script(tmp_path, """
        import random, torch
        random.random(), torch.rand(1)  # as some packages do when they are imported

        def innocent(model):
            pass

        def drawing(model):
            random.random()
    """, "ways.py")
    result = remat.audit(path, {name: f"{ways}:{name}" for name in ("innocent", "drawing")}, steps=1)
    assert result.row("innocent").status == "same", result
    drawing = result.row("drawing")
    assert drawing.first.name == "random before the model's call" and drawing.operator is None, result


def test_a_kept_process_has_imported_what_it_is_told_to(server, tmp_path):
    path = script(tmp_path, """
        import sys, torch
        if "colorsys" in sys.modules:
            model = torch.nn.Linear(2, 2)
            model(torch.ones(1, 2)).sum().backward()
            torch.optim.SGD(model.parameters()).step()
    """)
    assert remat.audit(path, ["plain"], steps=1).same


def test_a_kept_process_that_cannot_import(capfd):
    with pytest.raises(remat.Error, match="imports torch, no_such_module ended at once"), keep_server(["no_such_module"]):
        pass
    assert "No module named 'no_such_module'" in capfd.readouterr().err


def test_exit_codes_of_bad_use(tmp_path):
    assert command("no_such.py", folder=tmp_path).returncode == 2
    script(tmp_path, "import torch")
    run = command("train.py", "--ways", "nothing", folder=tmp_path)
    assert run.returncode == 2 and "there is no way 'nothing'" in run.stderr


def test_what_is_said_of_a_compiled_model_that_differs():
    first = Difference(1, "step 1", "loss", "loss 1", 1, 1, 1e-7, 1)
    assert "fallback_random" in hint(Row("compile:0.5", "differs", 1, 1, first))
    assert str(first) == "step 1: loss 1, 1 of 1 elements, by up to 1e-07 (1 ULPs)"
