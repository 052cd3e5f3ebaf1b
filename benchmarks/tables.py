"""Writes the tables in README.md and docs/ from the newest record of each name: tables are never typed."""

import argparse
import json
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from algorithms_table import make_algorithms_table
from hardware_tables import describe_overhead, make_fields_table, make_study_table
from performance_tables import (
    make_ladder_table,
    make_limit_table,
    make_numbers_table,
    make_peers_table,
    make_trials_table,
    make_unharmed_table,
)
from recipe_tables import make_games_table, make_recipes_table, make_side_by_side_table, make_tried_table
from recording import RECORDS, say
from redline.cli.algos import RESULTS, read_results
from redline.jsonl import SCHEMA
from run_reading import NOT_YET, markdown_table

REPOSITORY = RECORDS.parent.parent
DOCS = REPOSITORY / "docs"
TRIED = ("pong-motion", "pong", "pong-dqn", "breakout", "boxing")
COLUMNS = ("measured", "result", "beside it", "when", "commit", "record")


def newest_records(folder: Path) -> list[tuple[Path, dict[str, Any]]]:
    """Return the newest record of each name, by name."""
    newest: dict[str, tuple[Path, dict[str, Any]]] = {}
    for path in sorted(folder.glob("*.json")):
        record = json.loads(path.read_text(encoding="utf-8"))
        if record.get("schema") != SCHEMA:
            raise ValueError(f"{path.name} has schema {record.get('schema')!r}, not {SCHEMA}")
        known = newest.get(record["name"])
        if known is None or record["unix_s"] >= known[1]["unix_s"]:
            newest[record["name"]] = (path, record)
    return [newest[name] for name in sorted(newest)]


def make_table(records: Sequence[tuple[Path, dict[str, Any]]]) -> str:
    """Return the table in Markdown."""
    if not records:
        return NOT_YET
    rows = []
    for path, record in records:
        commit, plus, _ = (record["commit"] or "–").partition("+")
        cells = (
            record["title"],
            record["headline"] + (" — **not met**" if record["passed"] is False else ""),
            record["learning"],
            time.strftime("%Y-%m-%d", time.gmtime(record["unix_s"])),
            commit[:7] + plus,
            f"[json](../benchmarks/records/{path.name})",
        )
        rows.append(cells)
    host = max(records, key=lambda item: item[1]["unix_s"])[1]["host"]
    newest = f"Newest on {host['cpu_model']}, {host['usable_cores']} cores; each record holds its own host."
    return f"{markdown_table(COLUMNS, rows)}\n\n{newest}"


def put_table(text: str, table: str, *, mark: str) -> str:
    """Return the text with the table between its two marks."""
    begin, end = f"<!-- {mark}:begin -->", f"<!-- {mark}:end -->"
    if text.count(begin) != 1 or text.count(end) != 1 or text.index(begin) > text.index(end):
        raise ValueError(f"it needs one line {begin} and, after it, one line {end}")
    before, _, rest = text.partition(begin)
    return f"{before}{begin}\n{table}\n{end}{rest.partition(end)[2]}"


def bring_up_to_date(page: Path, table: str, *, mark: str, check: bool) -> bool:
    """Put the table into a page, unless only asked whether it is there; return whether it was."""
    try:
        text = page.read_text(encoding="utf-8")
        wanted = put_table(text, table, mark=mark)
    except ValueError as error:
        raise ValueError(f"{page.name}: {error}") from None
    is_current = text == wanted
    if not is_current and not check:
        page.write_text(wanted, encoding="utf-8")
    if not is_current:
        say(f"{page.name} is " + ("out of date: python benchmarks/tables.py" if check else "rewritten"))
    return is_current


def bring_results_up_to_date(path: Path, records: Path, *, check: bool) -> bool:
    """Write what `redline algos` shows into the package, unless only asked for; return whether it was there."""
    results, unreadable = read_results(records)
    if unreadable:
        raise ValueError("; ".join(unreadable))
    wanted = json.dumps(results, indent=1, sort_keys=True) + "\n"
    is_current = path.exists() and path.read_text(encoding="utf-8") == wanted
    if not is_current and not check:
        path.write_text(wanted, encoding="utf-8")
    if not is_current:
        say(f"{path.name} is " + ("out of date: python benchmarks/tables.py" if check else "rewritten"))
    return is_current


def main(argv: Sequence[str] | None = None) -> int:
    """Bring the pages up to date, or say whether they are."""
    options = parse(argv)
    try:
        records = newest_records(options.records)
        by_name = {record["name"]: record for _, record in records}
        tables = (
            (options.readme, "numbers", make_numbers_table(by_name)),
            (options.docs / "measured.md", "records", make_table(records)),
            (options.docs / "algorithms.md", "algorithms", make_algorithms_table(by_name)),
            (options.docs / "recipes.md", "recipes", make_recipes_table(by_name)),
            *((options.docs / "recipes.md", f"tried-{name}", make_tried_table(by_name, name)) for name in TRIED),
            (options.docs / "recipes.md", "side-by-side", make_side_by_side_table(by_name)),
            (options.docs / "recipes.md", "games", make_games_table(by_name)),
            (options.docs / "monitor.md", "hardware-fields", make_fields_table()),
            (options.docs / "monitor.md", "overhead", describe_overhead(by_name)),
            (options.docs / "utilisation.md", "algorithms", make_study_table(by_name, "catch")),
            (options.docs / "utilisation.md", "pong", make_study_table(by_name, "pong")),
            (options.docs / "utilisation.md", "sweep", make_study_table(by_name, "sweep")),
            (options.docs / "performance.md", "limit", make_limit_table(by_name)),
            (options.docs / "performance.md", "peers", make_peers_table(by_name)),
            (options.docs / "performance.md", "ladder", make_ladder_table(by_name)),
            (options.docs / "performance.md", "kept", make_trials_table(by_name, kept=True)),
            (options.docs / "performance.md", "left", make_trials_table(by_name, kept=False)),
            (options.docs / "performance.md", "unharmed", make_unharmed_table(by_name)),
        )
        was_current = [bring_up_to_date(page, table, mark=mark, check=options.check) for page, mark, table in tables]
        was_current.append(bring_results_up_to_date(options.results, options.records, check=options.check))
    except (OSError, ValueError) as error:
        raise SystemExit(f"tables: {error}") from None
    if options.json:
        print(json.dumps({"schema": SCHEMA, "was_current": all(was_current), "records": len(records)}))
    return 1 if options.check and not all(was_current) else 0


def parse(argv: Sequence[str] | None) -> argparse.Namespace:
    """Read the flags."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="change nothing; exit 1 if a table is out of date")
    parser.add_argument("--json", action="store_true", help="print one JSON object, and nothing else")
    parser.add_argument("--readme", type=Path, default=REPOSITORY / "README.md")
    parser.add_argument("--docs", type=Path, default=DOCS)
    parser.add_argument("--records", type=Path, default=RECORDS)
    parser.add_argument("--results", type=Path, default=REPOSITORY / "src" / "redline" / "cli" / RESULTS)
    return parser.parse_args(argv)


if __name__ == "__main__":
    sys.exit(main())
