"""A sample of the exactness ladder, which `dlmspec verify --tiny N` climbs further.

Catches: a decode of any family, rule, temperature, filter, confidence, cache or alignment that a drafter changes, and a
ladder that would not see it.
"""

import dlmspec.ladder
from dlmspec.cli import main
from dlmspec.ladder import Ladder, climb
from dlmspec.models.tiny import MASK_ID, TINY_SPECS
from dlmspec.scored import ScoredStates


def test_every_decode_of_a_sample_is_the_reference():
    outcomes = list(climb(600, seed=11))
    assert [outcome for outcome in outcomes if outcome.differing] == []
    assert {outcome.case.family for outcome in outcomes} == set(TINY_SPECS)
    assert {outcome.case.config.cache for outcome in outcomes} == {"prefix", "none", "dual"}


def test_cases_of_a_seed_are_the_same_cases():
    one, two = (zip(range(20), Ladder(seed=4).cases(), strict=False) for _ in range(2))
    assert list(one) == list(two)


def test_a_walk_that_accepts_too_much_is_seen(monkeypatch):
    """A scored state that is one token off is taken for the true one."""
    find = ScoredStates.find

    def careless(self, state, chain=()):
        found = find(self, state, chain)
        for other in self.entries.values() if found is None and not chain else ():
            pairs = list(zip(other.state.tokens, state.tokens, strict=True))
            differing = [pair for pair in pairs if pair[0] != pair[1]]
            if not other.chain and MASK_ID not in sum(differing, ()) and len(differing) == 1:
                return other
        return found

    monkeypatch.setattr(ScoredStates, "find", careless)
    assert any(outcome.differing for outcome in climb(900, seed=2))


def test_the_command(capsys, monkeypatch):
    assert main(["verify", "--tiny", "20"]) == 0
    assert "decodes of random tiny models identical to the reference" in " ".join(capsys.readouterr().out.split())
    assert main(["verify"]) == 2
    assert "verify needs a MODEL, or --tiny N" in capsys.readouterr().err
    assert main(["verify", "--tiny", "0"]) == 2
    original = Ladder.run
    monkeypatch.setattr(
        dlmspec.ladder.Ladder, "run",
        lambda self, case: dlmspec.ladder.Outcome(case, original(self, case).decodes, ("spot, 4",)),
    )  # fmt: skip
    assert main(["verify", "--tiny", "20"]) == 1
    assert "differs: spot, 4 in Case(" in " ".join(capsys.readouterr().out.split())
