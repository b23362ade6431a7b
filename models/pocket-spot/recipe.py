"""Makes `pocket-spot`: `python models/pocket-spot/recipe.py` (resumes where an earlier run stopped)."""

from dlmspec.training.spot_recipe import make_drafter

if __name__ == "__main__":
    make_drafter("pocket")
