"""Multi-step arithmetic word problems from templates, to train and evaluate a small language model.

Contract: a problem is a function of the random generator and the template alone. Its numbers obey fixed
bounds (see `step_value`), and its solution is right by construction: the equations are computed and
rendered here, and a template's text only says where they go. Held-out templates tell stories that training
never sees; names, objects and number ranges are shared between both groups.

The notation of the templates is described in `math_templates`, which holds data for training, as do
`math_templates_trade`, `math_templates_people` and `math_templates_work`; `math_templates_held_out` holds the
rest, and `math_words` the names and nouns.
"""

import random
import re
import zlib
from dataclasses import dataclass

from dlmspec.training.math_chains import compose_chain
from dlmspec.training.math_templates import TRAINING_TEMPLATES
from dlmspec.training.math_templates_held_out import HELD_OUT_TEMPLATES
from dlmspec.training.math_templates_people import PEOPLE_TEMPLATES
from dlmspec.training.math_templates_trade import TRADE_TEMPLATES
from dlmspec.training.math_templates_work import WORK_TEMPLATES
from dlmspec.training.math_words import FEMALE_NAMES, MALE_NAMES, NOUNS, plural, singular

_MAX_TRIES = 20_000
_MAX_RESULT = 999
_ANSWER = re.compile(r"The answer is\s+(-?\d+)")
_CHOICE = re.compile(r"\[([^\]]*)\]")
_HEADER = re.compile(r"# (\w+):(.*)")
_STEP = re.compile(r"(\w+) = (\w+) ([-+*/]) (\w+): (.+)")
_PRONOUNS = {
    "female": {"she": "she", "She": "She", "her": "her", "Her": "Her", "obj": "her"},
    "male": {"she": "he", "She": "He", "her": "his", "Her": "His", "obj": "him"},
}


@dataclass(frozen=True, slots=True)
class MathProblem:
    """A question, its worked solution (closing with the answer) and the answer itself."""

    template: str
    question: str
    solution: str
    answer: int


@dataclass(frozen=True, slots=True)
class Step:
    """`result = left operator right` over named values; `sentence` has `{eq}` where the equation goes."""

    result: str
    left: str
    operator: str
    right: str
    sentence: str


@dataclass(frozen=True, slots=True)
class Template:
    """A kind of story: its phrasings, the nouns and numbers they need, and the steps of the solution."""

    name: str
    held_out: bool
    nouns: tuple[tuple[str, str], ...]  # (field, noun list)
    ranges: tuple[tuple[str, int, int], ...]  # (field, least, greatest), both included
    orders: tuple[tuple[str, str], ...]  # (x, y): the number x must be less than the number y
    phrasings: tuple[str, ...]
    steps: tuple[Step, ...]

    @property
    def num_steps(self) -> int:
        """Number of arithmetic steps in the solution."""
        return len(self.steps)


def _parse_header(
    text: str,
) -> tuple[list[tuple[str, str]], list[tuple[str, int, int]], list[tuple[str, str]]]:
    """Split a header's fields into nouns, number ranges and order conditions."""
    nouns: list[tuple[str, str]] = []
    ranges: list[tuple[str, int, int]] = []
    orders: list[tuple[str, str]] = []
    for part in text.split():
        if "<" in part:
            small, _, large = part.partition("<")
            orders.append((small, large))
            continue
        field, _, value = part.partition("=")
        if value in NOUNS:
            nouns.append((field, value))
        else:
            least, greatest = value.split("-")
            ranges.append((field, int(least), int(greatest)))
    return nouns, ranges, orders


def _parse_template(block: str, held_out: bool) -> Template:
    """Read one block of the notation that `math_templates` describes."""
    header, *lines = re.sub(r"\n {2,}", " ", block.strip()).split("\n")
    match = _HEADER.fullmatch(header)
    if match is None:
        raise ValueError(f"bad template header: {header!r}")
    nouns, ranges, orders = _parse_header(match[2])
    phrasings: list[str] = []
    steps: list[Step] = []
    for line in lines:
        if line.startswith("? "):
            phrasings.append(line[2:])
            continue
        step = _STEP.fullmatch(line)
        if step is None or step[5].count("{eq}") != 1:
            raise ValueError(f"bad line in template {match[1]}: {line!r}")
        steps.append(Step(step[1], step[2], step[3], step[4], step[5]))
    return Template(
        name=match[1],
        held_out=held_out,
        nouns=tuple(nouns),
        ranges=tuple(ranges),
        orders=tuple(orders),
        phrasings=tuple(phrasings),
        steps=tuple(steps),
    )


def _parse_templates(text: str, *, held_out: bool) -> tuple[Template, ...]:
    """Read templates that blank lines set apart."""
    return tuple(_parse_template(block, held_out) for block in text.strip().split("\n\n"))


TEMPLATES: tuple[Template, ...] = (
    *_parse_templates(TRAINING_TEMPLATES, held_out=False),
    *_parse_templates(TRADE_TEMPLATES, held_out=False),
    *_parse_templates(PEOPLE_TEMPLATES, held_out=False),
    *_parse_templates(WORK_TEMPLATES, held_out=False),
    *_parse_templates(HELD_OUT_TEMPLATES, held_out=True),
)


def step_value(left: int, operator: str, right: int) -> int | None:
    """The step's result, or None where the step breaks a bound.

    Results lie in 2..999 (so that a plural noun may always follow one), a product has a factor below 10
    and another below 100, and a division is exact with a divisor below 10.
    """
    if operator == "+":
        value = left + right
    elif operator == "-":
        value = left - right
    elif operator == "*":
        if min(left, right) >= 10 or max(left, right) >= 100:
            return None
        value = left * right
    else:
        if not 2 <= right < 10 or left % right:
            return None
        value = left // right
    return value if 2 <= value <= _MAX_RESULT else None


def _try_values(rng: random.Random, template: Template) -> dict[str, int] | None:
    """Draw the given numbers once and compute every step; None where a condition fails."""
    values = {field: rng.randint(least, greatest) for field, least, greatest in template.ranges}
    for step in template.steps:
        result = step_value(values[step.left], step.operator, values[step.right])
        if result is None:
            return None
        values[step.result] = result
    return values if all(values[small] < values[large] for small, large in template.orders) else None


def _sample_values(rng: random.Random, template: Template) -> dict[str, int]:
    """Draw numbers until all conditions hold."""
    for _ in range(_MAX_TRIES):
        values = _try_values(rng, template)
        if values is not None:
            return values
    raise AssertionError(f"template {template.name} found no numbers in {_MAX_TRIES} tries")


def _sample_words(rng: random.Random, template: Template) -> dict[str, str]:
    """Draw two people and the nouns; `{x}` is a noun's plural and `{one_x}` its singular."""
    gender = rng.choice(("female", "male"))
    name = rng.choice(FEMALE_NAMES if gender == "female" else MALE_NAMES)
    other = rng.choice([candidate for candidate in FEMALE_NAMES + MALE_NAMES if candidate != name])
    words = {"name": name, "other": other, **_PRONOUNS[gender]}
    used: set[str] = set()
    for field, noun_list in template.nouns:
        # Two nouns of one list must differ, or "5 pears and 7 pears" would make the story ambiguous.
        noun = rng.choice([candidate for candidate in NOUNS[noun_list] if candidate not in used])
        used.add(noun)
        words[field] = plural(noun)
        words[f"one_{field}"] = singular(noun)
    return words


def generate_problem(rng: random.Random, template: Template) -> MathProblem:
    """Generate a problem of the given template."""
    values = _sample_values(rng, template)
    fields: dict[str, object] = {**_sample_words(rng, template), **values}
    phrasing = rng.choice(template.phrasings)
    phrasing = _CHOICE.sub(lambda match: rng.choice(match[1].split("|")), phrasing)
    sentences: list[str] = []
    for step in template.steps:
        equation = f"{values[step.left]} {step.operator} {values[step.right]} = {values[step.result]}"
        sentences.append(step.sentence.format_map({**fields, "eq": equation}))
    answer = values[template.steps[-1].result]
    sentences.append(f"The answer is {answer}.")
    return MathProblem(
        template=template.name,
        question=phrasing.format_map(fields),
        solution=" ".join(sentences),
        answer=answer,
    )


def is_held_out_question(question: str) -> bool:
    """One question in fifty, whatever its template: left out of training, so its numbers and names are new there."""
    return zlib.crc32(question.encode()) % 50 == 0


def sample_training_problem(rng: random.Random, *, chain_share: float = 0.0) -> MathProblem:
    """A problem whose question is not held out: of a training template, or in a share of the cases of a chain."""
    while True:
        is_chain = rng.random() < chain_share
        problem = generate_problem(rng, _parse_template(compose_chain(rng), False)) if is_chain else sample_problem(rng)
        if not is_held_out_question(problem.question):
            return problem


def sample_problem(rng: random.Random, *, held_out: bool = False) -> MathProblem:
    """Generate a problem of a template drawn uniformly from the training or the held-out ones."""
    return generate_problem(rng, rng.choice([item for item in TEMPLATES if item.held_out == held_out]))


def prompt_text(problem: MathProblem | str) -> str:
    """The text a model is given: the question (of a problem, or as is) and an open answer."""
    question = problem if isinstance(problem, str) else problem.question
    return f"Question: {question}\nAnswer:"


def document_text(problem: MathProblem) -> str:
    """The text a model is trained on: the prompt followed by the solution."""
    return f"{prompt_text(problem)} {problem.solution}"


def extract_answer(text: str) -> int | None:
    """The integer after the last "The answer is" in a text, or None where there is none.

    An unfinished last phrase gives None, rather than the answer of an earlier one.
    """
    _, phrase, rest = text.rpartition("The answer is")
    match = _ANSWER.match(phrase + rest)
    return int(match[1]) if match else None
