"""The rooms of the house: imports go down, and a heavy library has one door."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parents[1] / "pseudoquery"

LAYERS = (
    {"cli"},
    {"integrations", "research"},
    {"cluster", "service", "client", "bench"},
    {"training"},
    {"evaluation"},
    {"building"},
    {"milvus"},
    {"index"},
    {"search"},
    {"encoding", "corpus", "storage"},
    {"method"},
    {"files", "json_records", "native"},
    {"markdown", "once", "records", "errors", "version"},
)
"""A room imports from the lines below its own; rooms on one line do not know each other."""

DOORS = {
    "faiss": {"search.faiss_index"},
    "fastapi": {"service"},
    "ray": {"cluster.ray"},
    "pymilvus": {"milvus.connection"},
    "triton": {
        "method.kmeans_gpu",
        "method.kmeans_kernel",
        "search.gpu_search",
        "search.gpu_search_kernel",
    },
    "openvino": {"encoding.openvino"},
    "rich": {"cli"},
    "click": {"cli"},
    "matplotlib": {"research.report"},
    "langchain_core": {"integrations.langchain"},
    "llama_index": {"integrations.llama_index"},
    "haystack": {"integrations.haystack"},
    "mteb": {"integrations.mteb"},
}
"""Where a heavy library may be imported: in these modules, or rooms, and nowhere else."""

NAMED_IN_FILES = {"pooling", "langchain", "llama_index", "haystack", "mteb"}
"""Modules of one line, at paths that saved models, pipelines and users' programs name."""


def module_name(path: Path) -> str:
    """Name a module within the package: search.rank."""
    parts = path.relative_to(PACKAGE).with_suffix("").parts
    return ".".join(part for part in parts if part != "__init__")


MODULES = {module_name(path): path for path in sorted(PACKAGE.rglob("*.py"))}


def imported(source: str) -> Iterator[str]:
    """Name all modules that a source imports, inside of functions too."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, "imports name the whole path"
            yield node.module or ""
            yield from (f"{node.module}.{alias.name}" for alias in node.names)
        elif isinstance(node, ast.Call) and ast.unparse(node.func).endswith("import_module"):
            yield from (str(one.value) for one in node.args if isinstance(one, ast.Constant))


def layer_of(room: str) -> int | None:
    return next((row for row, rooms in enumerate(LAYERS) if room in rooms), None)


def upward(name: str, source: str) -> list[str]:
    """List the imports of a module that do not go down."""
    own = name.split(".")[0]
    found = []
    for target in imported(source):
        package, _, inner = target.partition(".")
        room = inner.split(".")[0]
        if package != "pseudoquery" or room == own or layer_of(room) is None:
            continue
        if (layer_of(room) or 0) <= (layer_of(own) or 0):
            found.append(f"{name} imports {target}")
    return sorted(set(found))


def test_every_room_has_a_line() -> None:
    rooms = {name.split(".")[0] for name in MODULES} - {"", "__main__"} - NAMED_IN_FILES
    assert rooms == set().union(*LAYERS)


@pytest.mark.parametrize("name", [name for name in MODULES if layer_of(name.split(".")[0])])
def test_imports_go_down(name: str) -> None:
    assert upward(name, MODULES[name].read_text()) == []


def test_an_import_that_goes_up_is_found_wherever_it_stands() -> None:
    assert upward("search.rank", "from pseudoquery.index import Index") == [
        "search.rank imports pseudoquery.index",
        "search.rank imports pseudoquery.index.Index",
    ]
    hidden = "def f():\n    from pseudoquery import index\n"
    assert upward("search.rank", hidden) == ["search.rank imports pseudoquery.index"]
    beside = "if TYPE_CHECKING:\n    import pseudoquery.corpus.lines\n"
    assert upward("storage.store", beside) == ["storage.store imports pseudoquery.corpus.lines"]
    assert upward("search.rank", "from pseudoquery.storage.store import FolderStore") == []


def test_contributors_are_told_the_same_rule() -> None:
    page = (PACKAGE.parent / "CONTRIBUTING.md").read_text()
    block = page.split("## Imports go down")[1].split("```")[1].strip()
    assert [set(line.split(" | ")) for line in block.splitlines()] == list(LAYERS)


def test_modules_that_only_name_a_path_hold_nothing_else() -> None:
    for name in NAMED_IN_FILES:
        body = ast.parse(MODULES[name].read_text()).body
        assert [type(node) for node in body] == [ast.Expr, ast.ImportFrom, ast.Assign], name


@pytest.mark.parametrize("library", DOORS)
def test_a_heavy_library_has_one_door(library: str) -> None:
    doors = DOORS[library]
    users = {
        name
        for name, path in MODULES.items()
        if any(target.split(".")[0] == library for target in imported(path.read_text()))
    }
    assert users, f"{library} is imported nowhere: take it off the list"
    assert {name for name in users if not {name, name.split(".")[0]} & doors} == set()
