"""The CPU quota and the memory limit of a container, read from files as the kernel shows them."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

import pytest
import typer.testing

from collage_evo.cli import app
from collage_evo.config import load_config
from collage_evo.errors import InputError
from collage_evo.hardware import slots
from collage_evo.hardware.cgroup import cpu_quota, memory_limit
from collage_evo.hardware.memory import usable_memory
from collage_evo.hardware.slots import describe_quota, usable_cores
from collage_evo.run.context import usable
from tests.support.typed import not_none

V2 = "29 23 0:26 {top} /sys/fs/cgroup ro,nosuid shared:4 - cgroup2 cgroup rw,nsdelegate"
V1 = "31 23 0:27 {top} /sys/fs/cgroup/cpu,cpuacct rw shared:5 - cgroup cgroup rw,cpu,cpuacct"
V1_MEMORY = "32 23 0:28 {top} /sys/fs/cgroup/memory rw shared:6 - cgroup cgroup rw,memory"
GROUP = "sys/fs/cgroup"


def system(root: Path, mounts: str, cgroup: str, files: Mapping[str, str], top: str = "/") -> Path:
    """A file tree with what the kernel shows of control groups."""
    own = {"proc/self/mountinfo": mounts.format(top=top), "proc/self/cgroup": cgroup}
    for name, text in {**own, **files}.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text + "\n")
    return root


@pytest.fixture(autouse=True)
def eight_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(3, 11)))


@pytest.mark.parametrize(
    ("quota", "cores"),
    [("max 100000", 8), ("200000 100000", 2), ("250000 100000", 2), ("50000 100000", 1), ("100000 50000", 2),
     ("6400000 100000", 8), ("", 8)],
)  # fmt: skip
def test_a_container_of_version_2_has_as_many_cores_as_its_quota_in_whole_ones(
    tmp_path: Path, quota: str, cores: int
) -> None:
    assert usable_cores(system(tmp_path, V2, "0::/", {f"{GROUP}/cpu.max": quota})) == tuple(range(3, 3 + cores))


@pytest.mark.parametrize(("quota", "cores"), [("-1", 8), ("300000", 3), ("30000", 1)])
def test_a_group_of_version_1_has_its_quota_in_two_files(tmp_path: Path, quota: str, cores: int) -> None:
    group = f"{GROUP}/cpu,cpuacct/docker/ab"
    files = {f"{group}/cpu.cfs_quota_us": quota, f"{group}/cpu.cfs_period_us": "100000"}
    root = system(tmp_path, V1, "4:memory:/docker/ab\n2:cpu,cpuacct:/docker/ab\n0::/", files)
    assert len(usable_cores(root)) == cores


@pytest.mark.parametrize(
    ("mine", "parent", "quota", "file"),
    [("400000 100000", "150000 100000", 1.5, "pod/cpu.max"), ("100000 100000", "max 100000", 1, "pod/c/cpu.max")],
)
def test_the_tightest_of_a_group_and_its_ancestors_binds(
    tmp_path: Path, mine: str, parent: str, quota: float, file: str
) -> None:
    files = {f"{GROUP}/pod/c/cpu.max": mine, f"{GROUP}/pod/cpu.max": parent, f"{GROUP}/other/cpu.max": "1 100000"}
    found = not_none(cpu_quota(system(tmp_path, V2, "0::/pod/c", files)))
    assert (found.value, found.file) == (quota, tmp_path / GROUP / file)


@pytest.mark.parametrize(
    ("top", "cgroup"),
    [("/docker/ab", "0::/docker/ab"), ("/docker/ab", "0::/"), ("/", "0::/../../moved"), ("/..", "0::/")],
)
def test_a_group_whose_folder_is_not_mounted_has_the_limits_of_the_mount(
    tmp_path: Path, top: str, cgroup: str
) -> None:
    root = system(tmp_path / "root", V2, cgroup, {f"{GROUP}/cpu.max": "200000 100000"}, top)
    found = not_none(cpu_quota(root))
    assert found.value == 2


def test_a_subgroup_below_what_is_mounted_is_found(tmp_path: Path) -> None:
    files = {f"{GROUP}/worker/cpu.max": "200000 100000"}
    assert len(usable_cores(system(tmp_path, V2, "0::/docker/ab/worker", files, top="/docker/ab"))) == 2


def test_without_control_groups_all_cores_are_used(tmp_path: Path) -> None:
    assert usable_cores(tmp_path) == tuple(range(3, 11))
    assert cpu_quota(tmp_path) is memory_limit(tmp_path) is None
    assert describe_quota(tmp_path) == ""


@pytest.mark.parametrize(
    ("quota", "words"),
    [("200000 100000", ("allows 2 of 8 processors: 2 used",)), ("max 100000", ()), ("800000 100000", ()),
     ("150000 100000", ("allows 1.5 of 8 processors: 1 used",)), ("50000 100000", ("allows 0.5", "times vary"))],
)  # fmt: skip
def test_a_sentence_tells_of_a_quota_that_limits(tmp_path: Path, quota: str, words: tuple[str, ...]) -> None:
    sentence = describe_quota(system(tmp_path, V2, "0::/", {f"{GROUP}/cpu.max": quota}))
    assert bool(sentence) == bool(words)
    assert all(word in sentence for word in words)
    assert not sentence or f"{GROUP}/cpu.max" in sentence


@pytest.mark.parametrize(
    ("mounts", "cgroup", "file"),
    [(V2, "0::/", f"{GROUP}/memory.max"), (V1_MEMORY, "4:memory:/", f"{GROUP}/memory/memory.limit_in_bytes")],
)
def test_the_memory_of_a_container_is_its_limit(tmp_path: Path, mounts: str, cgroup: str, file: str) -> None:
    machine = usable_memory(tmp_path)
    assert machine == os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    for text, memory in (("1048576", 2**20), (str(2**63 - 4096), machine), ("max", machine)):
        assert usable_memory(system(tmp_path, mounts, cgroup, {file: text})) == memory


@pytest.fixture
def quota_of_two(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root = system(tmp_path, V2, "0::/", {f"{GROUP}/cpu.max": "200000 100000"})
    monkeypatch.setattr(slots, "cpu_quota", lambda _: cpu_quota(root))


@pytest.mark.usefixtures("quota_of_two")
def test_a_run_measures_on_as_many_cores_as_the_quota_allows_and_refuses_more() -> None:
    def cores(*overrides: str) -> tuple[int, ...]:
        return usable(load_config("builtin:squeezenet", overrides))

    assert cores() == (3, 4)
    assert cores("target.cores=[9,10]", "target.threads=2") == (9, 10)
    for given, message in (
        ("target.threads=3", r"3 threads on 2 core.*cpu\.max\) allows 2 of 8"),
        ("target.cores=[3,4,5]", r"3 cores; name at most 2 .*cpu\.max\) allows 2 of 8"),
        ("target.cores=[2]", "core 2 is not usable here"),
    ):
        with pytest.raises(InputError, match=message):
            cores(given)


@pytest.mark.usefixtures("quota_of_two")
def test_the_list_of_backends_ends_with_the_quota() -> None:
    shown = typer.testing.CliRunner().invoke(app, ["backends"]).stdout
    assert "allows 2 of 8 processors: 2 used" in shown.splitlines()[-1]
