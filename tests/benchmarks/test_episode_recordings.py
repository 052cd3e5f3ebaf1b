"""What recordings promise, at full length: minutes each."""

import pytest

import episode_recordings


@pytest.mark.slow
@pytest.mark.parametrize("what", ["exactness", "crash"])
def test_the_promise_is_kept(what: str) -> None:
    """Hundreds of episodes over a dozen games come back; fifty times kill -9 spoils nothing."""
    assert episode_recordings.main([what, "--steps", "6000", "--no-record"]) == 0
