"""Prompts for recordings: catches spliced questions that ask nothing, or that are one problem as it was."""

import random

from dlmspec.training.math_problems import sample_training_problem
from dlmspec.training.training_prompts import spliced_question


def test_spliced_questions_start_as_one_problem_and_ask_as_another():
    for seed in range(100):
        spliced = spliced_question(random.Random(seed))
        rng = random.Random(seed)
        first, second = (sample_training_problem(rng).question for _ in range(2))
        assert spliced not in (first, second)
        assert spliced.split(". ")[0] == first.split(". ")[0]
        assert spliced.split(". ")[-1] == second.split(". ")[-1]
