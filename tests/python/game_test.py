"""`remat train --task rl`: an agent learns a game, and the same one within a budget."""

import json
import os
import signal
import subprocess
import time

import pytest

COMMAND = os.environ.get("REMAT_COMMAND")
if not COMMAND:
    pytest.skip("REMAT_COMMAND names no command: run these by ctest", allow_module_level=True)

ENVIRONMENT = {**os.environ, "OMP_NUM_THREADS": "1"}  # networks this small gain nothing from more


def play(path, *words, out="result"):
    result = path / f"{out}.json"
    done = subprocess.run([COMMAND, "train", "--task", "rl", "--json", result, *map(str, words)], env=ENVIRONMENT,
                          capture_output=True, text=True, cwd=path)
    return done, json.loads(result.read_text()) if done.returncode == 0 else {}


def losses(report):
    return [step["loss_bits"] for step in report["steps"]]


def test_learns_to_catch(tmp_path):
    plain, report = play(tmp_path, "--game", "catch", "--steps", 2000, "--seed", 1, "--plain")
    assert plain.returncode == 0, plain.stderr
    evaluation = report["evaluation"]
    assert evaluation["before"] < 0 and evaluation["after"] > 0.5, evaluation
    assert f"random actions: {evaluation['before']:.2f} -> {evaluation['after']:.2f}" in plain.stdout
    assert len(losses(report)) == 2000


def test_learns_to_balance(tmp_path):
    plain, report = play(tmp_path, "--steps", 5000, "--schedule", "cosine", "--seed", 1, "--plain")
    assert plain.returncode == 0, plain.stderr
    evaluation = report["evaluation"]
    assert evaluation["before"] < 30 and evaluation["after"] > 60, evaluation


@pytest.mark.parametrize("words, budget", [
    (["--game", "catch"], "60%"), (["--game", "cart-pole", "--schedule", "cosine"], "50%")])
def test_a_budget_changes_no_bit(tmp_path, words, budget):
    """The steps of a game are alike: a hundred, in which the target network is copied twice, show what thousands would."""
    words = [*words, "--steps", 100, "--seed", 1]
    plain, report = play(tmp_path, *words, "--plain")
    assert plain.returncode == 0, plain.stderr
    within, other = play(tmp_path, *words, "--budget", budget)
    assert within.returncode == 0, within.stderr
    assert other["evaluation"] == report["evaluation"] and other["returns"] == report["returns"]
    assert losses(other) == losses(report) and len(losses(report)) == 100
    assert sum(step["report"]["operators_replayed"] for step in other["steps"]) > 0


def test_the_seed_decides(tmp_path):
    runs = [play(tmp_path, "--game", "catch", "--steps", 40, "--seed", seed)[1] for seed in (1, 1, 2)]
    assert losses(runs[0]) == losses(runs[1]) != losses(runs[2])
    assert runs[0]["returns"] == runs[1]["returns"] != runs[2]["returns"]


def test_a_budget_that_is_too_small_is_refused_with_the_next(tmp_path):
    done, _ = play(tmp_path, "--game", "catch", "--steps", 5, "--budget", "1%")
    assert done.returncode == 3 and "give --budget" in done.stderr, done.stderr


@pytest.mark.parametrize("game", ["cart-pole", "catch"])
def test_continues_from_a_checkpoint_with_the_same_bits(tmp_path, game):
    words = ["--game", game, "--seed", 3, "--budget", "60%"]
    _, whole = play(tmp_path, *words, "--steps", 160)
    first, _ = play(tmp_path, *words, "--steps", 70, "--checkpoint", "game.ckpt", "--checkpoint-every", 30)
    assert first.returncode == 0, first.stderr
    done, rest = play(tmp_path, *words, "--steps", 160, "--checkpoint", "game.ckpt", "--resume")
    assert done.returncode == 0 and "resumed after step 70" in done.stdout, done.stderr
    assert losses(rest) == losses(whole)[70:] and rest["returns"] == whole["returns"]
    assert rest["evaluation"]["after"] == whole["evaluation"]["after"]
    done, none = play(tmp_path, *words, "--steps", 160, "--checkpoint", "game.ckpt", "--resume")
    assert done.returncode == 0 and "no step to take" in done.stdout, done.stderr
    assert none["steps"] == [] and none["evaluation"]["after"] == whole["evaluation"]["after"]
    done, _ = play(tmp_path, *words[:3], 4, "--steps", 200, "--checkpoint", "game.ckpt", "--resume")
    assert done.returncode == 1 and "is of another training: seed 3 (here 4)" in done.stderr, done.stderr
    done, _ = play(tmp_path, *words, "--steps", 200, "--checkpoint", "game.ckpt")
    assert done.returncode == 2 and "'game.ckpt' exists" in done.stderr, done.stderr


def test_a_signal_ends_it_with_what_was_reached(tmp_path):
    words = ["--game", "catch", "--plain"]
    process = subprocess.Popen([COMMAND, "train", "--task", "rl", *words, "--steps", "1000000", "--json", "stopped.json"],
                               env=ENVIRONMENT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=tmp_path)
    for line in process.stdout:
        if "step" in line or "/1000000" in line:
            break
    time.sleep(0.2)
    process.send_signal(signal.SIGINT)
    out, _ = process.communicate(timeout=120)
    assert process.returncode == 128 + signal.SIGINT
    assert "mean return of 100 others" in out and "saved in remat-interrupted.ckpt; continue with:" in out, out
    stopped = losses(json.loads((tmp_path / "stopped.json").read_text()))
    steps = len(stopped) + 20
    done, rest = play(tmp_path, *words, "--steps", steps, "--checkpoint", "remat-interrupted.ckpt", "--resume")
    assert done.returncode == 0, done.stderr
    _, whole = play(tmp_path, *words, "--steps", steps)
    assert stopped + losses(rest) == losses(whole)


@pytest.mark.parametrize("words, message", [
    (["--data", "x"], "--data has no effect with --task rl"),
    (["--resume"], "--resume and --checkpoint-every need a file"),
    (["--model", "gpt"], "--task rl needs --model dqn, not gpt"),
    (["--game", "chess"], "'chess' is none of cart-pole, catch"),
    (["--plain", "--budget", "40%"], "--budget has no effect with --plain"),
    (["--task", "next-token", "--model", "dqn"], "--model dqn needs --task rl"),
    (["--task", "next-token", "--game", "catch"], "--game has no effect with --task next-token"),
])
def test_options_that_contradict_each_other_are_refused(tmp_path, words, message):
    done, _ = play(tmp_path, *words)
    assert done.returncode == 2 and message in done.stderr, done.stderr
