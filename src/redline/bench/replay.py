"""`redline bench replay`: what a transition takes, and how fast memories are sampled and written, ours and others'."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from redline.bench.measuring import Contender, Told, alternate, rate_of
from redline.bench.our_memory import BATCH_SIZE, Sampling, bytes_per_transition, filled_memory, inserting, staging_bytes
from redline.bench.played_games import LANES, PlayedGame, play_game
from redline.bench.replay_peers import PEERS, Peer, PeerMemory
from redline.bench.sum_trees import measure_sum_trees
from redline.errors import UserError
from redline.experience import ReplayMemory, available_bytes
from redline.records import SCHEMA
from redline.runs.host import host_facts, version

GAMES = (
    "pong",
    "breakout",
    "alien",
    "ms_pacman",
    "seaquest",
    "space_invaders",
    "beam_rider",
    "enduro",
    "asteroids",
    "boxing",
    "freeway",
    "krull",
    "yars_revenge",
)
MEASURED_GAME = "pong"  # whose data every contender gets
MIN_TRANSITIONS = 1_000
SAMPLERS = {"uniform": False, "prioritized": True}
PREFETCH = {"off": 0, "on": 4}
INSERTED_STEPS = 250  # of each lane in one go
OUR_CODECS = {"raw": "raw", "zstd": "zstd", "lz4": "lz4", "disk": "zstd"}  # on disk in the folder that was given
KEPT_FREE_BYTES = 512 * 1024**2
PER_TRANSITION_BYTES, SUM_TREE_RATIO, PONG_BATCHES, WORST_BATCHES = 450, 5, 400, 180  # what must be shown


@dataclass(frozen=True)
class ReplayBench:
    """What is measured, and for how long."""

    games: Sequence[str] = GAMES
    transitions: int = 20_000  # played of each game
    rounds: int = 7
    turn_s: float = 0.4  # that each contender works in each round
    path: Path = Path()  # folder on the disk that is measured
    seed: int = 1
    peers: Mapping[str, Peer] | None = None  # None: all that we know

    def __post_init__(self) -> None:
        if not self.games:
            raise UserError("no game is named: use --games pong,breakout")
        if self.transitions < MIN_TRANSITIONS:
            raise UserError(f"transitions is {self.transitions}: use {MIN_TRANSITIONS:_} or more")
        if self.rounds < 1:
            raise UserError(f"rounds is {self.rounds}: use 1 or more")
        if not self.path.is_dir():
            raise UserError(f"path {self.path} is no folder: use one on the disk to be measured")

    def run(self, told: Told = lambda _: None) -> dict[str, Any]:
        """Measure everything and return it as one plain object."""
        begin_s = time.perf_counter()
        told("sum tree")  # first, while memory is as a fresh process has it
        trees = measure_sum_trees(rounds=self.rounds, turn_s=self.turn_s)
        with ExitStack() as stack:
            shown, played, worst_name, worst_memory = self._play_all(told, stack)
            told(f"filling memories with {played.game}")
            memories = self._our_memories(played, stack)
            peers, missing = self._fill_peers(played, told)
            rates, worst_rates, peer_rates, ratios = self._sample(memories, worst_memory, peers, stack, told)
            del peers
            told("inserting")
            inserts = self._insert(played, stack)
        known = PEERS if self.peers is None else self.peers
        facts = host_facts()
        versions: Any = facts["versions"]
        result = {
            "schema": SCHEMA,
            "host": facts["host"],
            "commit": facts["commit"],
            "versions": versions | {peer.package: version(peer.package) for peer in known.values()},
            "config": {
                "games": list(self.games),
                "transitions_per_game": played.num_transitions,
                "lanes": LANES,
                "batch_size": BATCH_SIZE,
                "rounds": self.rounds,
                "turn_s": self.turn_s,
                "seed": self.seed,
                "sampled_game": played.game,
                "low_high": "90 % of the rounds",
            },
            "bytes_per_transition": shown,
            "staging_bytes": staging_bytes(memories["zstd"]),
            "batches_per_s": rates,
            "batches_per_s_worst_game": {"game": worst_name, "zstd": worst_rates},
            "insert_steps_per_s": inserts,
            "peers": {name: missing.get(name) or {**peer_rates[name], "how": peer.how} for name, peer in known.items()},
            "ratio": ratios,
            "sum_tree": trees,
        }
        result["goals"] = goals(result)
        result["duration_s"] = time.perf_counter() - begin_s
        return result

    def _play_all(self, told: Told, stack: ExitStack) -> tuple[dict[str, float], PlayedGame, str, ReplayMemory]:
        """Measure each game's bytes; return them, the game whose data is sampled, and the worst game's memory."""
        shown: dict[str, float] = {}
        sampled: PlayedGame | None = None
        worst: tuple[str, ReplayMemory] | None = None
        for number, game in enumerate(self.games):
            told(f"playing {game}, {number + 1} of {len(self.games)}")
            played = play_game(game, num_transitions=self.transitions, seed=self.seed)
            memory = filled_memory(played, codec="zstd")
            shown[game] = bytes_per_transition(memory)
            if sampled is None or game == MEASURED_GAME:
                sampled = played
            if worst is None or shown[game] > shown[worst[0]]:
                if worst is not None:
                    worst[1].close()
                worst = game, memory
            else:
                memory.close()
        assert sampled is not None  # noqa: S101 - there is a game at least
        assert worst is not None  # noqa: S101
        stack.callback(worst[1].close)
        figures = list(shown.values())
        return {**shown, "mean": sum(figures) / len(figures), "worst": max(figures)}, sampled, *worst

    def _our_memories(self, played: PlayedGame, stack: ExitStack) -> dict[str, ReplayMemory]:
        folder = stack.enter_context(tempfile.TemporaryDirectory(dir=self.path, prefix=".redline-bench-"))
        memories = {}
        for name, codec in OUR_CODECS.items():
            memories[name] = filled_memory(played, codec=codec, path=Path(folder) if name == "disk" else None)
            stack.callback(memories[name].close)
        return memories

    def _fill_peers(self, played: PlayedGame, told: Told) -> tuple[dict[str, PeerMemory], dict[str, dict[str, Any]]]:
        filled: dict[str, PeerMemory] = {}
        missing: dict[str, dict[str, Any]] = {}
        for name, peer in (PEERS if self.peers is None else self.peers).items():
            reason = peer.missing or _does_not_fit(peer, played)
            if reason is None:
                told(f"filling {name}")
                filled[name] = peer.fill(played)
            else:
                told(f"left out: {name}: {reason}")
                missing[name] = {"batches_per_s": None, "bytes_per_transition": None, "reason": reason, "how": peer.how}
        return filled, missing

    def _sample(
        self,
        memories: Mapping[str, ReplayMemory],
        worst_memory: ReplayMemory,
        peers: Mapping[str, PeerMemory],
        stack: ExitStack,
        told: Told,
    ) -> tuple[dict[str, Any], dict[str, Any], dict[str, Any], dict[str, float]]:
        """Sample from all by turns."""
        keys = [(name, sampler, state) for name in OUR_CODECS for sampler in SAMPLERS for state in PREFETCH]
        keys += [("worst", "uniform", state) for state in PREFETCH]
        contenders: dict[str, Contender] = {}
        for name, sampler, state in keys:
            memory = worst_memory if name == "worst" else memories[name]
            sampling = Sampling(memory, prioritized=SAMPLERS[sampler], prefetch=PREFETCH[state])
            stack.callback(sampling.close)
            contenders[f"{name} {sampler} {state}"] = sampling
        contenders |= {f"peer {name}": _sampling_peer(memory) for name, memory in peers.items()}
        measured = alternate(
            contenders, rounds=self.rounds, turn_s=self.turn_s, told=lambda text: told(f"sampling, {text}")
        )
        ours: dict[str, Any] = {}
        for name, sampler, state in keys:
            rate = rate_of(measured[f"{name} {sampler} {state}"]).as_dict()
            ours.setdefault(name, {}).setdefault(sampler, {})[state] = rate
        raw = measured["raw uniform off"]
        against = {name: rate_of([a / b for a, b in zip(raw, measured[f"peer {name}"], strict=True)]) for name in peers}
        num_transitions = memories["raw"].num_transitions
        theirs = {
            name: {
                "batches_per_s": rate_of(measured[f"peer {name}"]).as_dict(),
                "bytes_per_transition": memory.num_bytes / num_transitions,
                "ours_raw_over_it": against[name].as_dict(),
            }
            for name, memory in peers.items()
        }
        return ours, ours.pop("worst"), theirs, {name: rate.median for name, rate in against.items()}

    def _insert(self, played: PlayedGame, stack: ExitStack) -> dict[str, dict[str, float]]:
        """Append to memories that are full, by turns."""
        num_steps = min(INSERTED_STEPS, played.num_steps)
        memories = self._our_memories(played, stack)
        contenders: dict[str, Contender] = {
            name: inserting(memory, played, num_steps) for name, memory in memories.items()
        }
        measured = alternate(contenders, rounds=self.rounds, turn_s=self.turn_s)
        scale = num_steps * played.lanes
        return {name: rate_of([scale * value for value in rounds]).as_dict() for name, rounds in measured.items()}


def goals(result: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """Compare with what must be shown; None where this run can't tell."""
    is_whole = set(GAMES) <= set(result["config"]["games"])
    zstd, worst = result["batches_per_s"]["zstd"]["uniform"], result["batches_per_s_worst_game"]["zstd"]["uniform"]
    ratios = [result["ratio"].get(name) for name in result["peers"]]

    def goal(value: float | None, wanted: float, is_met: Callable[[float, float], bool], *, judged: bool = True) -> Any:
        met = None if value is None or not judged else is_met(value, wanted)
        return {"value": value, "goal": wanted, "met": met}

    def at_least(value: float, wanted: float) -> bool:
        return value >= wanted

    return {
        "mean_bytes_per_transition": goal(
            result["bytes_per_transition"]["mean"], PER_TRANSITION_BYTES, lambda a, b: a <= b, judged=is_whole
        ),
        "raw_over_fastest_peer": goal(
            None if None in ratios or not ratios else min(ratios), 1, lambda value, wanted: value > wanted
        ),
        "zstd_batches_per_s": goal(zstd["off"]["median"], PONG_BATCHES, at_least),
        "zstd_worst_game_batches_per_s": goal(worst["off"]["median"], WORST_BATCHES, at_least, judged=is_whole),
        "sum_tree_ratio": goal(result["sum_tree"]["ratio_to_pure_python"], SUM_TREE_RATIO, at_least),
    }


def _sampling_peer(memory: PeerMemory) -> Contender:
    def sample(count: int) -> None:
        for _ in range(count):
            memory.sample(BATCH_SIZE)

    return sample


def _does_not_fit(peer: Peer, played: PlayedGame) -> str | None:
    needed = peer.frames_per_transition * played.frames.nbytes + KEPT_FREE_BYTES
    free = available_bytes()
    return None if needed <= free else f"needs {needed / 1e9:.1f} GB of memory, {free / 1e9:.1f} GB is free"
