"""JSON as the dashboard sends it."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Any

import msgspec

from redline.jsonl import as_json_value


def encode(content: Mapping[str, Any]) -> bytes:
    """Return strict JSON; NaN and infinities become null."""
    try:
        return msgspec.json.encode(content)
    except UnicodeEncodeError:  # half a character, which a file may hold and UTF-8 may not
        return json.dumps(as_json_value(content)).encode()


def mark_of(content: Mapping[str, Any]) -> str:
    """Return a word that changes with the content."""
    return hashlib.blake2b(encode(content), digest_size=8).hexdigest()
