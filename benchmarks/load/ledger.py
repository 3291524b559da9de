"""What may be seen of documents that change, by when each change was asked for and acknowledged.

A change happens at some moment between the two. So a request that was sent at one time and answered
at another may have seen a state if the change that made it was asked for before the answer, and the
change that ended it was not acknowledged before the request. Nothing else can be right, whoever
asks, and no request has to wait for another: the check itself has no races.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

Text = str | None
"""What a document says; nothing if it is not there."""


@dataclass(slots=True)
class Change:
    """A document written, or deleted: when it was asked for, and when that was acknowledged."""

    text: Text
    asked: float
    acknowledged: float = math.inf


@dataclass(slots=True)
class Ledger:
    """The changes of every document, in order; those of one document don't overlap."""

    changes: dict[str, list[Change]] = field(default_factory=dict)

    def ask(self, id: str, text: Text) -> Change:  # noqa: A002
        """Note that a change is about to be asked for."""
        changes = self.changes.setdefault(id, [Change(None, -math.inf, -math.inf)])
        if changes[-1].acknowledged == math.inf:
            raise ValueError(f"{id!r} is changed before its last change was acknowledged")
        changes.append(Change(text, time.monotonic()))
        return changes[-1]

    def acknowledge(self, change: Change) -> None:
        """Note that the service has said that a change is done."""
        change.acknowledged = time.monotonic()

    def text(self, id: str) -> Text:  # noqa: A002
        """Return what a document says, as far as changes have been asked for."""
        return self.changes[id][-1].text if id in self.changes else None

    def possible(self, id: str, sent: float, answered: float) -> set[Text]:  # noqa: A002
        """List what a request may have seen of a document."""
        changes = self.changes.get(id, [Change(None, -math.inf, -math.inf)])
        ends = [change.acknowledged for change in changes[1:]] + [math.inf]
        return {
            change.text
            for change, end in zip(changes, ends, strict=True)
            if change.asked <= answered and end >= sent
        }


@dataclass(frozen=True, slots=True)
class Seen:
    """What one request saw of some documents: their texts, or that they were not there."""

    sent: float
    answered: float
    texts: Mapping[str, Text]


def wrong(ledger: Ledger, seen: Iterable[Seen]) -> list[str]:
    """Say in a sentence each what can't have been seen."""
    problems = []
    for observation in seen:
        for id_, text in observation.texts.items():
            possible = ledger.possible(id_, observation.sent, observation.answered)
            if text in possible:
                continue
            kind = "lost" if text is None else "outdated or made up"
            if possible == {None}:
                kind = "resurrected, or seen before it was written"
            problems.append(f"{id_}: {kind}")
    return problems
