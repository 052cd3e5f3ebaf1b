"""Ways to spoil a file or folder of a run, each by a random hand that is passed in."""

import hashlib
import json
import os
import random
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

SPARSE_BYTES = 3_000_000_000
DEPTH = 200_000
SHAPES: tuple[object, ...] = (
    *(
        None,
        [],
        {},
        "",
        "x",
        0,
        5,
        -1,
        0.5,
        1e300,
        2**31,
        2**63,
        10**30,
        True,
        [5],
        [None],
        {"a": 1},
        [[]],
        "a" * 1_000,
    ),
    *("\x1b[31mred", "../../outside/file", "/etc/passwd", "\x00", "\ud800", float("nan"), float("inf")),
)

# spoils the path; `outside` is a tree that nothing may touch
Ruin = Callable[[Path, Path, random.Random], None]


def ruin(run: Path, name: str, how: str, *, outside: Path, rng: random.Random) -> None:
    """Spoil one file or folder of a run."""
    RUINS[how](run / name, outside, rng)


def flip(path: Path, _: Path, rng: random.Random) -> None:
    """Flip one bit."""
    if path.is_file() and (content := bytearray(path.read_bytes())):
        at = rng.randrange(len(content))
        content[at] ^= 1 << rng.randrange(8)
        path.write_bytes(content)


def flip_digit(path: Path, _: Path, rng: random.Random) -> None:
    """Flip one bit of a digit, which leaves JSON readable."""
    content = bytearray(path.read_bytes()) if path.is_file() else bytearray()
    if digits := [at for at, byte in enumerate(content) if byte in b"02468"]:
        content[rng.choice(digits)] ^= 1
        path.write_bytes(content)


def truncate(path: Path, _: Path, rng: random.Random) -> None:
    """Cut the end off."""
    if path.is_file():
        os.truncate(path, rng.randrange(path.stat().st_size + 1))


def append(path: Path, _: Path, rng: random.Random) -> None:
    """Add bytes."""
    if path.is_file():
        with path.open("ab") as file:
            file.write(
                rng.choice((b"\0" * 100, b"x", b"\n\n", b"{}\n", b"[]\n5\nnull\n", b"\xff\xfe\n", rng.randbytes(1_000)))
            )


def delete(path: Path, *_: object) -> None:
    """Remove it."""
    shutil.rmtree(path) if path.is_dir() else path.unlink()


def swap(path: Path, _: Path, rng: random.Random) -> None:
    """Exchange it with a neighbour, or with a file elsewhere in the run."""
    others = [
        other for other in _run_of(path).rglob("*") if other != path and other.is_file() and path not in other.parents
    ]
    other, aside = rng.choice(sorted(others)), path.with_name("aside")
    path.rename(aside)
    other.rename(path)
    aside.rename(other)


def link_outside(path: Path, outside: Path, _: random.Random) -> None:
    """Move it out of the run and leave a link."""
    target = outside / f"moved-{path.name}"
    shutil.move(path, target)
    path.symlink_to(target)


def link_sentinel(path: Path, outside: Path, rng: random.Random) -> None:
    """Put a link to a stranger's file or folder in its place."""
    is_folder = path.is_dir()
    delete(path)
    path.symlink_to(outside / ("folder" if is_folder else rng.choice(("file", "rows.jsonl", "missing"))))


def link_neighbours(path: Path, outside: Path, _: random.Random) -> None:
    """Put links where a writer may put temporary or lost rows."""
    for name in _neighbours(path):
        if not (path.parent / name).exists():
            (path.parent / name).symlink_to(outside / "file")


def fill_neighbours(path: Path, *_: object) -> None:
    """Put folders where a writer may put temporary or lost rows."""
    for name in _neighbours(path):
        if not (path.parent / name).exists():
            (path.parent / name / "inner").mkdir(parents=True)


def hard_link(path: Path, outside: Path, _: random.Random) -> None:
    """Give a stranger's file this name too: whoever writes here without replacing changes it there."""
    if path.is_file():
        path.unlink()
        os.link(outside / "rows.jsonl", path)


def fifo(path: Path, *_: object) -> None:
    """Put a pipe in its place that nobody writes to."""
    delete(path)
    os.mkfifo(path)


def directory(path: Path, *_: object) -> None:
    """Put a folder in the place of a file, a file in the place of a folder."""
    is_folder = path.is_dir()
    delete(path)
    if is_folder:
        path.write_text("a file\n", encoding="utf-8")
    else:
        (path / "inner").mkdir(parents=True)


def huge(path: Path, *_: object) -> None:
    """Let it claim gigabytes that are not on the disk."""
    if path.is_file():
        os.truncate(path, SPARSE_BYTES)


def deep(path: Path, *_: object) -> None:
    """Nest JSON deeper than any parser likes."""
    if path.is_file():
        path.write_text("[" * DEPTH, encoding="utf-8")


def empty(path: Path, *_: object) -> None:
    """Leave nothing in it."""
    delete(path) if path.is_dir() else path.write_bytes(b"")
    path.parent.mkdir(exist_ok=True)


def shape(path: Path, _: Path, rng: random.Random) -> None:
    """Give one value of a JSON file another type; rows are JSON too."""
    if path.suffix == ".json":
        path.write_text(json.dumps(_misshape(json.loads(path.read_bytes()), rng)), encoding="utf-8")
    elif path.suffix == ".jsonl" and (lines := path.read_text(encoding="utf-8").splitlines()):
        at = rng.randrange(len(lines))
        lines[at] = json.dumps(_misshape(json.loads(lines[at]), rng))
        path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    else:
        flip(path, path, rng)


def reforge(path: Path, outside: Path, rng: random.Random) -> None:
    """Change a value or bytes of a checkpoint and make its checksums right again; other files lose a value's type."""
    folder = next((parent for parent in (path, *path.parents) if (parent / "manifest.json").is_file()), None)
    if folder is None:
        return shape(path, outside, rng) if path.is_file() else delete(path)
    manifest = json.loads((folder / "manifest.json").read_bytes())
    chosen = rng.choice(("state.json", "arrays.safetensors", "optimizer.safetensors", "weights.safetensors", "replay"))
    if chosen == "replay":
        manifest["replay"] = _misshape(manifest.get("replay"), rng)
    elif chosen.endswith(".json"):
        shape(folder / chosen, outside, rng)
    else:
        rng.choice((flip_header, swap, zero_floats))(folder / chosen, outside, rng)
    for name in manifest["files"]:
        content = (folder / name).read_bytes()
        manifest["files"][name] = {"bytes": len(content), "sha256": hashlib.sha256(content).hexdigest()}
    manifest.pop("manifest_sha256", None)
    digest = hashlib.sha256(_encode(manifest)).hexdigest()
    (folder / "manifest.json").write_bytes(_encode({**manifest, "manifest_sha256": digest}))
    return None


def flip_header(path: Path, _: Path, rng: random.Random) -> None:
    """Change a digit of a safetensors header: shapes, offsets."""
    content = bytearray(path.read_bytes())
    size = int.from_bytes(content[:8], "little")
    if digits := [at for at in range(8, 8 + size) if content[at : at + 1].isdigit()]:
        content[rng.choice(digits)] ^= 1
    path.write_bytes(content)


def zero_floats(path: Path, _: Path, rng: random.Random) -> None:
    """Make some numbers not finite."""
    content = bytearray(path.read_bytes())
    start = 8 + int.from_bytes(content[:8], "little")
    if len(content) >= start + 8:
        at = start + rng.randrange((len(content) - start) // 8) * 8
        content[at : at + 8] = rng.choice((b"\xff" * 8, b"\0\0\x80\x7f" * 2, b"\0" * 8))
    path.write_bytes(content)


RUINS: dict[str, Ruin] = {
    function.__name__: function
    for function in (
        *(flip, flip_digit, truncate, append, delete, swap, link_outside, link_sentinel, link_neighbours, hard_link),
        *(fill_neighbours, fifo, directory, huge, deep, empty, shape, reforge),
    )
}


OF_FOLDERS = (
    "delete",
    "link_outside",
    "link_sentinel",
    "link_neighbours",
    "fill_neighbours",
    "fifo",
    "directory",
    "empty",
)
OF_JSON = ("shape", "deep", "flip_digit")


def ruins_for(path: Path) -> list[str]:
    """Return the ways that change such a file or folder."""
    if path.is_dir():
        return [*OF_FOLDERS, "reforge"] if (path / "manifest.json").exists() else list(OF_FOLDERS)
    is_json = path.suffix in (".json", ".jsonl")
    # what only JSON can suffer, twice for JSON
    return [name for name in RUINS if name not in OF_JSON] + (2 * list(OF_JSON) if is_json else [])


def _misshape(value: Any, rng: random.Random) -> Any:
    """Return a value in which one part, at a random depth, is of another shape or gone."""
    if isinstance(value, dict) and value and rng.random() < 0.85:
        key = rng.choice(sorted(value))
        if rng.random() < 0.1:
            return {name: item for name, item in value.items() if name != key}
        return {**value, key: _misshape(value[key], rng)}
    if isinstance(value, list) and value and rng.random() < 0.6:
        at = rng.randrange(len(value))
        return [*value[:at], _misshape(value[at], rng), *value[at + 1 :]]
    return rng.choice(SHAPES)


def _encode(value: object) -> bytes:
    return json.dumps(value, separators=(",", ":")).encode()


def _neighbours(path: Path) -> list[str]:
    names = [
        f".{path.name}.tmp",
        f"{path.name}.tmp",
        f"{path.stem}.lost{path.suffix}",
        f".{path.stem}.lost{path.suffix}.tmp",
    ]
    return list(dict.fromkeys(names))


def _run_of(path: Path) -> Path:
    return next(parent for parent in path.parents if parent.name == "run")
