"""Reads JSON files that hold one object, and typed values from them: one clear line for whatever is wrong."""

import json
import math
from pathlib import Path
from typing import Any


def read_json_object(path: Path, remedy: str = "fetch the file again") -> dict[str, Any]:
    """The object in a file. Raises ValueError with the remedy if it cannot be read or holds anything else."""
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise ValueError(f"{path}: not readable as JSON ({error}); {remedy}") from error
    if not isinstance(content, dict):
        raise ValueError(f"{path}: expected a JSON object, found {type(content).__name__}; {remedy}")
    return content


class Settings:
    """An object's values by key, each checked; null counts as absent, and true is no number."""

    def __init__(self, path: Path, content: dict[str, Any]) -> None:
        self.path, self.content = path, content

    def integer(self, key: str, default: int | None = None, least: int = 1) -> int:
        """Raises ValueError if it is absent without a default, no integer, or below `least`."""
        value = self._value(key, default)
        if not is_integer(value) or value < least:
            kind = "a positive integer" if least == 1 else f"an integer of at least {least}"
            raise self.refusal(key, value, kind)
        return value

    def positive(self, key: str, default: float | None = None) -> float:
        """Raises ValueError if it is absent without a default, or no positive number."""
        value = self._value(key, default)
        is_number = isinstance(value, int | float) and not isinstance(value, bool)
        if not is_number or not 0 < value < math.inf:
            raise self.refusal(key, value, "a positive number")
        return float(value)

    def flag(self, key: str, default: bool = False) -> bool:
        """The default if absent; raises ValueError if it is neither true nor false."""
        value = self._value(key, default)
        if not isinstance(value, bool):
            raise self.refusal(key, value, "true or false")
        return value

    def text(self, key: str) -> str:
        """Raises ValueError if it is absent or no text."""
        value = self._value(key, None)
        if not isinstance(value, str) or not value:
            raise self.refusal(key, value, "a text")
        return value

    def object(self, key: str) -> dict[str, Any]:
        """Empty if absent; raises ValueError if it is no JSON object."""
        value = self._value(key, {})
        if not isinstance(value, dict):
            raise self.refusal(key, value, "a JSON object")
        return value

    def array(self, key: str) -> list[Any]:
        """Empty if absent; raises ValueError if it is no JSON array."""
        value = self._value(key, [])
        if not isinstance(value, list):
            raise self.refusal(key, value, "a JSON array")
        return value

    def refusal(self, key: str, value: Any, kind: str) -> ValueError:
        return ValueError(f"{self.path}: {key} is {value!r}; it must be {kind}")

    def _value(self, key: str, default: Any) -> Any:
        value = self.content.get(key)
        return default if value is None else value


def is_integer(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)
