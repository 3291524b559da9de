"""What the values of settings have to be: rules that stand in the annotations of a dataclass."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Annotated, Any, NamedTuple, get_type_hints

from pseudoquery.errors import ModelError


class Rule(NamedTuple):
    """What a setting's value has to be."""

    allowed: str
    """In the words of an error message: "it must be ..."."""
    accepts: Callable[[Any], bool]


Count = Annotated[int, Rule("at least 0", lambda value: value >= 0)]
PositiveCount = Annotated[int, Rule("at least 1", lambda value: value >= 1)]
Amount = Annotated[float, Rule("at least 0", lambda value: value >= 0)]
PositiveAmount = Annotated[float, Rule("above 0", lambda value: value > 0)]
Share = Annotated[float, Rule("from 0 to 1", lambda value: 0 <= value <= 1)]
PositiveCounts = Annotated[
    tuple[int, ...],
    Rule("at least 1 each", lambda values: all(value >= 1 for value in values)),
    Rule("different from each other", lambda values: len(set(values)) == len(values)),
]
Precision = Annotated[
    str, Rule("float32, bf16 or fp16", lambda value: value in ("float32", "bf16", "fp16"))
]
TYPE_RULES: Mapping[Any, Rule] = {
    str: Rule("a text", lambda value: isinstance(value, str)),
    int: Rule("an integer", lambda value: type(value) is int),  # TOML's true is no integer
    float: Rule("a number", lambda value: type(value) in (int, float)),
    tuple[str, ...]: Rule(
        "a list of texts",
        lambda value: isinstance(value, tuple) and all(isinstance(text, str) for text in value),
    ),
    tuple[int, ...]: Rule(
        "a list of integers",
        lambda value: isinstance(value, tuple) and all(type(number) is int for number in value),
    ),
    Mapping[str, Any]: Rule("a table", lambda value: isinstance(value, Mapping)),
}


def rules_of(kind: type) -> dict[str, tuple[Rule, ...]]:
    """List the rules of each setting of a dataclass: that of its type, then its range."""
    return {
        name: (TYPE_RULES[hint.__origin__], *hint.__metadata__)
        if hasattr(hint, "__metadata__")
        else (TYPE_RULES[hint],)
        for name, hint in get_type_hints(kind, include_extras=True).items()
    }


def check_settings(settings: object, table: str = "") -> None:
    """Raise an error for the first setting that breaks a rule; `table` is where they stand."""
    for name, rules in rules_of(type(settings)).items():
        value = getattr(settings, name)
        for rule in rules:
            if not rule.accepts(value):
                raise ModelError(
                    f"{f'{table}.' if table else ''}{name} is {value!r}; it must be {rule.allowed}."
                )
