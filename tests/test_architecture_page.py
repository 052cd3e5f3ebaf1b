"""Docs name functions and tests that exist; a transition takes twelve hops; the README lists every package."""

import ast
import re
from pathlib import Path

import pytest

DOCS = Path(__file__).parents[1] / "docs"
PAGE = (DOCS / "architecture.md").read_text()
LINK = re.compile(r"\[`([\w.]+)`\]\(([^)#]+\.py)\)")


def functions_of(path: Path) -> set[str]:
    """Return the functions of a module and the methods of its classes, as Class.method."""
    found: set[str] = set()
    for node in ast.parse(path.read_text()).body:
        if isinstance(node, ast.FunctionDef):
            found.add(node.name)
        elif isinstance(node, ast.ClassDef):
            found |= {f"{node.name}.{item.name}" for item in node.body if isinstance(item, ast.FunctionDef)}
    return found


@pytest.mark.parametrize("page", ["architecture.md", "promises.md"])
def test_every_link_leads_to_the_function_it_names(page: str) -> None:
    links = LINK.findall((DOCS / page).read_text())
    assert len(links) >= 12
    lost = [f"{name} in {path}" for name, path in links if name not in functions_of(DOCS / path)]
    assert not lost


def test_a_transition_takes_at_most_twelve_hops_each_with_a_function() -> None:
    hops = re.findall(r"^\| (\d+) \| (.+?) \|", PAGE, re.MULTILINE)
    assert [int(number) for number, _ in hops] == list(range(1, len(hops) + 1))
    assert 1 <= len(hops) <= 12
    assert all(LINK.search(where) for _, where in hops)


def test_the_code_map_of_the_readme_lists_every_package_and_module_of_the_house() -> None:
    readme, house = (DOCS.parent / "README.md").read_text(), DOCS.parent / "src" / "redline"
    code_map = readme.partition("## Code map")[2].partition("\n## ")[0]
    listed = {name.rstrip("/") for name in re.findall(r"`(\w+(?:\.py|/))`", code_map)}
    folders = {path.parent.name for path in house.glob("*/__init__.py")}
    modules = {path.name for path in house.glob("*.py")} - {"__init__.py"}
    outside = {"benchmarks", "processes"}
    assert listed - outside == folders | modules


def test_every_link_between_pages_leads_to_a_file() -> None:
    pages = [*DOCS.rglob("*.md"), *DOCS.parent.glob("*.md")]
    links = [(page, link) for page in pages for link in re.findall(r"\]\(([^)#\s:]+)[)#]", page.read_text())]
    assert len(links) > 100
    assert not [f"{page.name}: {link}" for page, link in links if not (page.parent / link).exists()]


def test_every_module_that_a_page_names_by_its_path_exists() -> None:
    house = DOCS.parent / "src" / "redline"
    pages = [*DOCS.rglob("*.md"), *DOCS.parent.glob("*.md")]
    named = [(page.name, path) for page in pages for path in re.findall(r"`((?:\w+/)+\w+\.py)`", page.read_text())]
    assert len(named) > 20
    assert not [one for one in named if not any((root / one[1]).exists() for root in (house, DOCS.parent))]
