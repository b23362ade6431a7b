"""Tests of the word-problem generator.

They catch a wrong or out-of-range equation, a solution whose last result is not its answer, a number that
the question never gives, broken text (unfilled fields, stray brackets, double spaces, non-ASCII), documents
too long for the model's context, a lopsided set of templates, text that depends on anything but the seed,
and an answer parser that takes the wrong number.
"""

import random
import re
from collections import Counter
from itertools import pairwise

import pytest

from dlmspec.training.math_problems import (
    TEMPLATES,
    MathProblem,
    Template,
    document_text,
    extract_answer,
    generate_problem,
    is_held_out_question,
    prompt_text,
    sample_problem,
    sample_training_problem,
    step_value,
)
from dlmspec.training.math_words import FEMALE_NAMES, MALE_NAMES

_EQUATION = re.compile(r"(\d+) ([-+*/]) (\d+) = (\d+)")
_SEEDS = range(200)


def _check_equation(left: int, operator: str, right: int, result: int) -> None:
    assert 0 <= result <= 999
    if operator == "+":
        assert left + right == result
    elif operator == "-":
        assert left - right == result
    elif operator == "*":
        assert left * right == result
        assert min(left, right) < 10
        assert max(left, right) < 100
    else:
        assert 0 < right < 10
        assert left < 1000
        assert divmod(left, right) == (result, 0)


def _check_numbers(problem: MathProblem, template: Template) -> None:
    equations = _EQUATION.findall(problem.solution)
    assert len(equations) == template.num_steps
    given = [int(number) for number in re.findall(r"\d+", problem.question)]
    assert len(given) == len(template.ranges)
    assert all(2 <= number < 100 for number in given)
    known = set(given)
    for left, operator, right, result in equations:
        assert {int(left), int(right)} <= known
        _check_equation(int(left), operator, int(right), int(result))
        known.add(int(result))
    assert int(equations[-1][3]) == problem.answer
    # Every number of the solution belongs to an equation or to the closing sentence.
    assert len(re.findall(r"\d+", problem.solution)) == 3 * len(equations) + 1


def _check_text(problem: MathProblem) -> None:
    document = document_text(problem)
    assert document.isascii()
    assert not re.search(r"[{}\[\]|]|  |\n.*\n| [.,?]|\s$", document)
    assert problem.question.endswith("?")
    assert problem.question.count("?") == 1
    assert 25 <= len(problem.question.split()) <= 60
    assert len(document.split()) <= 130
    assert problem.solution.endswith(f" The answer is {problem.answer}.")
    assert extract_answer(document) == problem.answer


@pytest.mark.parametrize("template", TEMPLATES, ids=lambda template: template.name)
def test_every_problem_is_right_and_well_formed(template: Template) -> None:
    for seed in _SEEDS:
        problem = generate_problem(random.Random(seed), template)
        assert problem.template == template.name
        _check_numbers(problem, template)
        _check_text(problem)


@pytest.mark.parametrize("template", TEMPLATES, ids=lambda template: template.name)
def test_every_template_has_many_number_choices(template: Template) -> None:
    problems = [generate_problem(random.Random(seed), template) for seed in _SEEDS]
    assert len({problem.question for problem in problems}) > 190
    # A number that is always the same would let a model learn the answer by rote.
    assert len({problem.answer for problem in problems}) >= 15


def test_templates_are_many_distinct_and_spread_over_step_counts() -> None:
    held_out = [template for template in TEMPLATES if template.held_out]
    training = [template for template in TEMPLATES if not template.held_out]
    assert len(TEMPLATES) >= 135
    assert len(held_out) >= 14
    assert len({template.name for template in TEMPLATES}) == len(TEMPLATES)
    for group in (held_out, training):
        steps = Counter(template.num_steps for template in group)
        assert set(steps) == {2, 3, 4}
        assert min(steps.values()) >= len(group) // 4
        operators = Counter(step.operator for template in group for step in template.steps)
        assert min(operators[operator] for operator in "+-*/") >= len(group) // 3
    phrasings = [phrasing for template in TEMPLATES for phrasing in template.phrasings]
    assert len(set(phrasings)) == len(phrasings)


def test_some_templates_have_a_distractor() -> None:
    for held_out in (False, True):
        group = [template for template in TEMPLATES if template.held_out == held_out]
        with_unused = [
            template
            for template in group
            if {field for field, _, _ in template.ranges}
            - {operand for step in template.steps for operand in (step.left, step.right)}
        ]
        assert len(with_unused) >= 2


def test_names_are_many_and_distinct() -> None:
    names = FEMALE_NAMES + MALE_NAMES
    assert len(set(names)) == len(names) >= 60


def test_same_seed_gives_same_problem_and_groups_do_not_mix() -> None:
    held_out_names = {template.name for template in TEMPLATES if template.held_out}
    for held_out in (False, True):
        first = random.Random(7)
        second = random.Random(7)
        problems = [sample_problem(first, held_out=held_out) for _ in range(500)]
        assert problems == [sample_problem(second, held_out=held_out) for _ in range(500)]
        assert all((problem.template in held_out_names) == held_out for problem in problems)
        assert len({problem.template for problem in problems}) >= 14
        assert problems != [sample_problem(random.Random(8), held_out=held_out) for _ in range(500)]


def test_prompt_and_document_text() -> None:
    problem = MathProblem("tale", "How many?", "It is 1 + 2 = 3. The answer is 3.", 3)
    assert prompt_text(problem) == prompt_text("How many?") == "Question: How many?\nAnswer:"
    assert document_text(problem) == "Question: How many?\nAnswer: It is 1 + 2 = 3. The answer is 3."


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("So it is 4 + 5 = 9. The answer is 9.", 9),
        ("The answer is 12. No: 3 * 5 = 15. The answer is 15. 99", 15),
        ("The answer is 120", 120),
        ("The answer is\n7.", 7),
        ("The answer is -3.", -3),
        ("The answer is 8. The answer is", None),
        ("The answer is unknown.", None),
        ("9 + 1 = 10.", None),
        ("", None),
    ],
)
def test_extract_answer(text: str, expected: int | None) -> None:
    assert extract_answer(text) == expected


def test_chains_are_problems_of_many_wordings():
    """Composed stories differ in wording, their equations hold, and each step goes on from the one before."""
    rng = random.Random(11)
    problems = [sample_training_problem(rng, chain_share=1.0) for _ in range(300)]
    assert {problem.template for problem in problems} == {"chain"}
    assert len({re.sub(r"\d+", "#", problem.question) for problem in problems}) > 290
    for problem in problems:
        equations = re.findall(r"(\d+) ([-+*/]) (\d+) = (\d+)", problem.solution)
        assert 1 <= len(equations) <= 3
        for left, operator, right, result in equations:
            assert step_value(int(left), operator, int(right)) == int(result)
        for (_, _, _, result), (left, _, _, _) in pairwise(equations):
            assert left == result, "each step goes on from the one before"
        assert extract_answer(problem.solution) == problem.answer == int(equations[-1][3])
        assert not re.search(r"[{}|\[\]]", problem.question + problem.solution)
        assert not is_held_out_question(problem.question)
