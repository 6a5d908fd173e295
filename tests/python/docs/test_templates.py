# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
"""The templates of docs/examples are valid, and their commands exist."""

import re
import shlex
import subprocess

import pytest
import typer.main

from aikido_torch.elastic.__main__ import app
from docs import pages

yaml = pytest.importorskip("yaml", reason="the package pyyaml is not installed")
FOLDER = pages.ROOT / "docs/examples"
TEMPLATES = sorted(FOLDER.iterdir())
IDS = [path.name for path in TEMPLATES]
# Options of sbatch in the template, as in its manual.
SBATCH = {
    "array", "cpus-per-task", "gpus", "job-name", "nodes", "ntasks", "open-mode",
    "output", "partition", "requeue", "signal", "time",
}  # fmt: skip


def commands_of(text):
    """Arguments of each `aikido elastic run`, with a value for each variable."""
    joined = text.replace("\\\n", " ")
    for line in re.findall(r"aikido elastic (run .*)", joined):
        line = line.replace('"$(cat "$place")"', "host:29400")
        line = line.replace('"${options[@]}"', "--serve-store")
        line = line.replace("$serve", "--serve-store").replace("HOST", "host")
        line = line.replace('"$ENDPOINT"', "host:29400").replace("$role", "transient")
        yield shlex.split(line)[1:]


def options_of(arguments):
    command = typer.main.get_command(app).commands["run"]
    return command.make_context("run", list(arguments)).params


def pods_of(document):
    for job in document["spec"]["replicatedJobs"]:
        yield job["name"], job["template"]["spec"]


@pytest.mark.parametrize("path", TEMPLATES, ids=IDS)
def test_each_command_exists_and_its_options_too(path):
    found = list(commands_of(path.read_text()))
    assert found
    for arguments in found:
        options = options_of(arguments)
        assert options["program"] == "train.py"
        assert re.fullmatch(r"[\w.-]+:29400", options["endpoint"])
        assert options["arguments"] in (None, [], ())


@pytest.mark.parametrize("path", sorted(FOLDER.glob("*.sh")), ids=str)
def test_a_script_is_valid_for_bash(path):
    subprocess.run(["bash", "-n", path], check=True, timeout=10)


def test_the_script_has_options_of_sbatch_and_is_requeued():
    text = (FOLDER / "slurm.sh").read_text()
    options = re.findall(r"^#SBATCH --([\w-]+)(?:=(\S+))?$", text, re.M)
    assert {name for name, _ in options} <= SBATCH
    assert len(options) == text.count("\n#SBATCH")
    assert ("requeue", "") in options
    assert ("nodes", "1") in options  # one machine per element of the array
    seconds = int(dict(options)["signal"].removeprefix("TERM@"))
    for arguments in commands_of(text):
        assert options_of(arguments)["grace"] < seconds


def test_an_evicted_pod_is_replaced_and_hears_of_it_first():
    document = yaml.safe_load((FOLDER / "jobset.yaml").read_text())
    assert (document["kind"], document["apiVersion"]) == (
        "JobSet",
        "jobset.x-k8s.io/v1alpha2",
    )
    assert document["spec"]["successPolicy"]["targetReplicatedJobs"] == ["reliable"]
    assert "failurePolicy" not in document["spec"]  # it would restart all pods
    costs = {}
    for name, job in pods_of(document):
        rule = job["podFailurePolicy"]["rules"][0]
        assert rule["action"] == "Ignore"
        assert rule["onPodConditions"] == [{"type": "DisruptionTarget"}]
        pod = job["template"]["spec"]
        assert pod["restartPolicy"] == "Never"  # a condition of podFailurePolicy
        [container] = pod["containers"]
        hook = container["lifecycle"]["preStop"]["exec"]["command"]
        assert "kill -USR1 1" in hook[-1]
        [arguments] = commands_of(container["args"][0])
        options = options_of(arguments)
        assert options["role"].value == name
        assert options["grace"] + 5 < pod["terminationGracePeriodSeconds"]
        notes = job["template"]["metadata"]["annotations"]
        costs[name] = int(notes["controller.kubernetes.io/pod-deletion-cost"])
    assert costs["transient"] < costs["reliable"]


def test_the_store_has_the_name_of_the_first_reliable_pod():
    document = yaml.safe_load((FOLDER / "jobset.yaml").read_text())
    name = document["metadata"]["name"]
    for _, job in pods_of(document):
        [container] = job["template"]["spec"]["containers"]
        [arguments] = commands_of(container["args"][0])
        endpoint = options_of(arguments)["endpoint"]
        assert endpoint == f"{name}-reliable-0-0.{name}:29400"


def test_a_managed_job_has_one_spot_machine_on_any_cloud():
    document = yaml.safe_load((FOLDER / "skypilot.yaml").read_text())
    assert document["num_nodes"] == 1
    choices = document["resources"]["any_of"]
    assert all(choice["use_spot"] is True for choice in choices)
    assert len({choice["infra"] for choice in choices}) == len(choices) > 1
    assert "ENDPOINT" in document["envs"]
