"""`redline cluster check`: can a Ray cluster train a fleet from here?"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import tyro

from redline.cli.main import DONE, FAILED
from redline.cli.output import give, print_table
from redline.cli.parsing import Json, Plain, parse, run_subject
from redline.errors import UserError
from redline.fleet.engines.ray_cluster import Cluster, inspect
from redline.jsonl import measured, plain_text
from redline.units import size

SUBJECTS = {"check": "is it reached, and are versions, token and folder right?"}
VERSIONS = ("redline", "python", "torch", "ray")


@dataclass(frozen=True)
class CheckFlags:
    """Check a Ray cluster before a fleet trains there: is it reached, and are versions, token and folder right?

    Run it on a machine of the cluster. The exit code is 0 if every node can be used.
    """

    address: Annotated[str, tyro.conf.arg(name="engine.address")] = ""
    """HOST:PORT of the head."""
    dir: Path | None = None
    """A folder that all nodes must see, such as that of the fleet, or where it will be."""
    plain: Plain = False
    json: Json = False


def run(args: Sequence[str]) -> int:
    """Do what the first word names, and return the exit code."""
    return run_subject("cluster", args, {name: (_check, summary) for name, summary in SUBJECTS.items()})


def _check(args: Sequence[str]) -> int:
    """Print a table of the nodes and what is wrong; return 0 if nothing is."""
    flags = parse(CheckFlags, args, prog="redline cluster check")
    if flags.dir is not None and not flags.dir.is_dir():
        raise UserError(f"{flags.dir} is no folder: make it, or name another --dir")
    found = inspect(flags.address, flags.dir)
    give(facts_of(found, flags), flags, show)
    return FAILED if found.problems else DONE


def facts_of(found: Cluster, flags: CheckFlags) -> dict[str, Any]:
    """Return what is told of a cluster."""
    return {
        "address": flags.address,
        "folder": None if flags.dir is None else str(flags.dir.absolute()),
        "ok": not found.problems,
        "cores": found.cores,
        "nodes": [dict(node) for node in found.nodes],
        "problems": found.problems,
        "notes": list(found.notes),
    }


def show(facts: Mapping[str, Any], *, plain: bool) -> None:
    """Print the nodes as a table, then what is wrong."""
    head = ("host", "address", "cores", "memory", *VERSIONS, "token", "folder", "")
    if facts["nodes"]:
        print_table(head, [_row(node, facts["folder"]) for node in facts["nodes"]], plain=plain, numeric=(2, 3))
    for line in (*facts["notes"], *facts["problems"]):
        print(line)
    if facts["ok"]:
        print(f"{facts['address']} can train a fleet: {facts['cores']} cores on {len(facts['nodes'])} nodes")


def _row(node: Mapping[str, Any], folder: str | None) -> tuple[str, ...]:
    versions = node["versions"] if isinstance(node.get("versions"), dict) else {}
    memory_bytes = measured(node.get("memory_bytes"))
    seen = "–" if folder is None or "folder" not in node else "no" if node["folder"] else "seen"
    return (
        plain_text(node.get("host")),
        plain_text(node.get("node")),
        f"{int(measured(node.get('ray_cores')) or 0)}",
        "–" if memory_bytes is None else size(memory_bytes),
        *(plain_text(versions.get(name, "–")) for name in VERSIONS),
        "required" if node.get("auth_mode") == "token" else "–",
        seen,
        plain_text(node.get("problem")) or "ok",
    )
