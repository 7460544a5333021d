"""The file in which processes tell their keeper how they end."""

import os
from pathlib import Path

from fairlead.job.status_file import StatusFile, steps_at_own_exit


def test_a_later_process_does_not_hide_the_status_with_which_one_has_left(tmp_path: Path) -> None:
    path = tmp_path / "status"
    later = StatusFile(str(path))
    later.note_own_exit(7)
    assert steps_at_own_exit(path.read_bytes(), os.getpid()) == 7.0
    StatusFile(str(path)).write_status(75)
    later.note_own_exit(8)
    assert path.read_text() == "75"
    StatusFile(None).note_own_exit(1)
