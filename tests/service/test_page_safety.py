"""Whatever documents, names and questions hold, the page shows it as text, and runs none of it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, Error, expect
from sentence_transformers import MultiVectorEncoder

from pseudoquery.index import Index
from pseudoquery.records import Document
from tests.support.browser import Visit, visiting
from tests.support.serving import running

ATTACKS = [
    "<script>window.harm = 1; alert(1)</script>",
    "<img src=x onerror='window.harm = 1; alert(2)'>",
    "<svg/onload=alert(3)><animate onbegin=alert(4) attributeName=x>",
    "<a href='javascript:window.harm=1'>king</a>",
    "javascript:window.harm=1",
    '"><iframe srcdoc="<script>parent.harm=1</script>"></iframe>',
    "' autofocus onfocus=window.harm=1 x='",
    "</textarea></title></style></script><script>window.harm=1</script>",
    "{{constructor.constructor('window.harm=1')()}} ${window.harm=1} <%= 1 %>",
    "<style>*{display:none!important}</style><link rel=stylesheet href=//example.org/x.css>",
    "<base href=//example.org/><meta http-equiv=refresh content='0;url=//example.org'>",
    "<form action=//example.org><input name=q><button>king</button></form>",
    "&lt;script&gt;window.harm=1&lt;/script&gt; &#x3c;img src=x&#x3e; \\u003cscript\\u003e",
    "<math><mtext><table><mglyph><style><!--</style><img title='--><img src=1 onerror=alert(5)>'>",
    "#document=%3Cimg src=x onerror=alert(1)%3E&q=<b>",
    "\u202egnp.exe\u2066 <b>king</b>",
    "__proto__",
    "constructor",
]


def unharmed(visit: Visit) -> None:
    assert visit.page.evaluate("window.harm") is None
    foreign = "script:not([src='page/main.js']), iframe, style, base, form[action], math, animate"
    assert visit.page.locator(foreign).count() == 0
    assert visit.page.locator("#results img, #document img, #results b, #document b").count() == 0
    links = visit.page.locator("#results a, #document a").evaluate_all(
        "all => all.map(one => one.href)"
    )
    assert all(link.startswith(f"{visit.url}/#") for link in links)
    visit.check(failed_loads=None)


def test_hostile_documents_and_questions(
    browser: Browser, tmp_path: Path, tiny_model: MultiVectorEncoder
) -> None:
    index = Index.create(tmp_path / "index", model=tiny_model)
    index.add(
        Document(attack, f"king {attack} city", attack, {attack: attack, "list": [attack]})
        for attack in ATTACKS
    )
    high = {"viewport": {"width": 1200, "height": 6000}}
    with running(index) as service, visiting(browser, service.url, **high) as visit:
        visit.open().ask("king")
        visit.page.get_by_role("button", name="Show more").click()
        expect(visit.page.locator(".hit")).to_have_count(len(ATTACKS))
        visit.explained()
        for card in visit.page.locator(".hit").all():
            id_ = card.get_attribute("data-id")
            assert id_ in ATTACKS
            assert card.locator("h2 a").evaluate("one => one.textContent") == id_
            text = card.locator(".text").evaluate("one => one.textContent")
            assert text == f"king {id_} city"
        assert visit.page.locator("mark").count() > len(ATTACKS)
        unharmed(visit)
        for attack in ATTACKS[::3]:
            assert visit.ask(attack).count() == 10
        unharmed(visit)
        visit.page.get_by_role("switch", name="Compare").check()
        expect(visit.page.locator("[data-way=one_vector] li")).to_have_count(10)
        unharmed(visit)
        for attack in ATTACKS:
            visit.move(q=attack, document=attack)
            article = visit.page.get_by_role("article", name=attack, exact=True)
            expect(article.locator(".map")).to_be_visible()
            assert (
                article.locator(".text").evaluate("one => one.textContent") == f"king {attack} city"
            )
            names = article.locator("dt").evaluate_all("all => all.map(one => one.textContent)")
            assert attack in names
            values = article.locator("dd").evaluate_all("all => all.map(one => one.textContent)")
            assert {attack, json.dumps([attack], ensure_ascii=False)} <= set(values)
        unharmed(visit)
        visit.open(q="king", document=ATTACKS[0] * 2, shown="<b>", hybrid=ATTACKS[0])
        expect(visit.alert()).to_contain_text(ATTACKS[0])
        unharmed(visit)


def test_hostile_files(served: Index, browser: Browser) -> None:
    with running(served) as service, visiting(browser, service.url) as visit:
        visit.open().page.get_by_role("button", name="Add documents").click()
        files: list[Any] = []
        for number, attack in enumerate(ATTACKS):
            name = f"{number} {attack.replace('/', '|')}.txt"
            files.append({"name": name, "mimeType": "text/html", "buffer": attack.encode()})
        wrong = f'{{"id": "{ATTACKS[1]}"}}\n{ATTACKS[0]}'.encode()
        files.append({"name": "<b>.jsonl", "mimeType": "text/html", "buffer": wrong})
        visit.page.locator("#files").set_input_files(files)
        expect(visit.page.locator("#transfers .done")).to_have_count(len(ATTACKS))
        expect(visit.page.locator("#transfers .failed")).to_have_count(1)
        assert visit.page.locator("#transfers b, #transfers img").count() == 0
        unharmed(visit)
    assert len(served) == 30 + len(ATTACKS)


def test_the_browser_itself_refuses_html_and_code_out_of_text(
    served: Index, browser: Browser
) -> None:
    with running(served) as service:
        context = browser.new_context()
        visit = Visit(context, service.url).open()
        for code in (
            "document.body.innerHTML = '<b>x</b>'",
            "document.body.insertAdjacentHTML('beforeend', '<b>x</b>')",
            "new DOMParser().parseFromString('<b>x</b>', 'text/html')",
            "document.body.setAttribute('onclick', 'window.harm = 1')",
            "document.createElement('script').src = 'page/main.js'",
        ):
            with pytest.raises(Error, match="requires 'Trusted"):
                visit.page.evaluate(f"() => {{ {code} }}")
        visit.page.evaluate(
            """() => { const one = document.createElement("img");
                one.src = "https://example.org/x.png";
                document.body.append(one); }"""
        )
        with pytest.raises(Error, match="Failed to fetch"):
            visit.page.evaluate("fetch('https://example.org/')")
        assert sum("example.org" in one for one in visit.wrong) >= 2  # each is told to be refused
        assert visit.page.evaluate("window.harm") is None
        context.close()
