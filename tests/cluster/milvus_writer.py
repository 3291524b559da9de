"""The program that loses its Milvus: it changes a collection for ever, saying what it has done.

It prints a line before each operation, and the line `done` when it has been acknowledged.
"""

from __future__ import annotations

import json
import random
import sys
from typing import Any, cast

from pseudoquery.milvus.collection import Collection
from tests.support.crash_writer import carry_out, random_operation, say


def main(address: str, seed: str) -> None:
    """Write until killed."""
    choose = random.Random(seed)
    with Collection.open(address).writer() as writer:
        say("ready")
        while True:
            operation = random_operation(choose)
            say(json.dumps(operation))
            carry_out(cast(Any, writer), operation)
            say("done")


if __name__ == "__main__":
    main(*sys.argv[1:])
