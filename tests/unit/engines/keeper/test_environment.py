"""Environment variables that jobs inherit from the server, and ports where their gangs meet."""

import socket

from fairlead.engines.keeper.environment import HeldPorts, inherited


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


def test_no_two_gangs_that_start_together_meet_at_one_port() -> None:
    keepers = [HeldPorts() for _ in range(600)]  # of 28,000 ports: some would be drawn twice
    try:
        ports = [keeper.hold() for keeper in keepers]
    finally:
        for keeper in keepers[1:]:
            keeper.close()
    assert len(set(ports)) == len(ports)
    with socket.create_server(("", ports[0])) as rank_0:  # sets SO_REUSEADDR, as PyTorch does
        socket.create_connection(("127.0.0.1", ports[0]), timeout=60).close()
        rank_0.accept()[0].close()
    keepers[0].close()
