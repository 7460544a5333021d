"""The live system keeps its invariants under injected faults; see tests/faults/run.py."""

import os
import random
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.faults.run import Result, main, run
from tests.faults.scenario import ACTIONS, FAULTS, MERGE_FAULT, scenario
from tests.faults.system.store import MemoryStore, StoredData

from fairlead.core.nodes import NodeTable
from fairlead.job import lease
from fairlead.live.inputs import batches
from fairlead.live.inputs.inbox import HandledBatch, InboxItem
from fairlead.store import Audit, FencedError, Put, Remove, Store

SEEDS, SHARDS = int(os.environ.get("FAIRLEAD_FAULT_SEEDS", "1000")), 20


@pytest.mark.parametrize("shard", range(SHARDS))
def test_invariants_hold_under_faults(shard: int) -> None:
    for seed in range(shard, SEEDS, SHARDS):
        result = run(seed)
        assert result.violation is None, f"{result.violation}\nreplay: {result.command}"


def test_runs_are_not_vacuous() -> None:
    """A few hundred seeds contain every fault, and jobs run and move."""
    plans = [scenario(seed) for seed in range(300)]
    seen = {fault.what for plan in plans for fault in plan.faults}
    assert seen == {*FAULTS, *ACTIONS, MERGE_FAULT}
    results = [run(seed) for seed in range(40)]
    assert sum(result.events for result in results) > 500
    text = "\n".join(str(line[1]) for result in results for line in result.trace)
    for sign in ("exits with 85", "exits with 0", "committed by", "the server dies"):
        assert text.count(sign) >= 5, sign


def test_seed_replays_exactly() -> None:
    def lines(result: Result) -> list[str]:
        return [f"{at} {[str(part) for part in parts]}" for at, *parts in result.trace]

    for seed in (3, 57, 111):  # the second uses the real store
        first, second = run(seed), run(seed)
        assert lines(first) == lines(second)
        assert len(first.trace) > 5


def _failing_seed(seeds: int, likely: int = 0) -> int | None:
    """Return a seed with a violation; ``likely`` had one when its test was written."""
    return next((seed for seed in (likely, *range(seeds)) if run(seed).violation), None)


def test_missing_fence_is_detected(monkeypatch: pytest.MonkeyPatch) -> None:
    from fairlead.job import checkpoint  # noqa: PLC0415  # only this test breaks it

    monkeypatch.setattr(checkpoint, "fence", lambda _: -1)
    assert _failing_seed(300) is not None


def test_forgotten_taken_devices_are_detected(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(NodeTable, "set_taken", lambda *_: None)
    assert _failing_seed(300) is not None


def test_lease_that_never_expires_is_detected(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lease.Lease, "may_start", lambda self: not self.lost)
    assert _failing_seed(300) is not None


def test_answer_before_the_commit_is_detected(monkeypatch: pytest.MonkeyPatch) -> None:
    original = batches.BatchProcessor._handle_batch

    async def hasty(self: batches.BatchProcessor, first: InboxItem) -> HandledBatch:
        batch = await original(self, first)
        for item in batch.items:
            item.succeed()
        return batch

    monkeypatch.setattr(batches.BatchProcessor, "_handle_batch", hasty)
    assert _failing_seed(500, likely=439) is not None


def test_failing_seed_is_printed_as_a_command(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(lease.Lease, "may_start", lambda self: not self.lost)
    seed = _failing_seed(300)
    assert seed is not None
    assert run(seed).command == f"python -m tests.faults.run --seed {seed}"
    assert main(["--seed", str(seed)]) == 1
    assert f"seed {seed}: " in capsys.readouterr().out.splitlines()[-1]


# -- the in-memory store behaves as the real one ------------------------------------------------


def _in_memory(_: Path) -> Callable[[], Any]:
    memory = StoredData()
    return lambda: MemoryStore(memory)


def _on_disk(home: Path) -> Callable[[], Any]:
    return lambda: Store(f"sqlite:///{home / 'fairlead.db'}")


@pytest.fixture(params=[_in_memory, _on_disk])
def open_store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Callable[[], Any]]:
    opened: list[Any] = []
    make = request.param(tmp_path)

    def open_one() -> Any:
        opened.append(make())
        return opened[-1]

    yield open_one
    for store in opened:
        store.close()


def _contents(store: Any) -> dict[str, Any]:
    state = store.load_state()
    included = 0 if state is None else state[0]
    return {
        "events": [(record.seq, record.body) for record in store.load_events(included)],
        "late events": [(record.seq, record.body) for record in store.load_events(included + 1)],
        "state": state,
        "documents": {name: store.documents(name) for name in ("job", "hold", "none")},
        "audit": [
            {name: entry[name] for name in ("seq", "at", "who", "action", "subject", "detail")}
            for entry in store.audit_trail(limit=3)
        ],
    }


def test_lock_has_one_holder(open_store: Callable[[], Any]) -> None:
    first, second = open_store(), open_store()
    token = first.acquire("a")
    assert token == 1
    assert second.acquire("b") is None
    first.append(token, 1, ["x"])
    first.close()
    assert second.acquire("b") == 2
    with pytest.raises(FencedError):
        second.append(token, 2, ["late"], [Put("job", "late", "")])
    with pytest.raises(FencedError):
        second.save_state(token, 1, "late")
    assert _contents(second)["events"] == [(1, "x")]
    assert _contents(second)["documents"]["job"] == {}


def test_batch_is_written_all_or_nothing(open_store: Callable[[], Any]) -> None:
    store = open_store()
    token = store.acquire("a")
    store.append(token, 1, ["a", "b"], [Put("job", "j1", "one"), Audit(1.0, "me", "do", "j1")])
    before = _contents(store)
    with pytest.raises(Exception, match=r".+"):  # each database has its own error for this
        store.append(token, 2, ["again", "c"], [Put("job", "j2", "two")])
    assert _contents(store) == before


def test_both_stores_agree_after_the_same_calls(tmp_path: Path) -> None:
    for number in range(12):
        rng = random.Random(number)
        (home := tmp_path / str(number)).mkdir()
        factories = [_in_memory(home), _on_disk(home)]
        stores = [make() for make in factories]
        tokens = [store.acquire("a") for store in stores]
        seq = saved = 0
        for _ in range(25):
            draw = rng.random()
            calls: tuple[str, tuple[Any, ...]]
            if draw < 0.7:
                bodies = [f"event {rng.random()}" for _ in range(rng.randint(0, 3))]
                changes = [
                    rng.choice(
                        (
                            Put("job", f"j{rng.randint(1, 3)}", str(rng.random())),
                            Put("hold", f"j{rng.randint(1, 3)}", "me"),
                            Remove("hold", f"j{rng.randint(1, 3)}"),
                            Audit(rng.random(), "me", "do", "it", "so"),
                        )
                    )
                    for _ in range(rng.randint(0, 4))
                ]
                calls = ("append", (seq + 1, bodies, changes))
                seq += len(bodies)
            elif draw < 0.85 and seq > saved:
                saved = seq
                calls = ("save_state", (seq, str(rng.random())))
            else:
                for store in stores:
                    store.close()
                stores = [make() for make in factories]
                tokens = [store.acquire("a") for store in stores]
                continue
            name, arguments = calls
            for store, token in zip(stores, tokens, strict=True):
                getattr(store, name)(token, *arguments)
            assert _contents(stores[0]) == _contents(stores[1])
        assert tokens[0] == tokens[1]
        for store in stores:
            store.close()
