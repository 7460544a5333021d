"""Job files with edge values: each is a job, or one error that names the field."""

from random import Random

import yaml
from tests.attacks.fuzz.messages import NEW_JOB, NEW_JOB_FIELDS
from tests.attacks.fuzz.values import hostile_json, mutated

from fairlead.files.job_file import parse_job_file
from fairlead.files.parsing.text import SourceText
from fairlead.model.errors import InputError
from fairlead.model.submission.new_job import NewJob

_FIELDS = (*NEW_JOB_FIELDS, "array")


def read_hostile_job_file(rng: Random) -> None:
    """Read one hostile job file."""
    if rng.random() < 0.3:
        # The YAML parser takes long for deeper documents, which a user gives to the client only.
        text = hostile_json(rng, NEW_JOB, deepest=1_000).decode("utf-8", errors="replace")
    else:
        values = mutated(rng, NEW_JOB, _FIELDS)
        text = yaml.dump(values, allow_unicode=rng.random() < 0.5, Dumper=yaml.Dumper)
    message = ""
    try:
        parsed = parse_job_file(SourceText("job.yaml", text))
        if "command" in parsed.values:
            NewJob(**parsed.values)
    except InputError as error:
        message = str(error)
    assert len(message) < 2000, "the error repeats the input"
