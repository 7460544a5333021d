"""Mutation test: counts the mutations of lease, fencing and recovery code that seeds detect.

``python -m tests.mutations.mutate --count 100`` makes 100 small mutations, each in a separate
process and in memory only, runs up to 500 seeds against each, and lists the survivors.
"""

import argparse
import importlib.abc
import importlib.machinery
import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from tests.mutations.operators import Mutation, mutated, mutations
from tests.mutations.targets import TARGETS

_MAX_SEED_S = 240
"""seconds per seed; a tenth is usual, a few on a busy machine"""
_MAX_MUTATION_S = 1800.0
"""seconds for all seeds of one mutation on a busy machine"""

# -- one mutation in a separate process ---------------------------------------------------------


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
    """Run seeds against one mutation until one detects it; write the outcome as JSON."""
    module, _, number = name.partition(":")
    finder = _Finder(module, int(number))
    for loaded in [name for name in sys.modules if name.startswith("fairlead")]:
        del sys.modules[loaded]
    sys.meta_path.insert(0, finder)
    current, why = 0, ""

    def hangs(*_: object) -> None:
        # A thread of the run may be in an endless loop, so exit at once.
        os.write(1, json.dumps({"seed": current, "why": "it hangs"}).encode() + b"\n")
        os._exit(0)

    signal.signal(signal.SIGALRM, hangs)
    try:
        from tests.faults.run import run  # noqa: PLC0415  # under the finder

        for seed in range(seeds):
            current = seed
            signal.alarm(_MAX_SEED_S)
            why = run(seed, real_store=module.startswith("fairlead.store") or None).violation or ""
            if why:
                break
    except BaseException as error:  # any failure detects the mutation
        why = f"{type(error).__name__}: {error}"
    first = why.splitlines()[0] if why else ""
    os.write(1, json.dumps({"seed": current, "why": first}).encode() + b"\n")
    os._exit(0)  # threads of a broken run may never end


# -- all mutations ------------------------------------------------------------------------------


def _try_all(chosen: Sequence[Mutation], seeds: int, processes: int) -> int:
    began = time.monotonic()
    # Mutations apply to the Python code, which compiled modules would hide.
    pure = {**os.environ, "FAIRLEAD_PURE_PYTHON": "1"}

    def run_one(mutation: Mutation) -> dict[str, Any]:
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
            output = subprocess.run(
                command,
                capture_output=True,
                text=True,
                timeout=_MAX_MUTATION_S,
                check=False,
                env=pure,
            ).stdout
            answer: dict[str, Any] = json.loads(output.splitlines()[-1])
        except (subprocess.TimeoutExpired, IndexError, ValueError):
            answer = {"seed": 0, "why": "the process hung or died"}
        return answer

    survivors: list[Mutation] = []
    write = sys.stdout.write
    with ThreadPoolExecutor(processes) as pool:
        for mutation, answer in zip(chosen, pool.map(run_one, chosen), strict=True):
            outcome = (
                f"seed {answer['seed']}: {answer['why'][:90]}" if answer["why"] else "SURVIVES"
            )
            write(f"{mutation.name} line {mutation.line}: {mutation.what}\n    {outcome}\n")
            sys.stdout.flush()
            if not answer["why"]:
                survivors.append(mutation)
    detected = len(chosen) - len(survivors)
    write(f"{detected} of {len(chosen)} mutations found ({detected / len(chosen):.1%}) within")
    write(f" {seeds} seeds each, in {time.monotonic() - began:.0f} s\n")
    for mutation in survivors:
        write(f"  survives: {mutation.name} line {mutation.line}: {mutation.what}\n")
    return 0 if detected >= 0.9 * len(chosen) else 1


def main() -> int:
    """Test a sample of mutations, or one."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=100, help="mutations to try, 0 for all")
    parser.add_argument("--seeds", type=int, default=500)
    parser.add_argument("--sample", type=int, default=0, help="seed of the sample")
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--module", help="only this module")
    parser.add_argument("--like", action="append", help="only mutations whose text contains this")
    parser.add_argument("--one", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one:
        _try_one(options.one, options.seeds)
    modules = [options.module] if options.module else list(TARGETS)
    every = [mutation for module in modules for mutation in mutations(module)]
    if options.like:
        every = [m for m in every if any(text in m.text for text in options.like)]
    chosen = every
    if options.count and options.count < len(every):
        rng = random.Random(options.sample)
        chosen = sorted(rng.sample(every, options.count), key=lambda m: (m.module, m.number))
    sys.stdout.write(f"{len(chosen)} of {len(every)} mutations\n")
    return _try_all(chosen, options.seeds, options.processes)


if __name__ == "__main__":
    sys.exit(main())
