"""What hospitals do to a job, done to a real network of three: each time the job ends well or with one clear line, and
nothing is lost or left behind."""

import time

import pytest
import yaml
from disturbed import Disturbed, kill, read, wait_until_online, without_seconds
from leftovers import once

from v6_workbench.cli.main import main
from v6_workbench.network import docker_engine, local

RUN = ["--rounds", "3", "--seed", "3", "--set", "batch_size=7"]


@pytest.fixture(scope="module")
def hospitals(engine, state, named):
    name = named("faults")
    try:
        two = ["--profile", "trusting", "--node-env", "V6_FEDERATED_MINIMUM_ORGANIZATIONS=2"]
        assert main(["network", "up", "--name", name, "--data", "breast-cancer", "--nodes", "3", *two]) == 0
        yield name
    finally:
        local.down(name)


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory):
    """Results of jobs that nothing happens to, by method: of mock nodes, whose bits are those of real ones."""
    found: dict[str, dict] = {}

    def result(method: str) -> dict:
        if method not in found:
            out = tmp_path_factory.mktemp(method)
            assert main(["run", method, "--data", "breast-cancer", "--nodes", "3", *RUN, "--out", str(out)]) == 0
            found[method] = read(out)
        return found[method]

    return result


@pytest.fixture
def job(engine, hospitals, capsys, tmp_path, image_of):
    return Disturbed(engine, hospitals, capsys, tmp_path / "out", image_of, RUN)


def test_a_slow_node_is_not_waited_for(job, image_of):
    """Its container stands still for longer than a round may take. Runs first: for a minute after a restart the server
    may take a node for offline, and the history would give that as the reason."""
    image_of("fedavg")

    def slow(job):
        container = job.algorithm(2)
        container.pause()
        time.sleep(50)
        container.unpause()

    policy = ["--set", "round_timeout=30", "--set", "min_responses=2"]
    status, result, err = job.submit("fedavg", "--rounds", "6", *policy, disturb=slow)
    assert status == 0, err
    late = [row for row in result["history"] if row["missing"]]
    assert [row["missing"] for row in late[:1]] == [
        [{"organization_id": 2, "reason": "no answer within 30 s (round_timeout)"}]
    ]
    assert late[0]["participants"] == [1, 3]
    assert result["history"][-1]["participants"] == [1, 2, 3]


def test_a_job_to_which_something_happens_in_each_round(job, undisturbed):
    """An algorithm is killed, then a node is stopped and started, then the server: each time what was asked is asked
    again, and the bits are those of a job to which nothing happens."""

    def restart_node(job):
        job.node(3).stop(timeout=5)
        job.start(3)

    def restart_server(job):
        job.engine.containers.get(docker_engine.server_name(job.hospitals)).restart(timeout=2)

    happens = {1: lambda job: kill(job.algorithm(2)), 2: restart_node, 3: restart_server}
    status, result, err = job.submit("scaffold", disturb=happens)
    assert status == 0, err
    assert result["weights"] == undisturbed("scaffold")["weights"]
    mine, other = (without_seconds(r) for r in (result, undisturbed("scaffold")))
    again = [row.pop("bytes_down") - twin.pop("bytes_down") for row, twin in zip(mine, other, strict=True)]
    assert mine == other
    assert min(again) >= 0, "what was sent to the container that was killed counts too"
    assert not any(row.get("state_lost") for row in result["per_node"])


def test_the_node_of_central_is_stopped_and_started(job, undisturbed):
    """vantage6 starts central again, which goes on from its checkpoint."""

    def restart(job):
        job.node(1).stop(timeout=5)
        job.start(1)

    status, result, err = job.submit("scaffold", disturb=restart)
    assert status == 0, err
    assert result["weights"] == undisturbed("scaffold")["weights"]
    assert [row["round"] for row in result["history"]] == [1, 2, 3]
    assert not any(row.get("state_lost") for row in result["per_node"])


def test_a_node_that_leaves_and_comes_back(job, image_of):
    """With ``enough`` below 1 the others go on without it, the history says so, and it joins again."""
    image_of("fedavg")

    for number in (1, 2, 3):  # after a restart the server takes a node for offline for up to a minute
        wait_until_online(job.hospitals, number)

    def leave(job):
        job.node(3).stop(timeout=5)
        time.sleep(12)
        job.start(3)

    status, result, err = job.submit(
        "fedavg", "--rounds", "9", "--set", "min_responses=0.6", "--set", "offline_timeout=3", disturb=leave
    )
    assert status == 0, err
    away = [row["round"] for row in result["history"] if row["missing"]]
    assert away and away[-1] < 9
    for row in result["history"]:
        if row["missing"]:
            assert row["participants"] == [1, 2]
            [absent] = row["missing"]
            assert absent["organization_id"] == 3
            assert absent["reason"] in ("its node is offline", "its node has been offline for 3 s")
        else:
            assert row["participants"] == [1, 2, 3]


def test_a_node_that_does_not_have_the_image(job, image_of, hospitals):
    """Its operator allows another image only. All must answer, so the job ends with one line; else it goes on."""
    image_of("fedavg")
    file = local.folder(hospitals) / docker_engine.node_name(hospitals, 3) / "node.yaml"
    before = file.read_text()
    config = yaml.safe_load(before)
    config.setdefault("policies", {})["allowed_algorithms"] = ["v6-another"]
    try:
        file.write_text(yaml.safe_dump(config))
        job.node(3).restart(timeout=5)
        wait_until_online(hospitals, 3)
        job.capsys.readouterr()
        assert main(["submit", "fedavg", "--network", hospitals, *RUN, "--out", str(job.out)]) == 1
        [line] = [x for x in job.capsys.readouterr().err.splitlines() if x.startswith("v6-federated: ")]
        assert line.endswith("round 0, describe: organization 3: run not allowed")
        command = ["submit", "fedavg", "--network", hospitals, *RUN, "--rounds", "1", "--set", "min_responses=2"]
        assert main([*command, "--out", str(job.out)]) == 0
    finally:
        file.write_text(before)
        job.node(3).restart(timeout=5)
        wait_until_online(hospitals, 3)
    result = read(job.out)
    assert result["undescribed"] == [{"organization_id": 3, "reason": "run not allowed"}]
    assert all(row["participants"] == [1, 2] for row in result["history"])


def test_a_full_disk(job, engine, hospitals, image_of):
    """The job's folder at node 2 takes nothing. A method with state says so; one without is not disturbed."""
    image_of("scaffold")
    jobs = [task["job_id"] for task in job.user.request("task", params={"per_page": 1000})["data"]]
    node = docker_engine.container_name(docker_engine.node_name(hospitals, 2))
    options = {"type": "tmpfs", "device": "tmpfs", "o": "size=64k"}
    engine.volumes.create(f"{node.removesuffix('-user')}-user-{max(jobs, default=0) + 1}-tmpvol", driver_opts=options)
    job.capsys.readouterr()
    assert main(["submit", "scaffold", "--network", hospitals, *RUN, "--model", "2nn"]) == 1
    [line] = [x for x in job.capsys.readouterr().err.splitlines() if x.startswith("v6-federated: ")]
    assert "organization 2: the job's folder at this node cannot be written: No space left on device" in line


def test_a_central_that_is_killed_leaves_enough_to_go_on(job, undisturbed, hospitals, capsys, tmp_path):
    """`submit --resume TASK` begins a new job with what the lost one had sent in its last round."""
    status, result, err = job.submit(
        "fedavg", disturb=lambda job: (time.sleep(1.5), job.algorithm(1, central=True).kill()), in_round=3
    )
    assert (status, result) == (1, None)
    [task] = {line.split()[1] for line in err.splitlines() if line.startswith("task ")}
    time.sleep(5)  # what it had asked of the nodes comes to an end
    out = tmp_path / "resumed"
    asked = ["--rounds", "3", "--resume", task]  # the rest is as in the lost task
    assert main(["submit", "fedavg", "--network", hospitals, *asked, "--out", str(out)]) == 0
    resumed = read(out)
    assert [row["round"] for row in resumed["history"]] == [1, 2, 3]
    assert resumed["weights"] == undisturbed("fedavg")["weights"]


def test_nothing_is_left_in_the_folders_of_jobs(job, engine, hospitals):
    """State and checkpoints, of all jobs above but the one whose central was killed: that one's checkpoint stays."""
    left = []
    image = "v6-fedavg"
    for volume in engine.volumes.list():
        if hospitals in volume.name and volume.name.endswith("-tmpvol"):
            mounts = {volume.name: {"bind": "/mnt/tmp", "mode": "rw"}}
            names = (
                engine.containers.run(image, ["ls", "/mnt/tmp"], volumes=mounts, remove=True, labels=once())
                .decode()
                .split()
            )
            left += [(volume.name.split("-")[-2], name) for name in names]
    assert {name.split("-")[0] for _, name in left} <= {"checkpoint"}
    assert len({job for job, _ in left}) <= 1
