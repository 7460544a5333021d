"""Environment variables that jobs inherit from the server."""

from fairlead.engines.keeper.environment import inherited


def test_jobs_inherit_named_variables_only() -> None:
    server = {
        "PATH": "/bin",
        "LC_ALL": "C",
        "CUDA_HOME": "/cuda",
        "PYTHONPATH": "/lib",
        "PYTHONSTARTUP": "/root/start.py",
        "FAIRLEAD_DATABASE": "postgresql://fairlead:hunter2@db/fairlead",
        "PGPASSWORD": "hunter2",
        "AWS_SECRET_ACCESS_KEY": "hunter2",
        "LD_PRELOAD": "/root/x.so",
    }
    assert inherited(server) == {
        name: server[name] for name in ("PATH", "LC_ALL", "CUDA_HOME", "PYTHONPATH")
    }


def test_a_site_adds_variables_by_name_or_prefix() -> None:
    server = {"WANDB_MODE": "offline", "WANDB_DIR": "/w", "HTTP_PROXY": "p", "HTTPS_PROXY": "q"}
    more = ("WANDB_*", "HTTP_PROXY")
    assert inherited(server, more).keys() == {"WANDB_MODE", "WANDB_DIR", "HTTP_PROXY"}
