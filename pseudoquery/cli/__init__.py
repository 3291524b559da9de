"""The command `pseudoquery`: a thin layer over the library."""

from pseudoquery.cli.command import cli, main

__all__ = ["cli", "main"]
