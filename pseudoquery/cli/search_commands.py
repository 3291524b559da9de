"""Commands that read an index: search, explain, list, info."""

from __future__ import annotations

from typing import Any

import click

from pseudoquery.building.location import Location, open_index
from pseudoquery.cli.hints import print_text_hint
from pseudoquery.cli.options import (
    exact_option,
    json_option,
    location_argument,
    mode_option,
    search_options,
    where_option,
)
from pseudoquery.cli.output import document_with_origin, format_count, print_json


@click.command()
@location_argument
@click.argument("query")
@click.option("--top", type=int, default=10, show_default=True, help="How many documents to find.")
@where_option
@exact_option
@mode_option
@search_options
@click.option(
    "--min-relevance",
    type=float,
    help="Leave out documents whose relevance is below this, from 0 to 1.",
)
@json_option
def search(
    location: Location,
    query: str,
    top: int,
    conditions: tuple[str, ...],
    exact: bool,
    mode: Any,
    as_json: bool,
    **settings: Any,
) -> None:
    """Find the documents in FOLDER that best answer QUERY."""
    from pseudoquery.cli.terminal import show_answer, show_status
    from pseudoquery.json_records import answer_to_dict
    from pseudoquery.search.settings import SearchSettings
    from pseudoquery.storage.filters import parse_filter

    index = open_index(location)
    where = parse_filter(conditions)
    with show_status("Searching"):
        answer = index.search(
            query,
            top,
            where=where,
            exact=exact,
            mode=mode,
            settings=SearchSettings(**settings),
        )
    if as_json:
        print_json(answer_to_dict(answer))
        return
    show_answer(index, answer, mode)
    if not answer.hits:
        print_text_hint(index, where)
    elif len(answer.hits) < top and not where:
        click.echo(f"The search found no others among {format_count(len(index), 'document')}.")


@click.command()
@location_argument
@click.argument("query")
@click.argument("id")
@json_option
def explain(location: Location, query: str, id: str, as_json: bool) -> None:  # noqa: A002
    """Show which passages of the document with this ID answer QUERY."""
    from pseudoquery.cli.terminal import show_explanation, show_status
    from pseudoquery.json_records import explanation_to_dict

    with show_status("Explaining"):
        explanation = open_index(location).explain(query, id)
    if as_json:
        document = document_with_origin(explanation.document)
        print_json({**explanation_to_dict(explanation), "document": document})
        return
    show_explanation(explanation)


@click.command("list")
@location_argument
@where_option
@json_option
def list_documents(location: Location, conditions: tuple[str, ...], as_json: bool) -> None:
    """List the documents in FOLDER, one per line."""
    from pseudoquery.cli.terminal import CONTROLS
    from pseudoquery.storage.filters import parse_filter

    index = open_index(location)
    where = parse_filter(conditions)
    empty = True
    for document in index.documents(where):
        empty = False
        if as_json:
            print_json(document_with_origin(document))
        else:
            beginning = " ".join(f"{document.title} {document.text}".split())[:80]
            click.echo(f"{document.id.translate(CONTROLS)}\t{beginning.translate(CONTROLS)}")
    if empty and not as_json:
        print_text_hint(index, where)


@click.command()
@location_argument
@json_option
def info(location: Location, as_json: bool) -> None:
    """Show facts about the index in FOLDER."""
    facts = open_index(location).info()
    if as_json:
        print_json(facts)
        return
    from pseudoquery.cli.terminal import show_facts

    show_facts(facts)
