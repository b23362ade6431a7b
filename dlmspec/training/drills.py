"""Bare equations, densely packed: a small model copies numbers soon but needs many examples to calculate.

Half of them are the equations of sampled word problems, so that they have the problems' numbers; the others cover
the problems' bounds evenly (results in 2..999, products with a factor below 10, exact divisions below 10).
"""

import random
import re

from dlmspec.training.math_problems import sample_training_problem, step_value

EQUATION = re.compile(r"\d+ [-+*/] \d+ = (\d+)")


def sample_equation(rng: random.Random) -> str:
    """One equation: of a training problem, or drawn evenly over the bounds."""
    if rng.random() < 0.5:
        return rng.choice([match[0] for match in EQUATION.finditer(sample_training_problem(rng).solution)])
    return _even_equation(rng)


def _even_equation(rng: random.Random) -> str:
    operator = rng.choice("+-*/")
    while True:
        left, right = (rng.randrange(1, 10 ** rng.choice((2, 2, 3))) for _ in range(2))
        if operator == "*":
            left, right = rng.sample((rng.randrange(2, 10), rng.randrange(2, 100)), 2)
        elif operator == "/":
            right = rng.randrange(2, 10)
            left = right * rng.randrange(2, 200)
        value = step_value(left, operator, right)
        if value is not None and left <= 999:
            return f"{left} {operator} {right} = {value}"


def result_spans(text: str) -> tuple[list[tuple[int, int]], list[tuple[int, int]]]:
    """Character spans of the results of all equations in `text`, and of every later mention of those numbers."""
    results, mentions = [], []
    for match in EQUATION.finditer(text):
        results.append(match.span(1))
        later = re.compile(rf"(?<!\d){match[1]}(?!\d)")
        mentions += [m.span() for m in later.finditer(text, match.end(1))]
    return results, mentions
