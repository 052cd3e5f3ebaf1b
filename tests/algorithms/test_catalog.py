"""Names that a user can type."""

from dataclasses import dataclass, replace

import pytest

from redline.algorithms import catalog
from redline.algorithms.catalog import ALGORITHMS, find_algorithm, find_part, part_fields, part_name
from redline.algorithms.predictions import Categorical, OnlineChooses
from redline.errors import UserError
from redline.networks import Mlp, Small


def test_an_algorithm_is_found_whatever_its_case() -> None:
    assert find_algorithm("DQN") is ALGORITHMS["dqn"]


def test_unknown_names_come_with_the_nearest() -> None:
    with pytest.raises(UserError, match="did you mean dqn"):
        find_algorithm("dqm")
    with pytest.raises(UserError, match="did you mean small"):
        find_part("network", "smal")


def test_a_part_knows_its_name_whatever_its_settings() -> None:
    assert part_name(Small(width=64)) == "small"


def test_the_fifteen_algorithms_are_known() -> None:
    values = ["dqn", "n-step-dqn", "double-dqn", "dueling-dqn", "noisy-dqn", "prioritized-dqn", "c51", "qr-dqn", "drqn"]
    combined, policies = ["rainbow", "quantile-rainbow"], ["a2c", "a2c-gae", "ppo", "pqn"]
    assert {*values, *combined, *policies} <= set(ALGORITHMS)


def test_names_of_several_words_have_dashes_and_underscores_do_too() -> None:
    assert part_name(OnlineChooses()) == "online-chooses"
    assert find_algorithm("double_dqn") is ALGORITHMS["double-dqn"]


def test_the_support_of_atoms_is_per_domain() -> None:
    assert find_part("predict", "categorical") == Categorical(low=-10.0, high=10.0)
    assert find_part("predict", "categorical", sees_pictures=False) == Categorical(atoms=101, low=-200.0, high=200.0)


@pytest.mark.parametrize("name", ALGORITHMS)
def test_every_algorithm_learns_on_both_domains_from_named_parts(name: str) -> None:
    entry = ALGORITHMS[name]
    assert entry.changes
    assert entry.paper
    for preset, torsos in ((entry.atari, ("nature",)), (entry.classic, ("mlp", "twin"))):
        assert preset.source
        assert part_name(preset.algorithm.network) in torsos
        for field in part_fields(preset.algorithm):
            part = getattr(preset.algorithm, field)
            assert type(find_part(field, part_name(part))) is type(part)
        assert preset.algorithm.returns.clip_rewards == (preset is entry.atari)


@pytest.fixture
def no_foreign_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(catalog, "_foreign_algorithms", {})
    monkeypatch.setattr(catalog, "_foreign_parts", {field: {} for field in catalog.OWN_PARTS})


@pytest.mark.usefixtures("no_foreign_parts")
def test_an_algorithm_is_registered_with_the_parts_that_only_it_uses() -> None:
    @dataclass(frozen=True)
    class Tiny(Mlp):
        widths: tuple[int, ...] = (4, 4)

    entry = ALGORITHMS["dqn"]
    algorithm = replace(entry.classic.algorithm, network=Tiny())
    catalog.register_algorithm("Tiny_DQN", replace(entry, classic=replace(entry.classic, algorithm=algorithm)))
    assert find_algorithm("tiny-dqn").classic.algorithm is algorithm
    assert find_part("network", "tiny") == Tiny()
    catalog.register_part("network", Tiny((8, 8)))  # as a notebook does whose cell is run again
    assert find_part("network", "tiny") == Tiny((8, 8))


@pytest.mark.usefixtures("no_foreign_parts")
def test_what_would_be_mistaken_for_redlines_own_is_refused() -> None:
    own = type("Mlp", (Mlp,), {})()
    with pytest.raises(UserError, match="network mlp is Redline's own"):
        catalog.register_part("network", own)
    entry = ALGORITHMS["dqn"]
    mistaken = replace(entry.classic, algorithm=replace(entry.classic.algorithm, network=own))
    with pytest.raises(UserError, match="network mlp is Redline's own"):  # a resume would take Redline's
        catalog.register_algorithm("mine", replace(entry, classic=mistaken))
    with pytest.raises(UserError, match="algorithm dqn is Redline's own"):
        catalog.register_algorithm("DQN", entry)
    with pytest.raises(UserError, match="unknown field of an algorithm 'netwrk': did you mean network"):
        catalog.register_part("netwrk", Mlp())
    with pytest.raises(UserError, match="a part is an instance of a dataclass"):
        catalog.register_part("network", Mlp)
