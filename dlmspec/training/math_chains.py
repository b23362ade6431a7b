"""Stories put together at random: a start, up to three things that happen, a question. Data and its composer.

Hand-written templates are learned by heart; chains vary the wording of every sentence apart from the others, so that a
model has to read the question. A chain is a `Template` like any other: the notation is that of `math_templates`, with
{x} for the number that an event brings, and steps give the next quantity from the one before.
"""

import random

# (sentences of the question, numbers, sentence of the solution for `a` op `b`; None where the first number stands)
STARTS: tuple[tuple[tuple[str, ...], str, tuple[str, ...]], ...] = (
    (
        (
            "{name} has {a} {item}.",
            "{name} starts the week with {a} {item}.",
            "There are {a} {item} in the room of {name}.",
            "At first {name} owns {a} {item}.",
            "In the morning {name} counts {a} {item}.",
            "{name} gets {a} {item} from {her} aunt.",
            "A cart that belongs to {name} carries {a} {item}.",
        ),
        "",
        (),
    ),
    (
        (
            "{name} buys {a} {box} with {b} {item} in each.",
            "{name} has {a} {box}, and each {one_box} holds {b} {item}.",
            "There are {b} {item} in every {one_box}, and {name} owns {a} {box}.",
            "A truck brings {name} {a} {box} of {item}, {b} in each {one_box}.",
            "{name} fills {a} {box} with {b} {item} each.",
        ),
        "*",
        (
            "The {box} hold {eq} {item}.",
            "In the {box} there are {eq} {item}.",
            "At first {name} has {eq} {item}.",
            "All the {box} together have {eq} {item}.",
            "That makes {eq} {item}.",
        ),
    ),
    (
        (
            "{name} collects {a} {item} on {one_day} and {b} {item} on the day after.",
            "{name} finds {a} {item} at home and {b} more at the {one_building}.",
            "On one side of the yard {name} keeps {a} {item}, on the other {b} {item}.",
            "{name} brings {a} {item}, and {other} brings {b} {item} for {obj}.",
            "From one friend {name} gets {a} {item}, from another {b}.",
        ),
        "+",
        (
            "In all {name} starts with {eq} {item}.",
            "Both parts make {eq} {item}.",
            "Together that is {eq} {item}.",
            "So there are {eq} {item} at first.",
        ),
    ),
    (
        (
            "{name} had {a} {item}, but {b} of them were lost on the way.",
            "Of the {a} {item} that {name} ordered, {b} never came.",
            "{name} makes {a} {item}, and {b} of them turn out badly.",
        ),
        "-",
        (
            "Of those {eq} {item} are there.",
            "At first {name} can use {eq} {item}.",
            "That leaves {eq} {item} to begin with.",
        ),
    ),
)

# operator → what happens, and how the solution tells of it
EVENTS: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "+": (
        (
            "Then {other} gives {obj} {x} more.",
            "Later {she} adds {x} {item}.",
            "On {one_day} another {x} {item} arrive.",
            "After lunch {she} finds {x} more {item}.",
            "{Her} brother brings {x} {item}.",
            "In the evening {x} new {item} are added.",
            "A neighbor sends {x} {item} as a present.",
            "The next day {she} buys {x} {item}.",
        ),
        (
            "Then there are {eq} {item}.",
            "With the new ones {name} has {eq} {item}.",
            "After that it is {eq} {item}.",
            "The new number is {eq} {item}.",
            "So {she} now has {eq} {item}.",
            "With these {x} that makes {eq} {item}.",
        ),
    ),
    "-": (
        (
            "Then {she} gives {x} of them to {other}.",
            "Later {x} of the {item} get lost.",
            "On {one_day} {she} sells {x} {item}.",
            "{other} takes {x} of them home.",
            "After dinner {x} {item} are gone.",
            "A storm ruins {x} of the {item}.",
            "{She} puts {x} {item} away for {her} mother.",
            "The next day {x} of them break.",
        ),
        (
            "Then {eq} {item} are left.",
            "{name} still has {eq} {item}.",
            "That leaves {eq} {item}.",
            "After that {eq} {item} remain.",
            "Without them there are {eq} {item}.",
            "So {she} keeps {eq} {item}.",
        ),
    ),
    "*": (
        (
            "A month later {she} has {x} times as many.",
            "The number of {item} then grows to {x} times that.",
            "{other} has {x} times as many {item} as {name} and gives them all to {obj} for {her} own.",
            "By the end of the year there are {x} times that many {item}.",
        ),
        (
            "That grows to {eq} {item}.",
            "Then it is {eq} {item}.",
            "That many times over makes {eq} {item}.",
            "So there are then {eq} {item}.",
        ),
    ),
    "/": (
        (
            "{She} keeps only one of {x} equal parts.",
            "The {item} are split into {x} equal groups, and {name} goes on with one group.",
            "{She} shares them equally with others, {x} people in all.",
            "Then {she} divides them among {x} shelves and looks at one shelf.",
        ),
        (
            "One part is {eq} {item}.",
            "Each share has {eq} {item}.",
            "One group gets {eq} {item}.",
            "Divided, that is {eq} {item}.",
        ),
    ),
}
DISTRACTORS = (
    "{name} is {n} years old.",
    "The walk home takes {n} minutes.",
    "It is {n} degrees outside.",
    "The {one_building} next door has {n} windows.",
    "A song of {n} minutes plays on the radio.",
)
QUESTIONS = (
    "How many {item} does {name} have in the end?",
    "How many {item} are there now?",
    "How many {item} does that make?",
    "How many {item} are left for {name}?",
    "What is the number of {item} in the end?",
)
RANGES = {"": "5-95", "+": "3-90", "-": "2-60", "*": "2-9", "/": "2-9"}
NOUN_LISTS = (
    "FRUIT", "VEGETABLE", "BAKED", "TOY", "CARD", "OFFICE", "FLOWER", "TREE", "FARM", "FISH", "GOODS", "CLOTHES",
    "READING", "DRINK", "MONEY", "MEASURE", "PEOPLE",
)  # fmt: skip


def compose_chain(rng: random.Random) -> str:
    """One template in the notation: a start, one to three events, at most one distractor, a question."""
    texts, operator, told = rng.choice(STARTS)
    header = f"# chain: item={rng.choice(NOUN_LISTS)} box=BOX day=DAY building=BUILDING a={RANGES['']}"
    question, steps, quantity = [rng.choice(texts)], [], "a"
    if operator:
        header += f" b={RANGES[operator]}"
        steps.append(f"s = a {operator} b: {rng.choice(told)}")
        quantity = "s"
    for number in range(rng.randint(1, 3) if len(steps) < 1 else rng.randint(1, 2)):
        operator = rng.choice("++--*/")
        happens, told = EVENTS[operator]
        given, result = f"x{number}", f"y{number}"
        header += f" {given}={RANGES[operator]}"
        question.append(rng.choice(happens).replace("{x}", f"{{{given}}}"))
        steps.append(f"{result} = {quantity} {operator} {given}: {rng.choice(told)}".replace("{x}", f"{{{given}}}"))
        quantity = result
    if rng.random() < 0.3:
        header += " n=3-60"
        question.insert(rng.randint(1, len(question)), rng.choice(DISTRACTORS))
    question.append(rng.choice(QUESTIONS))
    return "\n".join([header, "? " + " ".join(question), *steps])
