"""The cuts with which a step under a budget is predicted to be fastest."""

from __future__ import annotations

import random
from itertools import product

import pytest

from remat.partition_budget import Option, RecordedStep, choose

SHARES = (1.0, 0.5, 0.3, 0.1)
# A transformer's blocks, as measured: seconds, and bytes saved.
BLOCKS = [Option(*each) for each in zip(SHARES, (3.40, 3.37, 3.63, 3.89), (794, 415, 264, 113), (0, 32, 44, 57))]


def recorded(budget, least=97):
    """Recomputing frees the first bytes cheaply and the last dearly."""
    return RecordedStep(budget, 815, least, [(97, 3.1), (204, 1.3), (334, 0.9), (430, 0.5), (620, 0.2), (815, 0.0)])


@pytest.mark.parametrize(("budget", "share"), [(None, 0.5), (815, 0.5), (440, 0.5), (330, 0.3), (200, 0.1)])
def test_the_least_of_what_cuts_and_recomputing_take(budget, share):
    assert [each.share for each in choose([BLOCKS], None if budget is None else recorded(budget))] == [share]


def test_of_times_that_are_alike_the_one_that_saves_less():
    options = [Option(1.0, 1.0, 100, 0), Option(0.8, 1.015, 80, 20), Option(0.5, 1.03, 50, 50)]
    assert [each.share for each in choose([options], None)] == [0.8]


def test_the_peak_has_what_one_backward_makes_again():
    options = [Option(1.0, 1.0, 400, 0), Option(0.3, 1.1, 200, 190), Option(0.1, 1.2, 100, 10)]
    assert [each.share for each in choose([options], recorded(625))] == [0.1]


def test_backward_has_room_for_what_a_cut_does_not_save():
    for least, share in ((97, 0.1), (200 - 57, 0.1), (200 - 56, 0.3), (200 - 31, 1.0), (250, 1.0)):
        assert [each.share for each in choose([BLOCKS], recorded(200, least))] == [share]


def test_each_graph_has_its_own():
    """What one graph saves costs much time to compute again, what the other saves costs none."""
    dear = [Option(1.0, 1.0, 400, 0), Option(0.1, 3.0, 100, 1)]
    cheap = [Option(1.0, 1.0, 400, 0), Option(0.1, 1.1, 100, 1)]
    assert [each.share for each in choose([dear, cheap], recorded(520))] == [1.0, 0.1]


def test_seconds_between_plans_are_between_theirs():
    step = recorded(97)
    assert step.recompute_seconds(815) == pytest.approx(3.1)
    assert step.recompute_seconds(2000) == pytest.approx(3.1)
    assert step.recompute_seconds(382) == pytest.approx(3.1 - 0.7)
    assert step.recompute_seconds(50) == 0


def seconds_of(graphs, choice, step):
    less = sum(options[0].saved_bytes - each.saved_bytes for options, each in zip(graphs, choice))
    peak = step.plain_peak - less + max(each.rebuilt_bytes for each in choice)
    return sum(each.seconds for each in choice) + step.recompute_seconds(peak)


def test_random_graphs_take_little_more_than_the_best_of_all_choices():
    excess = []
    for seed in range(200):
        dice = random.Random(seed)
        graphs = []
        for _ in range(dice.randint(1, 4)):
            saved, seconds, options = dice.randint(60, 300), dice.uniform(0.5, 2), []
            for share in SHARES:
                options.append(Option(share, seconds, saved, dice.randint(0, 40) if options else 0))
                saved, seconds = round(saved * dice.uniform(0.4, 1)), seconds * dice.uniform(0.95, 1.3)
            graphs.append(options)
        step = recorded(dice.randint(150, 800), dice.randint(97, 140))
        chosen = seconds_of(graphs, choose(graphs, step), step)
        fitting = [[each for each in options if each.rebuilt_bytes <= step.budget - step.least_peak] for options in graphs]
        best = min(seconds_of(graphs, choice, step) for choice in product(*fitting))
        assert chosen <= seconds_of(graphs, [options[0] for options in graphs], step) * 1.021
        excess.append(chosen / best - 1)
    assert sum(excess) / len(excess) < 0.02 and max(excess) < 0.25
