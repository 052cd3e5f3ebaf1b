"""What a run tells whoever watches it."""

from typing import Protocol

from redline.runtime.gauges import Gauges


class Watcher(Protocol):
    """A display; it must return at once."""

    def note(self, text: str) -> None:
        """Take in a fact worth a line: a protocol, a thread count, requested → effective, a warning."""
        ...

    def show(self, gauges: Gauges) -> None:
        """Take in a reading."""
        ...
