"""Commands that ask an index."""

from __future__ import annotations

from typing import Any

import click

from pseudoquery.building.location import Location, open_index
from pseudoquery.cli.options import (
    as_json,
    exact_option,
    folder_argument,
    mode_option,
    search_options,
    where_option,
)
from pseudoquery.cli.output import count_of, print_json


@click.command()
@folder_argument
@click.argument("query")
@click.option("--top", type=int, default=10, show_default=True, help="How many documents.")
@where_option
@exact_option
@mode_option
@search_options
@as_json
def search(
    folder: Location,
    query: str,
    top: int,
    conditions: tuple[str, ...],
    exact: bool,
    mode: Any,
    as_json: bool,
    **settings: Any,
) -> None:
    """Find the documents in FOLDER that best answer QUERY."""
    from pseudoquery.cli.terminal import show_answer, working
    from pseudoquery.search.settings import SearchSettings
    from pseudoquery.storage.filters import parse_filter

    opened = open_index(folder)
    with working("Searching"):
        answer = opened.search(
            query,
            top,
            where=parse_filter(conditions),
            exact=exact,
            mode=mode,
            settings=SearchSettings(**settings),
        )
    if as_json:
        print_json(answer)
        return
    show_answer(opened, answer, mode)
    if len(answer.hits) < top and not conditions:
        click.echo(f"These are all that were found among {count_of(len(opened), 'document')}.")


@click.command()
@folder_argument
@click.argument("query")
@click.argument("id")
@as_json
def explain(folder: Location, query: str, id: str, as_json: bool) -> None:  # noqa: A002
    """Show which passages of the document ID answer QUERY."""
    from pseudoquery.cli.terminal import show_explanation, working

    with working("Explaining"):
        explanation = open_index(folder).explain(query, id)
    if as_json:
        print_json(explanation)
        return
    show_explanation(explanation)


@click.command("list")
@folder_argument
@where_option
@as_json
def list_documents(folder: Location, conditions: tuple[str, ...], as_json: bool) -> None:
    """List the documents in FOLDER, or those that fit a filter, one a line."""
    from pseudoquery.cli.terminal import CONTROLS
    from pseudoquery.storage.filters import parse_filter

    for document in open_index(folder).documents(parse_filter(conditions)):
        if as_json:
            print_json(document)
        else:
            beginning = " ".join(f"{document.title} {document.text}".split())[:80]
            click.echo(f"{document.id.translate(CONTROLS)}\t{beginning.translate(CONTROLS)}")


@click.command()
@folder_argument
@as_json
def info(folder: Location, as_json: bool) -> None:
    """Show facts about the index in FOLDER."""
    facts = open_index(folder).info()
    if as_json:
        print_json(facts)
        return
    from pseudoquery.cli.terminal import show_facts

    show_facts(facts)
