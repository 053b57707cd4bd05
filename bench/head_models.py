"""Models whose logits are the peak, trained by `remat train --hf` with their head in tiles, beside plain: for bench/head.py."""

import json
import os
import re
import subprocess
import tempfile
from pathlib import Path

from machine import ROOT
from tokenizer import save_tokenizer

WARM_UP = 2
STEPS = 4


def save_gpt2(path):
    """GPT-2 small's shape and 50,257 words, weights from a seed."""
    import transformers

    transformers.GPT2LMHeadModel(transformers.GPT2Config()).save_pretrained(path)


def save_llama(path):
    """A Llama of 16 million parameters in its blocks, and 32,000 words."""
    import transformers

    config = transformers.LlamaConfig(
        hidden_size=512,
        intermediate_size=1408,
        num_hidden_layers=5,
        num_attention_heads=8,
        num_key_value_heads=4,
        vocab_size=32000,
        max_position_embeddings=8192,
        tie_word_embeddings=False,
    )
    transformers.LlamaForCausalLM(config).save_pretrained(path)


# Each with the shares of plain's activation peak that it is trained in, in percent, and the options beside --budget.
IN_FILE = "--page-gradients"
MODELS = {
    "gpt2": {"save": save_gpt2, "batch": 4, "seq": 256, "budgets": ((40, None), (25, None), (25, IN_FILE))},
    "llama": {"save": save_llama, "batch": 1, "seq": 8192, "budgets": ((10, None),)},
}


def train(build, model, directory, text, *options):
    """The exit code, what it said, the steps, and the CPU seconds of a run, which is a process of its own."""
    out = Path(directory).with_name("run.json")
    command = [build / "app/remat", "train", "--hf", directory, "--data", text, "--json", out, "--steps", STEPS]
    command += ["--batch", model["batch"], "--seq", model["seq"], *options]
    environment = os.environ | {"OMP_WAIT_POLICY": "passive"}
    child = subprocess.Popen(list(map(str, command)), stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, env=environment)
    said = child.stderr.read()
    _, status, used = os.wait4(child.pid, 0)
    child.returncode = os.waitstatus_to_exitcode(status)
    steps = json.loads(out.read_text())["steps"] if child.returncode == 0 else []
    return child.returncode, said, steps, used.ru_utime


def activations(steps):
    """The bytes that are alive when steps begin, and those that come on top."""
    baseline = max(step["baseline_bytes"] for step in steps[WARM_UP:])
    return baseline, max(step.get("report", step)["peak_bytes"] for step in steps[WARM_UP:]) - baseline


def row_of(name, what, run, plain):
    """A run beside plain's: peaks without what the optimizer takes after backward."""
    _, _, steps, cpu = run
    _, _, plain_steps, plain_cpu = plain
    (_, peak), (_, plain_peak) = activations(steps), activations(plain_steps)
    pairs = zip(steps[WARM_UP:], plain_steps[WARM_UP:])
    return {
        "model": name,
        "variant": what,
        "activation_peak_bytes": peak,
        "plain_activation_peak_bytes": plain_peak,
        "seconds": min(step["seconds"] for step in steps[WARM_UP:]),
        "ratio": sorted(own["seconds"] / other["seconds"] for own, other in pairs)[(STEPS - WARM_UP) // 2],
        "cpu_ratio_of_runs": cpu / plain_cpu,
        "head": steps[-1].get("head"),
        "same_bits": [step["loss_bits"] for step in steps] == [step["loss_bits"] for step in plain_steps],
    }


def measure(name, build):
    """The rows of one model: within shares of plain's activation peak, and within the budget that a refusal names, which
    includes the optimizer's update."""
    import torch

    model = MODELS[name]
    with tempfile.TemporaryDirectory() as folder:
        text, directory = Path(folder) / "kjv.txt", Path(folder) / name
        subprocess.run([ROOT / "scripts/kjv", text], check=True, capture_output=True)
        save_tokenizer(directory, text)
        torch.manual_seed(0)
        model["save"](directory)
        plain = train(build, model, directory, text, "--plain")
        if plain[0] != 0:
            raise RuntimeError(f"[head] plain {name} ended with code {plain[0]}: {plain[1]}")
        baseline, peak = activations(plain[2])
        named = None
        for share, option in model["budgets"]:
            more = [option, folder] if option else []
            variant = f"{share} %" + (", gradients in a file" if option else "")
            run = train(build, model, directory, text, "--budget", baseline + peak * share // 100, *more)
            if run[0] == 0:
                yield row_of(name, variant, run, plain)
                continue
            if run[0] != 3:
                raise RuntimeError(f"[head] {name} within {variant} ended with code {run[0]}: {run[1]}")
            named = named or re.search(r"--budget (\d+)", run[1])
            yield {"model": name, "variant": variant, "error": run[1].strip()}
        if named is not None:
            run = train(build, model, directory, text, "--budget", named.group(1))
            yield row_of(name, "as the refusal names", run, plain)
