"""Kill real servers, keepers, jobs and databases many times; nothing may be lost."""

import argparse
import random
import shutil
import signal
import sys
import tempfile
import time
from pathlib import Path

from tests.kills.deployment import KillSite
from tests.kills.phases import is_of_growth
from tests.kills.rig import KillRig, needs
from tests.support import postgres

from fairlead import failpoints


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=200)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--database", choices=("sqlite", "postgresql"), default="sqlite")
    parser.add_argument("--copies", action="store_true", help="train in copies (HadarE)")
    parser.add_argument("--elastic", action="store_true", help="resize gangs (Gandiva)")
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("stopped"))  # cleans up
    for what in needs():
        print(f"skipped: {what}")
    began = time.monotonic()
    home = Path(tempfile.mkdtemp(prefix="fairlead-kills-"))
    server = postgres.Postgres() if options.database == "postgresql" else None
    database = server.database() if server is not None else None
    site = KillSite(
        home, database, offload_gib=2.0, copies=options.copies, elastic=options.elastic
    )
    run = KillRig(
        site,
        random.Random(options.seed),
        options.kills,
        server,
        say=lambda text: print(f"\r{text}, {time.monotonic() - began:.0f} s ", end="", flush=True),
    )
    try:
        problems = run.run()
    finally:
        site.clean_up()
        if server is not None:
            server.stop()
    print(f"\n{run.kills} kills in {time.monotonic() - began:.0f} s on {options.database}:")
    for what, count in sorted(run.counts.items()):
        print(f"    {count:4} {what}")
    for point in failpoints.POINTS:
        print(f"    {run.points[point]:4} died at {point}")
    of_growth = sum(count for point, count in run.points.items() if is_of_growth(point))
    print(f"{sum(run.points.values())} died at named points, {of_growth} while gangs were resized")
    print(f"{len(site.known)} jobs, {site.starts} starts of the server, {run.polls} checks of it,")
    print(f"{run.monitor.commits} checkpoints, {len(problems)} problems")
    for problem in problems:
        print(f"    {problem}")
    if problems:
        print(f"all files are kept in {home}")
        return 1
    shutil.rmtree(home)
    return 0


if __name__ == "__main__":
    sys.exit(main())
