# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
"""The agent of a machine with real processes that die, end and receive notices."""

import os
import signal
import subprocess
import sys
import textwrap
import time

import pytest

from aikido_torch.elastic._agent import Agent, Launch, python_command
from aikido_torch.elastic._restarts import RestartPolicy

LIMIT_S = 60


def launch_of(tmp_path, program, **more):
    path = tmp_path / "train.py"
    path.write_text("import os, signal, sys, time\n" + textwrap.dedent(program))
    arguments = {"num_processes": 2, "endpoint": "127.0.0.1:29400"} | more
    return Launch(
        python_command(str(path), [str(tmp_path)], "script"),
        policy=RestartPolicy(max_restarts=2, first_pause_s=0.05),
        **arguments,
    )


def wait_for(*paths):
    end = time.monotonic() + LIMIT_S
    while not all(path.exists() for path in paths):
        assert time.monotonic() < end, f"missing: {paths}"
        time.sleep(0.02)


def test_a_killed_process_is_replaced_and_the_other_one_is_never_restarted(tmp_path):
    launch = launch_of(
        tmp_path,
        """
        slot, folder = os.environ["LOCAL_RANK"], sys.argv[1]
        restarts = os.environ["TORCHELASTIC_RESTART_COUNT"]
        open(f"{folder}/{slot}.{restarts}", "w").write(str(os.getpid()))
        if (slot, restarts) == ("0", "0"):
            os.kill(os.getpid(), signal.SIGKILL)
        while not os.path.exists(f"{folder}/0.1"):
            time.sleep(0.01)
        """,
    )
    lines = []
    assert Agent(launch, tell=lines.append).run() == 0
    found = sorted(p.name for p in tmp_path.glob("[01].*"))
    assert found == ["0.0", "0.1", "1.0"]
    assert any("was ended by SIGKILL; a new one starts" in line for line in lines)


def test_output_goes_to_a_folder_of_each_process(tmp_path):
    launch = launch_of(
        tmp_path,
        'print("slot", os.environ["LOCAL_RANK"])',
        log_dir=str(tmp_path / "logs"),
    )
    assert Agent(launch, tell=lambda _: None).run() == 0
    found = sorted(p.read_text() for p in tmp_path.glob("logs/*/*/*/0/stdout.log"))
    assert found == ["slot 0\n", "slot 1\n"]


def test_a_program_that_always_fails_is_given_up(tmp_path):
    lines = []
    launch = launch_of(tmp_path, "sys.exit(7)", num_processes=1)
    assert Agent(launch, tell=lines.append).run() == 1
    assert lines[-1].startswith("slot 0: the process ended with code 7, and there were")
    assert sum(line.endswith(" starts") for line in lines) == 3


@pytest.mark.parametrize("obeys", [True, False])
def test_a_signal_to_the_agent_is_a_notice_to_its_processes(tmp_path, obeys):
    program = f"""
        def on_notice(*_):
            if {obeys}:
                open(sys.argv[1] + "/left", "w").close()
                sys.exit(0)
        signal.signal(signal.SIGTERM, on_notice)
        open(sys.argv[1] + "/ready" + os.environ["LOCAL_RANK"], "w").close()
        while True:
            time.sleep(0.01)
        """
    launch_of(tmp_path, program)
    agent = f"""
        from aikido_torch.elastic._agent import Agent, Launch, python_command
        command = python_command({str(tmp_path / "train.py")!r}, [{str(tmp_path)!r}],
                                 "script")
        launch = Launch(command, 2, "127.0.0.1:29400", grace_s={30 if obeys else 0.2})
        sys.exit(Agent(launch, tell=print).run())
        """
    code = "import sys\n" + textwrap.dedent(agent)
    process = subprocess.Popen(
        [sys.executable, "-u", "-c", code], stdout=subprocess.PIPE, text=True
    )
    wait_for(tmp_path / "ready0", tmp_path / "ready1")
    os.kill(process.pid, signal.SIGTERM)
    output, _ = process.communicate(timeout=LIMIT_S)
    assert process.returncode == 0
    assert "SIGTERM: the processes of this machine get the notice" in output
    assert (tmp_path / "left").exists() == obeys
    assert ("was ended by SIGKILL" in output) == (not obeys)
