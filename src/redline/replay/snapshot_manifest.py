"""The manifest of a saved replay memory, typed: what a file says is decoded before anything is made of it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

import msgspec
from msgspec import Meta

from redline.errors import DamagedError, UserError

SCHEMA = 2
Count = Annotated[int, Meta(ge=0, le=2**40)]
Size = Annotated[int, Meta(ge=1, le=2**40)]
FrameCount = Annotated[int, Meta(ge=1, le=2**20)]


class Heads(msgspec.Struct, frozen=True):
    """How far each lane was written."""

    num_frames: list[Count]
    num_transitions: list[Count]
    ended_before: list[Count]
    step: list[Count]
    is_open: list[Annotated[int, Meta(ge=0, le=1)]]


class Block(msgspec.Struct, frozen=True):
    """Sealed chunks that were stored together."""

    chunks: Count
    transitions: Count
    location: Any  # the store's own: it checks what it is given


class Unsealed(msgspec.Struct, frozen=True):
    """Chunks that were being written; their rows are in the arrays."""

    lane: list[Count]
    chunk: list[Count]
    first_number: list[Count]
    num_frames: list[Count]


class SnapshotManifest(msgspec.Struct, frozen=True):
    """What `take_snapshot` writes beside blocks and arrays."""

    schema: int
    capacity: Size
    budget_bytes: Size | None
    frame_budget_bytes: Count | None
    horizon_steps: Count
    codec: str
    frame_shape: list[Count]
    frame_dtype: str
    frames_per_chunk: FrameCount
    first_lane: Count
    lanes: list[Count]
    heads: Heads
    full_at: Count | None
    blocks: list[Block]
    chunks_gone: Count
    unsealed: Unsealed


def decode_manifest(manifest: Mapping[str, Any]) -> SnapshotManifest:
    """Return the manifest in types; DamagedError names the field that does not fit."""
    if isinstance(schema := manifest.get("schema"), int) and schema != SCHEMA:
        raise UserError(f"the saved replay has schema {schema}: this version reads {SCHEMA}")
    try:
        found = msgspec.convert(manifest, SnapshotManifest)
        for group in (found.heads, found.unsealed):
            if len({len(getattr(group, name)) for name in group.__struct_fields__}) > 1:
                raise msgspec.ValidationError(f"{type(group).__name__.lower()} of several lengths")
    except msgspec.ValidationError as error:
        raise DamagedError(f"a checkpoint's replay is damaged: {error}: remove that checkpoint") from error
    return found
