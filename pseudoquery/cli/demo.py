"""The tour: index bundled articles, answer questions, and compare with other ways to search."""

from __future__ import annotations

import shutil
import time
from importlib.resources import as_file, files
from pathlib import Path

from rich.table import Table
from rich.text import Text

from pseudoquery.cli.terminal import console, show_answer, show_bar, show_status
from pseudoquery.corpus.datasets import load_dataset
from pseudoquery.corpus.documents import read_documents
from pseudoquery.encoding.encode import document_text, pool_texts, read_texts
from pseudoquery.encoding.pooling import pooling_of
from pseudoquery.errors import IndexFolderError
from pseudoquery.evaluation.evaluate import SearchPlan, search_all
from pseudoquery.evaluation.measures import evaluate
from pseudoquery.index import Index
from pseudoquery.method.presets import preset
from pseudoquery.method.representation import Representation
from pseudoquery.search.settings import SearchSettings
from pseudoquery.storage.incoming import batch_documents

QUESTIONS = (
    "What do white blood cells do against bacteria?",
    "How do plants turn light into energy?",
    "How do schools without state funding pay their way?",
)


def run_demo(folder: Path, data: Path | None = None) -> None:
    """Run the tour, and make two indexes: FOLDER and FOLDER-single."""
    with as_file(files("pseudoquery") / "data" / "squad-dev") as bundled:
        data = data or bundled
        index = _create_index(folder)
        single = _create_index(folder.with_name(f"{folder.name}-single"), preset("single-vector"))
        _fill_indexes(data, index, single)
        _show_questions(index)
        _show_table(data, index, single)
    _show_next_steps(folder)


def _create_index(folder: Path, representation: Representation | None = None) -> Index:
    """Make an empty index; it replaces the index of an earlier tour."""
    if folder.exists():
        if not (folder / "index.sqlite").exists():
            raise IndexFolderError(f"{folder} exists and is not an index; choose another --folder.")
        shutil.rmtree(folder)
    with show_status("Loading the encoder"):
        return Index.create(folder, representation=representation)


def _fill_indexes(data: Path, index: Index, single: Index) -> None:
    """Encode the documents once, and pool them twice: to pseudo queries, and to one vector."""
    count = sum(1 for _ in read_documents(data))
    console.print(
        f"\nIndexing 48 Wikipedia articles as {count} documents, each with "
        f"[bold]{index.representation.k} pseudo queries[/bold] and, to compare, one vector …"
    )
    start = time.perf_counter()
    with show_bar(total=count) as advance:
        for batch in batch_documents(read_documents(data)):
            texts = [document_text(document)[0] for document in batch]
            reading = read_texts(index.model, texts, "document", token_type=index.settings.tokens)
            encoded = pool_texts(pooling_of(index.model), reading, "document")
            index.add_vectors(batch, encoded)
            averaged = pool_texts(pooling_of(single.model), reading, "document")
            single.add_vectors(batch, [document.vectors for document in averaged])
            advance(len(batch))
    facts = index.info()
    console.print(
        f"Indexed {facts['documents']} documents with {facts['vectors']:,} pseudo queries in "
        f"{time.perf_counter() - start:.0f} seconds; the vectors of a document take "
        f"{facts['vector_bytes_per_document']:,} bytes, the signs of its tokens "
        f"{facts['token_bytes_per_document']:,}."
    )


def _show_questions(index: Index) -> None:
    for question in QUESTIONS:
        console.print()
        console.print(Text(f"? {question}", style="bold cyan"))
        show_answer(index, index.search(question, top=1), "dense")


def _show_table(data: Path, index: Index, single: Index) -> None:
    dataset = load_dataset(str(data), "dev")
    by_vectors = SearchSettings(rank_by="vectors")
    methods = {
        "BM25 (words)": (index, SearchPlan(20, "bm25")),
        "one vector per document": (single, SearchPlan(20, exact=True)),
        "pseudo queries": (index, SearchPlan(20, exact=True, settings=by_vectors)),
        "pseudo queries + tokens": (index, SearchPlan(20)),
        "pseudo queries + tokens + BM25": (index, SearchPlan(20, "hybrid")),
    }
    count = len(dataset.queries)
    table = Table(title=f"\n{count:,} questions over the same documents", title_style="bold")
    table.add_column("")
    for heading in ("MRR@10", "top-20"):
        table.add_column(heading, justify="right")
    with show_bar(len(methods) * count, "Asking all questions") as advance:
        for name, (searched, plan) in methods.items():
            run = search_all(searched, dataset, plan, advance)
            figures = evaluate(run, dataset.qrels, ("RR@10", "Success@20"))
            table.add_row(name, *(f"{100 * value:.1f}" for value in figures.values()))
    console.print(table)


def _show_next_steps(folder: Path) -> None:
    console.print(
        "\nThe encoder was trained on other articles and questions of the same kind. Now try:\n"
        f'  pseudoquery search {folder} "your question"\n'
        f'  pseudoquery explain {folder} "Who was Luther\'s wife?" dev-26-w11\n'
        "  pseudoquery index your-documents.jsonl --out my-index\n"
    )
