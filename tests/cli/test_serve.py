"""`pseudoquery serve`: every option does something, and bad options are refused in a sentence."""

from __future__ import annotations

import builtins
import json
import re
import shutil
import signal
import socket
import subprocess
from http.client import HTTPConnection
from pathlib import Path
from typing import Any

import pytest

from pseudoquery.cli import cli
from pseudoquery.index import Index
from pseudoquery.records import Document
from pseudoquery.service.settings import ServiceSettings
from tests.support.command import Run, check_refused
from tests.support.serving import LINES, READ, WRITE, Forks, Reply, lines

ROOT = Path(__file__).parents[2]


def test_an_address_for_others_needs_a_token(run: Run, template: Path) -> None:
    check_refused(run("serve", template, "--host", "0.0.0.0"), "0.0.0.0", "PSEUDOQUERY_READ_TOKEN")
    check_refused(run("serve", template, "--host", ""), "every address")


def test_settings_that_are_refused(run: Run, template: Path, tmp_path: Path) -> None:
    check_refused(run("serve", template, "--read-token", "short"), "at least 16 characters")
    check_refused(run("serve", template, "--write-token", "short"), "openssl rand -hex 32")
    check_refused(run("serve", template, "--cors-origin", "example.org"), "is not an origin")
    check_refused(run("serve", tmp_path / "nowhere"), "is not an index")
    assert run("serve", template, "--port", "70000").code == 2
    for option in ("--max-top", "--timeout"):
        assert run("serve", template, option, "0").code == 2


def test_an_address_that_can_not_be_used(run: Run, template: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        check_refused(
            run("serve", template, "--port", port), f"port {port}", "Address already in use"
        )
    check_refused(
        run("serve", template, "--host", "no.such.host.invalid", "--read-token", READ), "--port"
    )


def test_a_missing_extra_is_told(run: Run, template: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import_ = builtins.__import__

    def without_uvicorn(name: str, *others: Any) -> Any:
        if name == "uvicorn":
            raise ImportError(name)
        return import_(name, *others)

    monkeypatch.setattr(builtins, "__import__", without_uvicorn)
    check_refused(run("serve", template), "pip install 'pseudoquery[serve]'")


def test_the_command_has_the_defaults_of_the_library() -> None:
    defaults = {option.name: option.default for option in cli.commands["serve"].params}
    for name, value in ServiceSettings().limits().items():
        assert defaults[name] == value, name


def test_every_option(forks: Forks, template: Path) -> None:
    options = {
        "--host": "127.0.0.2",
        "--read-token": READ,
        "--write-token": WRITE,
        "--cors-origin": "https://example.org",
        "--max-body": "3000",
        "--max-bulk": "5000",
        "--max-document": "1000",
        "--max-metadata": "2000",
        "--max-query": "30",
        "--max-queries": "2",
        "--max-top": "3",
        "--max-response": "50000",
        "--max-concurrent": "1",
        "--max-connections": "100",
        "--timeout": "7.5",
        "--head-timeout": "3.5",
    }
    given = [part for option in options.items() for part in option]
    pid, url = forks.start(template, *given)
    try:
        assert url.startswith("http://127.0.0.2:")
        host, port = url.removeprefix("http://").split(":")

        def ask(method: str, path: str, body: Any = None, token: str = READ, **more: str) -> Reply:
            connection = HTTPConnection(host, int(port), timeout=30)
            headers = {"Content-Type": "application/json", "Authorization": f"Bearer {token}"}
            sent = body if isinstance(body, bytes | None) else json.dumps(body).encode()
            connection.request(method, path, sent, {**headers, **more})
            response = connection.getresponse()
            received = {name.lower(): value for name, value in response.getheaders()}
            reply = Reply(response.status, received, response.read())
            connection.close()
            return reply

        assert ask("GET", "/info", token="wrong").status == 401
        assert ask("DELETE", "/documents/x").status == 403
        assert ask("DELETE", "/documents/x", token=WRITE).status == 404
        page = ask("GET", "/info", Origin="https://example.org")
        assert page.headers["access-control-allow-origin"] == "https://example.org"
        assert "server" not in page.headers
        assert page.json["limits"] == {
            "body_bytes": 3000,
            "bulk_bytes": 5000,
            "document_characters": 1000,
            "metadata_bytes": 2000,
            "query_characters": 30,
            "queries": 2,
            "top": 3,
            "response_bytes": 50000,
            "concurrency": 1,
            "connections": 100,
            "seconds": 7.5,
            "head_seconds": 3.5,
        }
        assert len(ask("POST", "/search", {"query": "king", "top": 3}).json["answers"]) == 1
        assert ask("POST", "/search", {"query": "king", "top": 4}).status == 422
        large = lines({"id": "a", "text": "x" * 2000})
        assert ask("POST", "/documents", large, WRITE, **{"Content-Type": LINES}).status == 413
    finally:
        ended = forks.end(pid, signal.SIGTERM)
    assert ended == 0


def test_tokens_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """A token in the environment is in nobody's list of processes; several are for rotation."""
    monkeypatch.setenv("PSEUDOQUERY_READ_TOKEN", f"{READ} {READ}-2")
    monkeypatch.setenv("PSEUDOQUERY_WRITE_TOKEN", WRITE)
    made = cli.commands["serve"].make_context("serve", ["folder"])
    assert made.params["read_tokens"] == (READ, f"{READ}-2")
    assert made.params["write_tokens"] == (WRITE,)


def test_the_examples_of_the_guide(forks: Forks, template: Path, tmp_path: Path) -> None:
    """The commands of the guide run as they stand, but for the port."""
    guide = (ROOT / "docs" / "guides" / "serve.md").read_text()
    examples = re.findall(r"```sh\n(curl .*?)```", guide, re.DOTALL)
    commands = "".join(examples)
    assert commands.count("curl ") >= 8
    folder = Path(shutil.copytree(template, tmp_path / "my-index"))
    Index.open(folder).add([Document("parking", "Cyclists leave their bikes in the yard.")])
    (tmp_path / "docs.jsonl").write_bytes(lines({"id": "bread", "text": "moon", "topic": "food"}))
    pid, url = forks.start(folder)
    try:
        script = commands.replace("localhost:8000", url.removeprefix("http://"))
        done = subprocess.run(
            ["bash", "-euc", script], capture_output=True, text=True, cwd=tmp_path, check=False
        )
        assert done.returncode == 0, done.stderr + done.stdout
    finally:
        assert forks.end(pid, signal.SIGINT) == 130
