"""Stop strings: where a text ends before its tokens do. Knows nothing of targets or tokenizers."""

from collections.abc import Callable, Sequence


def find_stop(text: str, stop_strings: str | Sequence[str]) -> int | None:
    """Where the stop string that is complete first begins; more text after it does not change the answer."""
    stops = [stop_strings] if isinstance(stop_strings, str) else stop_strings
    ends = [(text.find(stop) + len(stop), text.find(stop)) for stop in stops if stop and stop in text]
    return min(ends)[1] if ends else None


class StopSearch:
    """Looks for stop strings in one answer as it grows.

    Token by token, so that an answer ends at the same one however many tokens a pass commits.
    """

    def __init__(self, stop_strings: str | Sequence[str], decode_text: Callable[[Sequence[int]], str]) -> None:
        self._stops, self._decode_text = stop_strings, decode_text
        self._searched = 0  # leading tokens that complete no stop string

    def look(self, token_ids: tuple[int, ...]) -> tuple[tuple[int, ...], str] | None:
        """The ids up to the one that completes a stop string and the text before that string; None if there is none.

        `token_ids` begin with those of the call before.
        """
        while self._stops and self._searched < len(token_ids):
            ids = token_ids[: self._searched + 1]
            text = self._decode_text(ids)
            place = find_stop(text, self._stops)
            if place is not None:
                return ids, text[:place]
            self._searched += 1
        return None
