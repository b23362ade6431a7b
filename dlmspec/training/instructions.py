"""A broad set of instructions, put together from tasks and topics; some topics are held out."""

import random
import zlib
from dataclasses import dataclass

THINGS = (
    "a bicycle", "bread", "a compass", "the moon", "rain", "a volcano", "honey", "a piano", "glass", "the heart",
    "a library", "chess", "a camera", "salt", "a lighthouse", "coffee", "a magnet", "wool", "a rainbow", "the ocean",
    "a clock", "paper", "a garden", "snow", "a bridge", "olive oil", "a telescope", "an earthquake", "tea", "a desert",
    "a train", "soap", "the brain", "a forest", "a map", "cheese", "a windmill", "sleep", "a river", "the sun",
    "electricity", "a battery", "a mirror", "a kite", "chocolate", "an airplane", "a dictionary", "rice", "a candle",
    "gravity", "a penguin", "an elephant", "a whale", "the honeybee", "a spider", "an owl", "a computer", "money",
)  # fmt: skip
ACTIVITIES = (
    "learning a new language", "running a marathon", "baking bread", "saving money", "growing tomatoes",
    "writing a novel", "moving to a new city", "studying for an exam", "caring for a puppy", "playing the guitar",
    "hiking in the mountains", "painting a room", "giving a speech", "planning a wedding", "fixing a flat tire",
    "reading more books", "sleeping better", "cooking for a family", "cleaning a kitchen", "starting a small business",
    "teaching children to read", "taking photographs", "working from home", "making new friends", "traveling by train",
    "keeping a diary", "swimming", "eating less sugar", "drawing portraits", "preparing for a job interview",
)  # fmt: skip
PEOPLE = (
    "a nurse", "a carpenter", "a teacher", "a pilot", "a farmer", "a chef", "a judge", "a fisherman", "a scientist",
    "a librarian", "a firefighter", "a musician", "an architect", "a gardener", "a journalist", "a plumber",
    "an astronaut", "a tailor", "a bus driver", "a veterinarian", "a baker", "a detective", "a sailor", "a dentist",
)  # fmt: skip
PLACES = (
    "Paris", "Japan", "Egypt", "Brazil", "New York", "Iceland", "India", "Kenya", "Rome", "Canada", "Australia",
    "Mexico", "London", "Greece", "China", "Norway", "Peru", "Morocco", "Vienna", "Thailand",
)  # fmt: skip
PAIRS = (
    ("cats", "dogs"), ("lakes", "rivers"), ("tea", "coffee"), ("plants", "animals"), ("planets", "stars"),
    ("books", "films"), ("summer", "winter"), ("trains", "planes"), ("weather", "climate"), ("fruits", "vegetables"),
    ("cities", "villages"), ("copper", "gold"), ("poems", "novels"), ("butter", "margarine"), ("frogs", "toads"),
    ("walking", "running"), ("houses", "apartments"), ("a virus", "a bacterium"), ("speed", "acceleration"),
    ("wood", "plastic"),
)  # fmt: skip
TASKS: dict[str, tuple[str, ...]] = {
    "thing": (
        "Explain {} to a five-year-old child.", "Write a short poem about {}.", "Give three facts about {}.",
        "What is the history of {}?", "Write one paragraph about why {} matters.", "Describe {} without naming it.",
        "Write a riddle whose answer is {}.", "Ask me three questions about {}.", "Tell me a short story about {}.",
        "What would the world be like without {}?",
    ),
    "activity": (
        "Give me five tips for {}.", "What do I need for {}?", "Write an encouraging message to a friend who is {}.",
        "What are the most common mistakes when {}?", "Make a simple plan for {} in four weeks.",
        "What are the advantages and disadvantages of {}?", "How long does {} take, and why?",
    ),
    "person": (
        "What does {} do on a normal day?", "Write a polite email that thanks {}.", "What skills does {} need?",
        "Write a short conversation between {} and a child.", "How do I become {}?", "Describe the tools of {}.",
    ),
    "place": (
        "What should I see in {}?", "Describe the food of {}.", "Write a postcard from {}.", "What is {} known for?",
        "When is the best time to visit {}, and why?",
    ),
    "pair": (
        "What is the difference between {} and {}?", "Compare {} and {} in three sentences.",
        "Which do you prefer, {} or {}? Give your reasons.",
    ),
}  # fmt: skip
_TOPICS = {"thing": THINGS, "activity": ACTIVITIES, "person": PEOPLE, "place": PLACES, "pair": PAIRS}
HELD_OUT_SHARE = 5  # one topic in so many


@dataclass(frozen=True, slots=True)
class Instruction:
    """`name` is its kind, topic and task; a topic is held out with all tasks of its kind.

    Kinds are split apart: `pair/tea-coffee` may be held out while `thing/coffee` is trained on.
    """

    name: str
    text: str
    held_out: bool


def all_instructions(seed: int = 0) -> list[Instruction]:
    """Every task with every topic of its kind, in a seeded order."""
    found = []
    for kind, tasks in TASKS.items():
        for topic in _TOPICS[kind]:
            words = (topic,) if isinstance(topic, str) else topic
            label = "-".join(words).replace(" ", "_")
            held_out = zlib.crc32(f"{kind}/{label}".encode()) % HELD_OUT_SHARE == 0
            found += [
                Instruction(f"{kind}/{label}#{number}", task.format(*words), held_out)
                for number, task in enumerate(tasks)
            ]
    random.Random(seed).shuffle(found)
    return found
