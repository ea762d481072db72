"""The exported page: whatever a run contains stays text."""

import dataclasses
import enum
import types
import typing
from html.parser import HTMLParser
from typing import Any

import pytest

from ralph.view.model import RunView
from ralph.view.page.markup import tag
from ralph.view.page.run_page import PageParts, render_page

HOSTILE = "</style></title></pre><script>alert(1)</script>\" onload='x' <img src=x onerror=y>&lt;`<b>\u202e\x1b]0;x\x07"
TAGS = {
    "html", "head", "meta", "title", "style", "body", "svg", "symbol", "path", "circle", "rect", "polyline", "use", "main",
    "header", "div", "span", "code", "h1", "h2", "h3", "p", "nav", "a", "section", "table", "caption", "thead", "tbody", "tr",
    "th", "td", "abbr", "details", "summary", "dl", "dt", "dd", "pre", "b", "footer",
}  # fmt: skip


class Page(HTMLParser):
    """Reads a page, and collects what must not be there."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.problems: list[str] = []
        self.texts: list[str] = []
        self.feed(text)

    def handle_starttag(self, name: str, attributes: list[tuple[str, str | None]]) -> None:
        if name not in TAGS:
            self.problems.append(f"<{name}>")
        for attribute, value in attributes:
            if attribute.startswith("on") or attribute in ("style", "src", "srcdoc"):
                self.problems.append(f"{name} {attribute}={value}")
            if attribute == "href" and not (value or "").startswith("#"):
                self.problems.append(f"{name} href={value}")

    def handle_data(self, data: str) -> None:
        self.texts.append(data)


def fill(kind: Any) -> Any:
    """A value of a type in which every text is hostile, and every list has an item."""
    origin, arguments = typing.get_origin(kind), typing.get_args(kind)
    if origin in (types.UnionType, typing.Union):
        return fill(next(one for one in arguments if one is not type(None)))
    if origin is tuple:
        return (fill(arguments[0]),) if arguments[-1] is ... else tuple(map(fill, arguments))
    if origin in (dict,) or "Mapping" in str(origin):
        return {}
    if dataclasses.is_dataclass(kind):
        hints = typing.get_type_hints(kind)
        return kind(**{field.name: fill(hints[field.name]) for field in dataclasses.fields(kind) if field.init})
    if isinstance(kind, type) and issubclass(kind, enum.Enum):
        return next(iter(kind))
    if kind is bool:
        return False
    return {str: HOSTILE, int: 3, float: 1e9}.get(kind, HOSTILE)


def hostile_file(status: str, *, binary: bool = False) -> dict[str, Any]:
    hunk = {"head": f"@@ {HOSTILE}", "context": HOSTILE, "lines": [["+", None, 3, HOSTILE], ["-", 3, None, HOSTILE]]}
    return {
        "path": HOSTILE, "old_path": HOSTILE, "status": status, "added": 1, "removed": 1, "binary": binary,
        "hunks": [hunk], "shown": 2, "left_out": 4,
    }  # fmt: skip


@pytest.mark.parametrize("alive", [True, False])
def test_hostile_text_in_every_field_stays_text(alive: bool) -> None:
    view: RunView = dataclasses.replace(fill(RunView), alive=alive)
    assert view.turns and view.checks and view.findings and view.comments and view.tasks and view.cost.by_role
    parts = PageParts(
        css="body{}",
        icons='<symbol id="i-x"></symbol>',
        version=HOSTILE,
        exported_at=1e9,
        files=[hostile_file("new"), hostile_file("changed", binary=True)],
        diff_problem="",
    )
    for problem in ("", HOSTILE):
        text = render_page(view, dataclasses.replace(parts, diff_problem=problem))
        page = Page(text)
        assert page.problems == []
        assert "\x1b" not in text and "\u202e" not in text
        # One `</style>` and one `</title>` of the page itself; those of symbols are escaped as all others.
        assert text.count("</style>") == 1
        assert any("<script>alert(1)</script>" in one for one in page.texts), "the text itself is shown"


def test_a_page_allows_no_script_and_no_other_host() -> None:
    text = render_page(RunView(), PageParts(css="", icons="", version="1", exported_at=0.0))
    assert "default-src &#x27;none&#x27;" in text
    assert "http://" not in text and "https://" not in text
    assert Page(text).problems == []


def test_value_that_is_neither_text_nor_markup_is_an_error() -> None:
    with pytest.raises(TypeError, match="object is neither text nor markup"):
        tag("p", object())


def test_attributes_are_escaped_and_left_out_if_none() -> None:
    assert str(tag("a", "x", href='"<', class_=None, open=True)) == '<a href="&quot;&lt;" open>x</a>'
