"""Plausible mistakes of a newcomer: each error is one line that names the field and the fix."""

import json
import shlex
import sys
from pathlib import Path

import pytest

from fairlead.cli.main import app
from fairlead.cli.shared.errors import run

HEAD = "job_id,arrival_s,workload,gang,total_steps\n"
FILES = {
    "large.csv": f"{HEAD}a,0,ResNet-50,1,100\nb,5,ResNet-50,64,100\n",
    "huge.csv": f"{HEAD}b,5,ResNet-50,64,100\n",
    "workload.csv": f"{HEAD}a,0,Resnet50,1,100\n",
    "column.csv": "job,arrival_s,workload,gang,total_steps\na,0,ResNet-50,1,100\n",
    "negative.csv": f"{HEAD}a,-3,ResNet-50,1,100\n",
    "empty.csv": "",
    "large.json": json.dumps(
        {"cluster": {"v100": 1}, "jobs": [{"id": "b", "gang": 4, "speeds": {"v100": 1}}]}
    ),
    "alone.json": json.dumps(
        {"cluster": {"v100": 1}, "jobs": [{"id": "a", "speeds": {"v100": 1}}]}
    ),
    "comma.json": '{"cluster": {"v100": 1},}',
    "field.json": json.dumps(
        {"cluster": {"v100": 1}, "jobs": [{"id": "a", "speed": {"v100": 1}}]}
    ),
    "odd.json": json.dumps({"cluster": {"v100": 1}, "jobs": [{"id": "a", "zzzzzz": 1}]}),
    "job.yaml": "comand: [python, train.py]\n",
    "gang.yaml": "command: [python, train.py]\ngang: two\n",
    "setting.toml": "prot = 1\n",
    "port.toml": 'port = "x"\n',
    "train.py": "",
    "log.jsonl": "hello\n",
}
NO_SERVER = ("no server is known", "FAIRLEAD_DATA", "FAIRLEAD_URL", "`fairlead login`")
SKIP = "or skip such jobs with --skip-impossible"
MISTAKES: dict[str, tuple[str, ...]] = {
    "simulat": ("Did you mean 'simulate'?",),
    "simulate --policy maxmin": ("policy: unknown name 'maxmin': did you mean 'max-min'?",),
    "simulate --policy zzz": ("policy: unknown name 'zzz': expected one of allox,", "max-min"),
    "simulate --policy max-min:agnostc": ("unknown option 'agnostc': expected one of agnostic",),
    "simulate --mechanism gavl": ("mechanism: unknown name 'gavl': did you mean 'gavel'?",),
    "simulate --policy oef --mechanism gavel": ("not devices of tenants: leave out --mechanism",),
    "simulate --policy fifo --mechanism hadar": (
        "mechanism: 'hadar' realises no policy: name it as the policy instead: --policy hadar",
    ),
    "simulate --cluster v100": ("cluster: ", "expected accelerator=count", "v100=36/4,k80=8"),
    "simulate --cluster v100=x": ("cluster: not a number: 'x': expected a whole number",),
    "simulate --cluster nowhere.yaml": ("nowhere.yaml: no such file",),
    "simulate --trace nowhere.csv": ("nowhere.csv: no such file: check the path",),
    "simulate --trace column.csv": ("column.csv:1: unknown column 'job': did you mean 'job_id'?",),
    "simulate --trace negative.csv": ("negative.csv:2: arrival_s: ", "expected 0 or more"),
    "simulate --trace empty.csv": ("empty.csv: empty",),
    "simulate --trace workload.csv": (
        "workload.csv:2: workload: job 'a': unknown workload 'Resnet50': did you mean",
        f"'ResNet-50'? {SKIP}",
    ),
    "simulate --trace large.csv --cluster v100=4": (
        "large.csv:3: gang: job 'b' needs 64 devices of one accelerator",
        f"lower the gang or add devices, {SKIP}",
    ),
    "simulate --trace huge.csv --cluster v100=4 --skip-impossible": (
        "huge.csv: none of the 1 jobs can run",
        "lower the gang or add devices [input]",
    ),
    "simulate --speeds mlperf-2024": ("or did you mean mlperf-202",),
    "simulate --speeds mlperf-2025": ("--trace: missing", "trace generate --speeds mlperf-2025"),
    "simulate --physics gandva": ("gandva: no such file: expected none, gandiva, or a JSON",),
    "simulate --round -5": ("--round: out of range: expected 0.001 to 1e+10",),
    "simulate --round abc": ("--round: not a number: expected one such as 2.5",),
    "simulate --window 5": ("--window: not a range of jobs: '5': expected A:B",),
    "compare --policies max-min,fif": ("policy: unknown name 'fif': did you mean 'fifo'?",),
    "compare --policies fifo,oef --mechanism srtf": ("policy instead: --policy srtf",),
    "compare --policies fifo --loads 2;3": ("--loads: not a number: '2;3'",),
    "compare --policies fifo --kind continous": (
        "--kind: unknown value 'continous': expected one of 'static'",
    ),
    "compare --policies fifo --skip-impossible": ("--skip-impossible: needs --trace",),
    "compare --policies fifo --trace large.csv --cluster v100=4": ("job 'b' needs 64", SKIP),
    "allocate": ("Missing option '--instance'",),
    "allocate --instance large.json": ("jobs[0].gang: job 'b' needs 4 devices", SKIP),
    "allocate --instance comma.json": ("comma.json:1: invalid JSON",),
    "allocate --instance field.json": ("jobs[0]: unknown field 'speed': did you mean 'speeds'?",),
    "allocate --instance odd.json": (
        "jobs[0]: unknown field 'zzzzzz'",
        "of: id, speeds, workload",
    ),
    "allocate --instance alone.json --policy gandiva": (
        "policy: 'gandiva' is a mechanism and has no shares: expected one of cost,",
    ),
    "audit --trace large.csv --instance large.json --at 5 --policy max-min": (
        "--trace: excludes --instance: expected one of them",
    ),
    "audit --policy max-min": ("no jobs: expected --instance FILE, --live, or --trace",),
    "submit --speed v100 -- true": ("--speed: 'v100': expected an accelerator and steps per",),
    "submit --speed v100=fast -- true": ("--speed: 'v100=fast': expected an accelerator",),
    "submit --speed v100=-1 -- true": ("speeds: out of range: v100=-1.0: expected steps per",),
    "speeds show --gangs 1,x": ("--gangs: '1,x': expected numbers of devices, such as 1,2,4,8",),
    "audit --instance x --policy fifo --fail-if envi>1": ("unknown figure: 'envi'", "envy"),
    "replay log.jsonl": ("not an event log: a line is not JSON", "simulate --log"),
    "trace generate --duration-factor 1e12 --jobs 3 --out generated.csv": (
        "--duration-factor: too large: 1e+12: a job has",
        "expected a factor that gives up to 1e+10 s, 1e+15 steps",
    ),
    "trace generate --duration-factor 1e308": ("--duration-factor: too large: 1e+308",),
    "trace generate --deadlines 1e20": ("--deadlines: out of range: 1e+20: a deadline of",),
    "trace generate --deadlines 2,0": ("--deadlines: not allowed: 0.0: expected factors above 0",),
    "trace generate --high-weight 1e9": ("--high-weight: not allowed", "expected 1e-06 to 1e+06"),
    "compare --policies fifo --duration-factor 1e12": ("--duration-factor: too large: 1e+12",),
    "trace validate column.csv": ("did you mean 'job_id'?",),
    "trace convert large.csv --from phily": ("--from: unknown value 'phily'", "philly"),
    "speeds tables mlperf": ("NAME: unknown table 'mlperf': did you mean 'mlperf-202",),
    "export --instance alone.json --speeds h200": ("--speeds: needs --slurm or --slurm-jobs",),
    "export --live --tenants-file a.yaml": ("--tenants-file: needs --slurm or --slurm-jobs",),
    "export --live --policy fifo": ("--policy: excluded by --live: the server's policy decides",),
    "export": ("no jobs: expected one of --slurm, --slurm-jobs, --instance and --live",),
    "jobs": NO_SERVER,
    "explain j1": NO_SERVER,
    "nodes": NO_SERVER,
    "nodes drian n1": ("Did you mean 'drain'?",),
    "jobs --state pending": (
        "--state: unknown state 'pending': expected one of queued, running, suspended, finished,"
        " failed, cancelled",
    ),
    "submit": ("command: missing: expected a Python file",),
    "submit nowhere.py": ("command: no such file: ", "nowhere.py: expected a Python file"),
    "submit --file job.yaml": ("job.yaml:1: comand: unknown field 'comand': did you mean 'comm",),
    "submit --file gang.yaml": (
        "gang.yaml:2: gang: not a number: 'two': expected a whole number",
    ),
    "submit --gang x train.py": ("--gang: not a whole number: expected one such as 4",),
    "submit --gang 0 train.py": ("--gang: out of range: expected 1 or more",),
    "submit --array lr=1,2 train.py": ("{lr} is not used", "expected {lr} in the command"),
    "submit train.py --lr {lr}": ("array: {lr} has no value: expected --array lr=VALUE",),
    "submit --stepps 4 train.py": ("No such option: --stepps", "--steps"),
    "cancel": ("JOB: missing: expected ids, --multijob or --name",),
    "priority j1 high": ("N: 'high': expected a whole number after the jobs",),
    "login notaurl --token x": ("bad address 'notaurl': expected one such as http://",),
    "login http://127.0.0.1:1 --token x": ("http://127.0.0.1:1 does not answer", "server up?"),
    "config check setting.toml": ("setting.toml:1: prot: unknown setting", "did you mean 'port'?"),
    "config check port.toml": ("port.toml:1: port: invalid value 'x': expected a port from 1",),
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("mistakes")
    for name, text in FILES.items():
        (path / name).write_text(text)
    return path


@pytest.mark.parametrize("line", MISTAKES)
def test_a_mistake_is_one_line_with_its_field_and_fix(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], folder: Path, line: str
) -> None:
    monkeypatch.chdir(folder)
    monkeypatch.setenv("FAIRLEAD_DATA", str(folder / "data"))
    monkeypatch.delenv("FAIRLEAD_URL", raising=False)
    monkeypatch.setattr(sys, "argv", ["fairlead", *shlex.split(line)])
    assert run(app) in (1, 2)
    output = capsys.readouterr()
    assert output.out == ""
    assert output.err.count("\n") == 1, output.err
    assert output.err.startswith("fairlead: ")
    assert output.err.endswith("]\n")
    for part in MISTAKES[line]:
        assert part in output.err
