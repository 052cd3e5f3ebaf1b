"""Writes the table of measurements in README.md from the newest record of each name: tables are never typed."""

import argparse
import json
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from recording import RECORDS, say
from redline.records import SCHEMA

README = RECORDS.parent.parent / "README.md"
BEGIN, END = "<!-- records:begin -->", "<!-- records:end -->"
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
        return "Nothing is recorded yet."
    lines = ["| " + " | ".join(COLUMNS) + " |", "|" + "---|" * len(COLUMNS)]
    for path, record in records:
        commit, plus, _ = (record["commit"] or "–").partition("+")
        cells = (
            record["title"],
            record["headline"] + (" — **not met**" if record["passed"] is False else ""),
            record["learning"],
            time.strftime("%Y-%m-%d", time.gmtime(record["unix_s"])),
            commit[:7] + plus,
            f"[json](benchmarks/records/{path.name})",
        )
        lines.append("| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |")
    host = max(records, key=lambda item: item[1]["unix_s"])[1]["host"]
    lines += ["", f"Newest on {host['cpu_model']}, {host['usable_cores']} cores; each record holds its own host."]
    return "\n".join(lines)


def put_table(text: str, table: str) -> str:
    """Return the text with the table between its two marks."""
    if text.count(BEGIN) != 1 or text.count(END) != 1 or text.index(BEGIN) > text.index(END):
        raise ValueError(f"README.md needs one line {BEGIN} and, after it, one line {END}")
    before, _, rest = text.partition(BEGIN)
    return f"{before}{BEGIN}\n{table}\n{END}{rest.partition(END)[2]}"


def main(argv: Sequence[str] | None = None) -> int:
    """Bring the README up to date, or say whether it is."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="change nothing; exit 1 if the table is out of date")
    parser.add_argument("--json", action="store_true", help="print one JSON object, and nothing else")
    parser.add_argument("--readme", type=Path, default=README)
    parser.add_argument("--records", type=Path, default=RECORDS)
    options = parser.parse_args(argv)
    try:
        records = newest_records(options.records)
        text = options.readme.read_text(encoding="utf-8")
        wanted = put_table(text, make_table(records))
    except (OSError, ValueError) as error:
        raise SystemExit(f"tables: {error}") from None
    is_current = text == wanted
    if not is_current and not options.check:
        options.readme.write_text(wanted, encoding="utf-8")
    if options.json:
        print(json.dumps({"schema": SCHEMA, "was_current": is_current, "records": len(records)}))
    if not is_current:
        say("README.md is out of date: python benchmarks/tables.py" if options.check else "README.md is rewritten")
    return 1 if options.check and not is_current else 0


if __name__ == "__main__":
    sys.exit(main())
