"""``fairlead`` and ``python -m fairlead``."""

import sys


def main() -> None:
    """Run the command line; Ctrl-C while its modules load is one line and exit code 130."""
    try:
        from fairlead.cli.main import run

        run()
    except KeyboardInterrupt:
        sys.stderr.write("fairlead: interrupted\n")
        sys.exit(130)


if __name__ == "__main__":
    main()
