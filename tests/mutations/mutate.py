"""Mutates the code of leases, fencing and recovery, and counts what fault simulation finds.

``python tests/mutations/mutate.py --count 100`` makes so many small mutations, each in a process
of its own and in memory only, runs up to 500 seeds against each, and lists those that survive.
"""

import argparse
import ast
import importlib.abc
import importlib.machinery
import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

TARGETS: dict[str, str] = {
    "fairlead.live.driver": "start _rebuild _go_by_rules submit hold release renew _take_in _save"
    " _write_state _ended",
    "fairlead.live.scheduling_config": "keep read config_for_state",
    "fairlead.live.leases.lifecycle": "recover_leases close launch renew suspend _launch_on_engine"
    " answer progressed progress",
    "fairlead.live.leases.outcomes": "of steps resume_backoffs _schedule_retry",
    "fairlead.live.rounds": "resume set_timer _plan_due plan",
    "fairlead.live.leases.open_leases": "renew",
    "fairlead.live.nodes.lifecycle": "rebuilt drain take_back report _clear_drain _compare"
    " _skip_drained _back _taken_events",
    "fairlead.live.nodes.inventory": "reconcile_all found _lost",
    "fairlead.job.checkpoint": "raise_fence fence latest read write commit wait_for_commit require"
    " _locked _replace",
    "fairlead.job.lease": "begin may_start check_now close _keep _turn _part _decide _renew",
    "fairlead.job.gang_exit": "has_begun last_step _said",
    "fairlead.job.leased_run": "_restore _on_signal register checkpoint steps _save_or_raise"
    " _leave _save_or_leave",
    "fairlead.core.leases": "slots is_open of_job on_devices vacating leave start close restore"
    " saved columns",
    "fairlead.core.scheduler": "_end_job _job_released _store_checkpointed_steps _leases_ended"
    " _on_lost_nodes _node_lost _preempt_on_lost_nodes _node_returned _devices_taken"
    " _replan_after_node_change"
    " _plan_ready _round_end _apply _launch_ready _launch _renew _suspend",
    "fairlead.core.plan_fitting": "fitted",
    "fairlead.core.nodes": "restore lose take_back take _recompute",
    "fairlead.core.jobs": "end release restore",
    "fairlead.core.state": "save_state load_state",
    "fairlead.store.store": "acquire _try_file append save_state load_state load_events documents"
    " close _check _apply",
    "fairlead.engines.local.engine": "launch stop adopt forget _watch _follow _report_end"
    " _stop_stranger",
    "fairlead.engines.keeper.keeper": "keep run _begin _wait_for_members _stop _forward_stop _kill"
    " _watch _ending",
    "fairlead.engines.keeper.lease_dir": "write_json read_order hold is_alive remove read_ended",
    "fairlead.server.api.renewals": "renewed",
}
"""module → the functions that keep the promises"""

_IGNORED = (
    *("log.", "self._tell", "_publish", "_say", "metrics", "messages", "steps_per_s"),
    *("heard_at", "_began", "rounds_s", "_due_at", "self._load", "load.", "_unsaved_bytes"),
    *("elapsed", "decisions_s", "Audit", "ledger", "usage", "changes += 1", "planned_from"),
    *("own_steps", "packed", "copy", "_free", "limit_s", "memory_gib", "_progress["),
    *(
        "_remove(",
        "os.close",
        "_kill_descendants",
        "_saved_seq",
        "advance(",
        "simple",
        "_add_slots",
    ),
    *("_remove_old", "_saved_at", "_polling", "_stops_requested.discard", "progress_pattern"),
    *("failpoints.point(", "_plan_or_refill(", "raise ProtocolError(", "_connection", "gates."),
    *("_copy_output", "_size[", "_n_held", "step_at", "last_step"),
    *("_reads_progress", "emulated", "measured", "pace."),
    *("self.tick()", "self.finish()", "super().register(", "launched_at", "_on_lease_ended"),
    *("until - time.monotonic()", "self.memory =", "< planned", "expect(", "_memory_check_at"),
    *("dispose()", "require_matching_nodes(", "require_devices(", "tables.audit"),
)
"""What mentions these keeps no promise of ours: messages, figures, when to plan anew (a job that
is not thought of at once is at the end of the round), forked and packed jobs, tables'
housekeeping, limits of single processes and of requests, points for tests, the core's refusals of
events that the driver never makes, which have unit tests of their own, HTTP connections, which the
simulated network has none of, how emulated accelerators are slow, and what members print, which is
for the tests with real processes. No simulated server stands by for the lock. What mechanisms
remember and what a cut plan leaves idle is about who should run. That jobs which can never run and
other machines are refused, and that changes are in the audit trail, has tests of its own. A local
keeper's ``tick`` and ``finish`` are empty, and wrong arguments of ``register`` are refused by a
check that has unit tests."""
_EQUIVALENT = (
    # Only when to plan anew follows from it: waiting jobs are thought of a little earlier.
    "_on_lost_nodes: False → not",
    # Who waits is active unless something has changed: to look only then saves time.
    "and/or in len(self.waiting) and self.changes != changes",
    # Only a forked job that has finished has another lease.
    "_leases_ended: without commands += self._suspend(self.leases.of_job(number))",
    # No engine reports devices that a node does not have.
    "take: set(numbers) <= set(range(len(mine)))",
    # Which member's word is taken for the speed and the costs that are shown.
    "renew: rank == 0 → NotEq",
    # A file is closed as soon as nobody refers to it any more.
    "is_alive: without held.close()",
    "_try_file: without file.close()",
    # To close a file or a connection once more does nothing.
    "close: without self._held = None",
    # Its own word is read back with the others' a moment later.
    "last_step: without said[self._rank] = started",
    # Who reaches no server asks again sooner.
    "_turn: max(self._until - now, _SOONEST_S) → min",
    # It only frees memory.
    "_rebuild: without self._found.state = None",
    # A list of exit codes does as well as a tuple.
    "read_ended: without found['exit_codes'] =",
)
"""mutations that change nothing"""
_ONE_WAY = ("simple", "own_steps", "_sqlite")
"""conditions of which only one side happens: no gang is mixed, no job forked, the store SQLite"""

_LONGEST_SEED_S = 240
"""a tenth of a second is usual, some seconds on a busy machine"""
_LONGEST_S = 1800.0
"""for all seeds of one mutation, also on a busy machine"""

_FLIPS: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Lt: ast.GtE,
    ast.GtE: ast.Lt,
    ast.Gt: ast.LtE,
    ast.LtE: ast.Gt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
}


@dataclass(frozen=True)
class Mutation:
    """One small change of one function."""

    module: str
    number: int
    line: int
    what: str

    @property
    def name(self) -> str:
        """Where it is found again."""
        return f"{self.module}:{self.number}"

    @property
    def text(self) -> str:
        """What it is, whatever is above it in its module."""
        return f"{self.module} {self.what}"


def mutations(module: str) -> list[Mutation]:
    """Return all mutations of a module's target functions."""
    tree = _parse(module)
    return [
        Mutation(module, number, line, what)
        for number, (line, what, _) in enumerate(_places(tree, module))
        if not any(text in what for text in _EQUIVALENT)
    ]


def mutated(module: str, number: int) -> ast.Module:
    """Return the module with one mutation."""
    tree = _parse(module)
    for found, (_, _, change) in enumerate(_places(tree, module)):
        if found == number:
            change()
            return ast.fix_missing_locations(tree)
    raise SystemExit(f"{module} has no mutation {number}")


def _parse(module: str) -> ast.Module:
    spec = find_spec(module)
    assert spec is not None
    assert spec.origin is not None
    return ast.parse(Path(spec.origin).read_text(encoding="utf-8"))


def _places(tree: ast.Module, module: str) -> Iterator[tuple[int, str, Any]]:
    """Yield line, description and a call that makes the change, for every place."""
    wanted = TARGETS[module].split()
    for function in ast.walk(tree):
        if (
            isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef)
            and function.name in wanted
        ):
            for node in _walk(function):
                yield from _of_node(node, function.name)


def _walk(node: ast.AST) -> Iterator[ast.AST]:
    """Yield a node and what is inside, but not what follows a one-way condition."""
    if isinstance(node, ast.If) and any(word in ast.unparse(node.test) for word in _ONE_WAY):
        taken = node.body if ast.unparse(node.test) == "self.simple" else node.orelse
        for statement in taken:
            yield from _walk(statement)
        return
    yield node
    for child in ast.iter_child_nodes(node):
        if not (isinstance(child, ast.keyword) and child.arg == "strict"):
            yield from _walk(child)


def _of_node(node: ast.AST, where: str) -> Iterator[tuple[int, str, Any]]:
    text = _text(node)
    # A block may hold a small promise all the same: its parts are looked at by themselves.
    block = isinstance(node, ast.If | ast.For | ast.While | ast.With | ast.Try)
    if not block and any(word in text for word in _IGNORED):
        return
    if isinstance(node, ast.Compare) and len(node.ops) == 1:
        flip = _FLIPS[type(node.ops[0])]
        yield node.lineno, f"{where}: {text} → {flip.__name__}", _setter(node, "ops", [flip()])
    if isinstance(node, ast.If | ast.While) and not isinstance(
        node.test, ast.Compare | ast.Constant
    ):
        test = _text(node.test)
        if not any(word in test for word in _IGNORED):
            negated = ast.UnaryOp(ast.Not(), node.test)
            yield node.lineno, f"{where}: not ({test})", _setter(node, "test", negated)
    if isinstance(node, ast.BoolOp):
        other: ast.boolop = ast.Or() if isinstance(node.op, ast.And) else ast.And()
        yield node.lineno, f"{where}: and/or in {text}", _setter(node, "op", other)
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
        swap = {"max": "min", "min": "max"}.get(node.func.id)
        if swap:
            yield node.lineno, f"{where}: {text} → {swap}", _setter(node.func, "id", swap)
    if isinstance(node, ast.Constant) and isinstance(node.value, bool):
        yield node.lineno, f"{where}: {text} → not", _setter(node, "value", not node.value)
    yield from _dropped(node, where)


def _dropped(node: ast.AST, where: str) -> Iterator[tuple[int, str, Any]]:
    """Yield the statements of a block that can be left out."""
    for name in ("body", "orelse", "finalbody"):
        block = getattr(node, name, None)
        if not isinstance(block, list):
            continue
        for index, statement in enumerate(block):
            text = _text(statement)
            if isinstance(statement, ast.Delete) and isinstance(statement.targets[0], ast.Name):
                continue  # a name is unbound: nobody asks for it again
            droppable = isinstance(statement, ast.Raise | ast.AugAssign | ast.Delete) or (
                isinstance(statement, ast.Expr)
                and isinstance(statement.value, ast.Call | ast.Await)
            )
            if isinstance(statement, ast.Assign):
                droppable = all(
                    isinstance(target, ast.Attribute | ast.Subscript)
                    for target in statement.targets
                )
            if droppable and not any(word in text for word in _IGNORED):
                drop = _dropper(block, index)
                yield statement.lineno, f"{where}: without {text}", drop


def _setter(node: ast.AST, name: str, value: object) -> Any:
    return lambda: setattr(node, name, value)


def _dropper(block: list[ast.stmt], index: int) -> Any:
    return lambda: block.__setitem__(index, ast.copy_location(ast.Pass(), block[index]))


def _text(node: ast.AST) -> str:
    text = " ".join(ast.unparse(node).split()) if isinstance(node, ast.expr | ast.stmt) else ""
    return text if len(text) < 100 else text[:97] + "…"


# -- one mutation, in a process of its own ------------------------------------------------------


class _Finder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Imports one module in its mutated form."""

    def __init__(self, module: str, number: int) -> None:
        self._module = module
        self._code = compile(mutated(module, number), module, "exec", dont_inherit=True)

    def find_spec(self, name: str, path: Any, target: Any = None) -> Any:
        del target
        if name != self._module:
            return None
        spec = importlib.machinery.PathFinder.find_spec(name, path)
        assert spec is not None
        spec.loader = self
        return spec

    def create_module(self, spec: Any) -> None:
        del spec

    def exec_module(self, module: Any) -> None:
        exec(self._code, module.__dict__)


def _try_one(name: str, seeds: int) -> None:
    """Run seeds against one mutation until one finds it; write the outcome as JSON."""
    module, _, number = name.partition(":")
    finder = _Finder(module, int(number))
    for loaded in [found for found in sys.modules if found.startswith("fairlead")]:
        del sys.modules[loaded]
    sys.meta_path.insert(0, finder)
    found, why = 0, ""

    def hangs(*_: object) -> None:
        # No way out but this: a thread of the run may be in an endless loop.
        os.write(1, json.dumps({"seed": found, "why": "it hangs"}).encode() + b"\n")
        os._exit(0)

    signal.signal(signal.SIGALRM, hangs)
    try:
        from tests.faults.run import run  # noqa: PLC0415  # under the finder

        for seed in range(seeds):
            found = seed
            signal.alarm(_LONGEST_SEED_S)
            why = run(seed, real_store=module.startswith("fairlead.store") or None).violation or ""
            if why:
                break
    except BaseException as error:  # whatever a mutation breaks is found
        why = f"{type(error).__name__}: {error}"
    first = why.splitlines()[0] if why else ""
    os.write(1, json.dumps({"seed": found, "why": first}).encode() + b"\n")
    os._exit(0)  # threads of a broken run may never end


# -- all of them --------------------------------------------------------------------------------


def _try_all(chosen: Sequence[Mutation], seeds: int, processes: int) -> int:
    began = time.monotonic()
    # It is the Python that is mutated: what is compiled would hide some of it.
    pure = {**os.environ, "FAIRLEAD_PURE_PYTHON": "1"}

    def one(mutation: Mutation) -> dict[str, Any]:
        command = [
            sys.executable,
            "-m",
            "tests.mutations.mutate",
            "--one",
            mutation.name,
            "--seeds",
            str(seeds),
        ]
        try:
            said = subprocess.run(
                command,
                capture_output=True,
                text=True,
                timeout=_LONGEST_S,
                check=False,
                env=pure,
            ).stdout
            answer: dict[str, Any] = json.loads(said.splitlines()[-1])
        except (subprocess.TimeoutExpired, IndexError, ValueError):
            answer = {"seed": 0, "why": "the process hung or died"}
        return answer

    survivors: list[Mutation] = []
    write = sys.stdout.write
    with ThreadPoolExecutor(processes) as pool:
        for mutation, answer in zip(chosen, pool.map(one, chosen), strict=True):
            outcome = (
                f"seed {answer['seed']}: {answer['why'][:90]}" if answer["why"] else "SURVIVES"
            )
            write(f"{mutation.name} line {mutation.line}: {mutation.what}\n    {outcome}\n")
            sys.stdout.flush()
            if not answer["why"]:
                survivors.append(mutation)
    found = len(chosen) - len(survivors)
    write(f"{found} of {len(chosen)} mutations found ({found / len(chosen):.1%}) within")
    write(f" {seeds} seeds each, in {time.monotonic() - began:.0f} s\n")
    for mutation in survivors:
        write(f"  survives: {mutation.name} line {mutation.line}: {mutation.what}\n")
    return 0 if found >= 0.9 * len(chosen) else 1


def main() -> int:
    """Try mutations, or one of them."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=100, help="mutations to try, 0 for all")
    parser.add_argument("--seeds", type=int, default=500)
    parser.add_argument("--sample", type=int, default=0, help="which sample of them")
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--module", help="only this one")
    parser.add_argument("--like", action="append", help="only those whose text contains this")
    parser.add_argument("--one", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.one:
        _try_one(given.one, given.seeds)
    modules = [given.module] if given.module else list(TARGETS)
    every = [mutation for module in modules for mutation in mutations(module)]
    if given.like:
        every = [one for one in every if any(text in one.text for text in given.like)]
    chosen = every
    if given.count and given.count < len(every):
        rng = random.Random(given.sample)
        chosen = sorted(rng.sample(every, given.count), key=lambda one: (one.module, one.number))
    sys.stdout.write(f"{len(chosen)} of {len(every)} mutations\n")
    return _try_all(chosen, given.seeds, given.processes)


if __name__ == "__main__":
    sys.exit(main())
