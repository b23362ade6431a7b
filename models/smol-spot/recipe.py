"""Makes `smol-spot`: `python models/smol-spot/recipe.py` (resumes where an earlier run stopped)."""

from pathlib import Path

from dlmspec.training.dialogues import read_dialogues
from dlmspec.training.spot_recipe import make_drafter

DIALOGUES = Path(__file__).parent.parent / "smol" / "dialogues.jsonl"

if __name__ == "__main__":
    make_drafter("smol", dialogues=read_dialogues(DIALOGUES))
