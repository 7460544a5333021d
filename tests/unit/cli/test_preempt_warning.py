"""The warning at the submission of a script that every preemption would start again."""

from pathlib import Path

import pytest

from fairlead.cli.shared.preempt_warning import preempt_warning


@pytest.mark.parametrize(
    ("preempt", "text", "warned"),
    [
        ("yes", "for step in range(1000): train()", True),
        ("auto", "for step in range(1000): train()", False),
        ("no", "for step in range(1000): train()", False),
        ("yes", "from fairlead import job\nrun = job.attach()", False),
        ("yes", 'save(os.environ["FAIRLEAD_CHECKPOINT_DIR"])', False),
    ],
)
def test_only_a_preemptible_script_without_checkpoints_is_warned_of(
    tmp_path: Path, preempt: str, text: str, warned: bool
) -> None:
    (tmp_path / "train.py").write_text(text)
    warning = preempt_warning(preempt, ["python", "train.py", "--lr", "0.1"], str(tmp_path))
    assert (warning is not None) == warned
    if warning is not None:
        assert warning.startswith("train.py: uses neither fairlead.job nor")


def test_a_command_without_a_readable_script_is_not_judged(tmp_path: Path) -> None:
    assert preempt_warning("yes", ["python", "-m", "package"], str(tmp_path)) is None
    assert preempt_warning("yes", ["python", "missing.py"], str(tmp_path)) is None
