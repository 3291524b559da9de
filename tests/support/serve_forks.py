"""The program that the crash test talks to: it starts the real command again and again, quickly.

Importing the model library takes seconds, and is the same every time: it is done once, and each
service is a fork. A line on standard input is either the arguments of a command, answered with its
process id, or a process id, answered with how it ended. What a service prints comes in between.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from importlib import import_module

import torch

from pseudoquery.cli import main

for name in ("sentence_transformers", "pseudoquery.search.two_step", "pseudoquery.service.app"):
    import_module(name)
torch.set_num_threads(1)


def say(value: object) -> None:
    """Print a line at once."""
    sys.stdout.write(f"{json.dumps(value)}\n")
    sys.stdout.flush()


def start(arguments: list[str], log: str) -> int:
    """Fork, and run the command in the child."""
    child = os.fork()
    if child:
        return child
    # Tests that run in a shell's background inherit from it that this signal is ignored.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    os.dup2(os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND), 2)
    main(arguments)
    sys.stdout.flush()
    os._exit(0)


if __name__ == "__main__":
    say("ready")
    for line in sys.stdin:
        asked = json.loads(line)
        if isinstance(asked, int):
            say(os.waitstatus_to_exitcode(os.waitpid(asked, 0)[1]))
        else:
            say(start(asked[1:], asked[0]))
