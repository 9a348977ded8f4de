"""The studies that come with the package: each loads and asks what it says."""

from __future__ import annotations

import csv
import re
from pathlib import Path

import pytest

from warehouse.database.catalog import packaged_catalog
from warehouse.database.resources import reference_directory, studies_directory
from warehouse.studies.study import load_study
from warehouse.sweep.cells import counted_cells


def packaged_studies() -> list[Path]:
    return sorted(studies_directory().glob("*.toml"))


def test_studies_are_packaged() -> None:
    names = [path.stem for path in packaged_studies()]
    assert {"gpt3_1T_1d", "megatron", "hbm_bandwidth_capacity"} <= set(names)


@pytest.mark.parametrize("path", packaged_studies(), ids=lambda path: path.stem)
def test_every_packaged_study_loads_and_is_named_after_its_file(path: Path) -> None:
    study = load_study(path)
    assert study.name == path.stem
    assert study.definition["description"]


def test_the_megatron_study_asks_for_each_published_configuration() -> None:
    with (reference_directory() / "printed_step.csv").open() as file:
        rows = csv.DictReader(file)
        published = [row for row in rows if row["reference"] == "published_megatron_scaling"]
    study = load_study(studies_directory() / "megatron.toml")
    assert len(study.spaces) == len(published) == 10
    for space, row in zip(study.spaces, published, strict=True):
        assert space["model"] == (f"megatron_{row['printed_model']}",)
        assert space["accelerator"] == (row["accelerator"],)
        for name in ("num_gpus", "global_batch_size"):
            assert space[name] == (int(row[name]),)
        assert space["virtual_pipeline"] == tuple(sorted({1, int(row["virtual_pipeline"])}))
        assert row["activation_recompute"] in space["activation_recompute"]
    assert len(study.mends) == 2


def test_the_hardware_sweep_crosses_bandwidth_with_capacity() -> None:
    [space] = load_study(studies_directory() / "hbm_bandwidth_capacity.toml").spaces
    assert len(space["hbm_bytes_per_second"]) * len(space["hbm_bytes"]) == 56
    assert 8e12 in space["hbm_bytes_per_second"]
    assert 192e9 in space["hbm_bytes"]


def test_the_coupled_sweep_runs_through_the_systems_of_the_source() -> None:
    with (reference_directory() / "system.csv").open() as file:
        systems = {row["accelerator"]: row for row in csv.DictReader(file)}
    study = load_study(studies_directory() / "flops_capacity_bandwidth.toml")
    assert len(study.spaces) == 10 * 22
    for pair in (
        ("hbm_bytes", "hbm_bytes_per_second"),
        ("matrix_flops_per_second", "vector_flops_per_second"),
    ):
        points = {tuple(space[name][0] for name in pair) for space in study.spaces}
        for name in ("A100", "H200", "B200", "B200-next"):
            assert tuple(float(systems[name][column]) for column in pair) in points


@pytest.mark.long
@pytest.mark.parametrize(
    "name",
    [
        *("errata", "flops_capacity_bandwidth", "hbm_bandwidth_capacity_paper"),
        *("network_bandwidth", "nvlink_size"),
    ],
)
def test_a_study_has_the_configurations_that_its_description_says(name: str) -> None:
    study = load_study(studies_directory() / f"{name}.toml")
    said = re.search(r"([\d,]+) configurations", study.definition["description"])
    assert said is not None
    assert counted_cells(study, packaged_catalog()).size().rows == int(said[1].replace(",", ""))
