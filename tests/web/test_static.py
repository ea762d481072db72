"""The files of the page: what is vendored, how much it weighs, and what it may not contain."""

import gzip
import hashlib
import json
import re
from pathlib import Path

import pytest

STATIC = Path(__file__).resolve().parents[2] / "src" / "ralph" / "web" / "static"
VENDOR = json.loads((STATIC / "VENDOR.json").read_text())
OWN = [path for path in sorted(STATIC.iterdir()) if path.suffix in (".js", ".html", ".css")]


def test_vendored_files_are_those_of_the_list_and_no_others() -> None:
    listed = {one["file"] for one in VENDOR["files"]}
    assert {f"vendor/{path.name}" for path in (STATIC / "vendor").glob("*.js")} == listed
    for one in VENDOR["files"]:
        assert hashlib.sha256((STATIC / one["file"]).read_bytes()).hexdigest() == one["sha256"], one["file"]
        assert one["version"] and one["license"] and (STATIC / "vendor" / f"LICENSE-{one['name']}").exists()


def test_the_whole_page_weighs_less_than_120_kilobytes() -> None:
    files = [path for path in STATIC.rglob("*") if path.suffix in (".js", ".html", ".css", ".svg")]
    assert sum(len(gzip.compress(path.read_bytes(), mtime=0)) for path in files) < 120 * 1024


@pytest.mark.parametrize("path", OWN, ids=lambda path: path.name)
def test_the_page_has_no_inline_code_and_asks_no_other_host(path: Path) -> None:
    text = path.read_text()
    assert re.findall(r"https?://(?!www\.w3\.org)[^\s'\"`]+", text) == []
    assert "innerHTML" not in text and "eval(" not in text and "document.write" not in text
    if path.suffix == ".html":
        assert re.findall(r"<script(?![^>]*src=)|\son\w+=|style=", text) == []


PAIRS = [
    *(
        (fore, back)
        for fore in ("text", "text-2", "text-3")
        for back in ("surface", "canvas", "sunken", "hover", "selected")
    ),
    *(
        (tone, back)
        for tone in ("need", "fail", "pass", "work", "judge", "idle")
        for back in ("surface", "canvas", "sunken")
    ),
    *((tone, f"{tone}-bg") for tone in ("need", "fail", "pass", "work", "judge", "idle")),
    *((fore, back) for fore in ("text", "text-3") for back in ("add-bg",)),
    ("text", "del-bg"),
    ("text-2", "add-num"),
    ("text-2", "del-num"),
    ("accent", "surface"),
    ("on-accent", "accent-fill"),
]


@pytest.mark.parametrize("theme", [0, 1], ids=["light", "dark"])
def test_every_pair_of_colors_can_be_read(theme: int) -> None:
    css = (STATIC / "ralph.css").read_text()
    colors = {name: (light, dark) for name, light, dark in re.findall(r"--([\w-]+):light-dark\((#\w+),(#\w+)\)", css)}
    colors["on-accent"] = ("#ffffff", "#ffffff")
    weak = [pair for pair in PAIRS if contrast(colors[pair[0]][theme], colors[pair[1]][theme]) < 4.5]
    assert weak == []


def contrast(one: str, other: str) -> float:
    """The contrast ratio of WCAG 2."""
    light, dark = sorted((luminance(one), luminance(other)), reverse=True)
    return (light + 0.05) / (dark + 0.05)


def luminance(color: str) -> float:
    parts = [int(color[at : at + 2], 16) / 255 for at in (1, 3, 5)]
    linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]
