"""Prompts for recordings: catches spliced questions that ask nothing, or that are one problem as it was."""

import random

from dlmspec.training.training_prompts import spliced_question


def test_spliced_questions_start_as_one_problem_and_ask_as_another():
    rng = random.Random(3)
    questions = [spliced_question(rng) for _ in range(300)]
    assert all(question.endswith("?") for question in questions)
    assert sum(question.count(".") + 1 >= 2 for question in questions) > 270
    assert len(set(questions)) == len(questions)
