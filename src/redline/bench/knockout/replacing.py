"""One method of a part replaced for a while: the training itself has no switch for it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

Tap = Callable[[tuple[Any, ...], Any], None]


@contextmanager
def replaced(owner: object, name: str, stand_in: object) -> Iterator[None]:
    """Let `stand_in` be called in place of a method of `owner`, which may be a module."""
    own = vars(owner)
    is_own, before = name in own, own.get(name)
    setattr(owner, name, stand_in)
    try:
        yield
    finally:
        if is_own:
            setattr(owner, name, before)
        else:
            delattr(owner, name)


@contextmanager
def tapped(owner: object, name: str, keep: Tap) -> Iterator[None]:
    """Let `keep` have what a method of `owner` is given, and what it gives back."""
    method = getattr(owner, name)

    def call(*args: Any, **kwargs: Any) -> Any:
        result = method(*args, **kwargs)
        keep(args, result)
        return result

    with replaced(owner, name, call):
        yield


def do_nothing(*_: object, **__: object) -> None:
    """Stand in for whatever is left out and gives nothing back."""
