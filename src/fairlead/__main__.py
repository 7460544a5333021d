"""``python -m fairlead``."""

from fairlead.cli.main import run

if __name__ == "__main__":
    run()
