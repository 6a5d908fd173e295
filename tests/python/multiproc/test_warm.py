# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
"""Programs that are forked from a process that has already imported torch."""

import json
import multiprocessing
import os
import signal
import subprocess
import sys
import textwrap
import time

import pytest

from benchmarks.lab import Lab, Link, Program, warm
from benchmarks.lab.warm import Process
from benchmarks.launch import RanksFailedError
from benchmarks.local_ranks import run_ranks
from rules import tree

pytestmark = pytest.mark.beside


def file_of(tmp_path, code):
    path = tmp_path / "program.py"
    path.write_text(textwrap.dedent(code))
    return path


def end_of(process):
    """Output of the process, and its exit code."""
    with process.stdout as stream:
        return stream.read().decode(), process.wait()


def test_a_program_finds_the_environment_of_a_shell(tmp_path, monkeypatch):
    path = file_of(
        tmp_path,
        """
        import atexit, json, multiprocessing, os, sys
        import beside_it, elsewhere
        told = [sys.argv, dict(os.environ), os.getcwd(), beside_it.here, __name__]
        print(json.dumps([*told, os.getsid(0) == os.getpid()]))
        print("error", file=sys.stderr)
        atexit.register(print, "at exit")
        if __name__ == "__main__":
            child = multiprocessing.Process(target=os.getppid)
            child.start()
            child.join()
            print(child.exitcode, multiprocessing.get_start_method())
        """,
    )
    (tmp_path / "beside_it.py").write_text("here = 'beside it'")
    there = tmp_path / "there"
    there.mkdir()
    (there / "elsewhere.py").touch()
    monkeypatch.chdir(there)
    env = {"ONLY": "this", "PYTHONPATH": str(there)}
    process = Process(Program(path, ("a", "b c")), env, None)
    text, code = end_of(process)
    told, *others = text.splitlines()
    assert json.loads(told) == [
        [str(path), "a", "b c"],
        env,
        str(there),
        "beside it",
        "__main__",
        True,
    ]
    assert others == ["error", f"0 {multiprocessing.get_start_method()}", "at exit"]
    assert code == process.returncode == 0


@pytest.mark.parametrize(
    ("ends", "code", "said"),
    [
        ("raise SystemExit('what is wrong')", 1, "what is wrong"),
        ("raise ValueError('a defect')", 1, "ValueError: a defect"),
        ("raise SystemExit(3)", 3, ""),
        ("import os, signal; os.kill(os.getpid(), signal.SIGKILL)", -9, ""),
    ],
)
def test_the_exit_of_a_program_is_reported(tmp_path, ends, code, said):
    found = end_of(Process(Program(file_of(tmp_path, ends)), os.environ, None))
    assert said in found[0]
    assert found[1] == code


def test_programs_share_imported_modules_and_have_their_own_threads(tmp_path):
    path = file_of(
        tmp_path,
        """
        import aikido_torch, numpy, torch
        print(id(torch), id(aikido_torch), torch.get_num_threads())
        print(numpy.random.random())
        """,
    )
    found = [
        end_of(Process(Program(path), os.environ | {"OMP_NUM_THREADS": n}, None))[0]
        for n in ("1", "3")
    ]
    (*first, threads, drawn), (*second, more_threads, drawn_too) = map(str.split, found)
    assert first == second
    assert (threads, more_threads) == ("1", "3")
    assert drawn != drawn_too


STARTER = """
    import os, sys
    sys.path.insert(0, {root!r})
    from pathlib import Path
    from benchmarks.lab import Program
    from benchmarks.lab.warm import Process

    process = Process(Program(Path({path!r})), os.environ, None)
    print("once", process.pid, process.stdout.readline().decode(), flush=True)
    os.kill(os.getpid(), 9)
"""


def test_a_program_ends_with_the_process_that_started_it(tmp_path):
    path = file_of(tmp_path, "import time; print('runs', flush=True); time.sleep(600)")
    starter = tmp_path / "starter.py"
    starter.write_text(
        textwrap.dedent(STARTER.format(root=str(tree.REPOSITORY), path=str(path)))
    )
    with subprocess.Popen([sys.executable, starter], stdout=subprocess.PIPE) as process:
        once, pid, said = process.stdout.readline().split()
        assert process.wait(60) == -signal.SIGKILL
        deadline = time.monotonic() + 30
        while os.path.exists(f"/proc/{int(pid)}"):
            assert time.monotonic() < deadline
            time.sleep(0.05)
    assert (once, said) == (b"once", b"runs")


def test_a_program_of_a_lab_runs_in_its_host(tmp_path):
    if reason := Lab.unavailable():
        pytest.skip(reason)
    path = file_of(
        tmp_path,
        f"""
        import os, socket, sys
        sys.path.insert(0, {str(tree.REPOSITORY)!r})
        from benchmarks.launch import emit
        devices = [name for _, name in socket.if_nameindex()]
        emit(devices=devices, size=os.environ["WORLD_SIZE"])
        """,
    )
    with Lab([Link()] * 2) as lab:
        ends = lab.run(Program(path), deadline_s=60)
    for end in ends:
        assert sorted(end.events[0]["devices"]) == ["eth0", "lo"]
        assert end.events[0]["size"] == "2"


def test_ranks_on_this_machine_form_a_group(tmp_path):
    path = file_of(
        tmp_path,
        f"""
        import sys
        import torch
        import torch.distributed as dist
        import aikido_torch
        sys.path.insert(0, {str(tree.REPOSITORY)!r})
        from benchmarks.launch import emit

        dist.init_process_group("aikido")
        tensor = torch.ones(3)
        dist.all_reduce(tensor)
        emit(rank=dist.get_rank(), sum=tensor.tolist(), told=sys.argv[1])
        dist.destroy_process_group()
        """,
    )
    seen = []
    for _ in range(2):
        run_ranks(str(path), "x", num_ranks=3, limit_s=60, on_event=seen.append)
    assert sorted(event["rank"] for event in seen) == [0, 0, 1, 1, 2, 2]
    assert all(event["sum"] == [3, 3, 3] and event["told"] == "x" for event in seen)


def test_the_first_rank_that_fails_ends_the_others(tmp_path):
    path = file_of(
        tmp_path,
        """
        import os, time
        assert os.environ["RANK"] != "1", "on purpose"
        time.sleep(60)
        """,
    )
    begin = time.monotonic()
    with pytest.raises(RanksFailedError, match=r"(?s)after rank 1 had failed.*on purp"):
        run_ranks(str(path), "", num_ranks=2, limit_s=60, on_event=lambda event: None)
    assert time.monotonic() - begin < 40


def test_ranks_that_run_past_their_limit_are_stopped(tmp_path):
    # Starts the server first, so that importing torch does not use up the limit.
    end_of(Process(Program(file_of(tmp_path, "")), os.environ, None))
    path = file_of(tmp_path, "import time; time.sleep(60)")
    with pytest.raises(
        RanksFailedError, match=r"(?s)still ran at the deadline of 1 s: 0, 1.*line 1 in"
    ):
        run_ranks(str(path), "", num_ranks=2, limit_s=1, on_event=lambda event: None)


@pytest.mark.parametrize(
    ("number", "what"),
    [(signal.SIGKILL, "has ended with code -9"), (signal.SIGSTOP, "does not answer")],
)
def test_a_failed_server_is_reported_and_replaced(tmp_path, number, what, monkeypatch):
    monkeypatch.setattr(Process, "_server", None)
    path = file_of(tmp_path, "import os; print(os.getppid())")
    parent = int(end_of(Process(Program(path), os.environ, None))[0])
    os.kill(parent, number)
    with monkeypatch.context() as patched:
        patched.setattr(warm, "ANSWER_S", 0.5)
        with pytest.raises(RanksFailedError, match=f"forked from {what}"):
            Process(Program(path), os.environ, None)
    assert int(end_of(Process(Program(path), os.environ, None))[0]) != parent
