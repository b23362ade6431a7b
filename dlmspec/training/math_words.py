"""Names and nouns that fill the templates of `math_problems`. Data only, plus the two forms of a noun.

A noun is written in the singular where its plural adds an "s", else as "singular/plural". No template puts
"a" or "an" before a noun of these lists, so the first letter is free.
"""

# One name per line would help nobody.
# fmt: off
FEMALE_NAMES: tuple[str, ...] = (
    "Mia", "Nora", "Ella", "Ruby", "Clara", "Hanna", "Lena", "Priya", "Aisha", "Yuki", "Sofia", "Marta",
    "Ines", "Elif", "Zoe", "Tara", "Amina", "Leila", "Greta", "Olga", "Rosa", "Wendy", "Dana", "Freya",
    "Keiko", "Lucia", "Maya", "Nadia", "Paula", "Salma", "Tessa", "Vera", "Ivy", "June", "Carmen",
)

MALE_NAMES: tuple[str, ...] = (
    "Ben", "Omar", "Leo", "Hugo", "Ivan", "Kofi", "Mateo", "Noah", "Raj", "Sam", "Tom", "Viktor", "Yusuf",
    "Arjun", "Carlos", "Diego", "Emil", "Felix", "Gabe", "Henrik", "Jamal", "Kenji", "Luca", "Marco",
    "Nils", "Oscar", "Pavel", "Quinn", "Rafael", "Stefan", "Theo", "Umar", "Wei", "Andre", "Boris",
)
# fmt: on

_NOUN_LISTS = {
    "FRUIT": "apple, pear, peach/peaches, plum, orange, lemon, mango/mangoes, apricot, fig, kiwi, banana",
    "VEGETABLE": "carrot, onion, pepper, tomato/tomatoes, potato/potatoes, turnip, cucumber, pumpkin",
    "BAKED": "cookie, muffin, bun, cupcake, tart, waffle, bagel, pretzel, scone, doughnut, roll, pie",
    "TOY": "marble, toy car, kite, puzzle, doll, block, robot, top, yo-yo, toy train, ball, puppet",
    "CARD": "stamp, card, sticker, badge, coin, postcard, shell, pin, button, medal, stone, feather",
    "OFFICE": "pencil, pen, marker, crayon, eraser, notebook, folder, ruler, envelope, clip, brush/brushes",
    "FLOWER": "rose, tulip, daisy/daisies, lily/lilies, orchid, sunflower, violet, poppy/poppies",
    "TREE": "oak, pine, maple, birch/birches, cedar, elm, willow, olive tree, cherry tree, walnut tree",
    "FARM": "sheep/sheep, goat, cow, duck, goose/geese, horse, rabbit, turkey, llama, donkey, pony/ponies",
    "FISH": "goldfish/goldfish, guppy/guppies, crab, snail, shrimp/shrimp, eel, turtle, frog, newt",
    "GOODS": "lamp, chair, clock, mug, plate, bowl, pillow, basket, candle, vase, blanket, mirror, towel",
    "CLOTHES": "shirt, hat, scarf/scarves, sock, belt, coat, sweater, glove, cap, skirt, vest, apron",
    "BOX": "box/boxes, bag, basket, crate, tray, bin, carton, sack, jar, bucket, case, tub",
    "MONEY": "dollar, euro, pound, credit, token, peso, crown, franc",
    "DRINK": "bottle, can, cup, flask, jug, glass/glasses",
    "BUILDING": "school, museum, hotel, library/libraries, clinic, office, theater, factory/factories",
    "READING": "novel, comic, magazine, atlas/atlases, textbook, songbook, story/stories, poem, guide",
    "DAY": "Monday, Tuesday, Wednesday, Thursday, Friday, Saturday, Sunday",
    "MEASURE": "meter, liter, gram, spoon, page, photo, mile, minute, point, brick, ticket, seat",
    "PEOPLE": "child/children, guest, visitor, student, player, singer, worker, sailor, traveler, dancer, nurse",
    "COLOR": "red, blue, green, yellow, white, black, purple, orange, brown, gray",
}

NOUNS: dict[str, tuple[str, ...]] = {name: tuple(text.split(", ")) for name, text in _NOUN_LISTS.items()}


def singular(noun: str) -> str:
    """The singular of an entry of `NOUNS`."""
    return noun.partition("/")[0]


def plural(noun: str) -> str:
    """The plural of an entry of `NOUNS`."""
    return noun.partition("/")[2] or f"{noun}s"
