"""What MkDocs does beside its own: pages that live outside of docs/ become pages of the site.

In the repository, links between these files are relative paths, so that they work where the files
are read. This module gives each such file an address on the site, and rewrites the links.
"""

from __future__ import annotations

import posixpath
import re
from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT = Path(__file__).parent.parent
ELSEWHERE = {
    "CHANGELOG.md": "changelog.md",
    "CONTRIBUTING.md": "contributing.md",
    "LICENSE": "license.txt",
    "NOTICE": "notice.txt",
    "pseudoquery/data/model/README.md": "reference/model-card.md",
    **{f"deploy/{path.name}": f"guides/deploy/{path.name}" for path in ROOT.glob("deploy/*")},
    **{f"recipes/{path.name}": f"research/recipes/{path.name}" for path in ROOT.glob("recipes/*")},
    **{f"results/{path.name}": f"research/tables/{path.name}" for path in ROOT.glob("results/*.*")},
}
"""Files of the repository, and where each is on the site."""
_LINK = re.compile(r"\]\((?![a-z]+:|#)([^)\s#]+)(#[^)\s]*)?\)")


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the files that are not in docs/."""
    for source, address in ELSEWHERE.items():
        files.append(File.generated(config, address, abs_src_path=str(ROOT / source)))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:  # noqa: ARG001
    """Let links lead to where the files are on the site."""
    source = Path(page.file.abs_src_path or "").relative_to(ROOT).as_posix()

    def rewritten(link: re.Match[str]) -> str:
        target = posixpath.normpath(posixpath.join(posixpath.dirname(source), link[1]))
        address = _address(target)
        if address is None:
            return link[0]
        here = posixpath.dirname(page.file.src_uri) or "."
        heading = "" if target == "README.md" else link[2] or ""  # the home page has others
        return f"]({posixpath.relpath(address, here)}{heading})"

    return _LINK.sub(rewritten, markdown)


def _address(target: str) -> str | None:
    """Say where a file of the repository is on the site."""
    if target == "README.md":
        return "index.md"
    inside = target.removeprefix("docs/") if target.startswith("docs/") else None
    return ELSEWHERE.get(target, inside)
