"""The run optimizer: figures at given degrees, the greedy path, and the exact search."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from estimators.contract import (
    PUBLISHED,
    Array,
    Catalog,
    Cell,
    RefusedError,
    Relation,
    Scalar,
    Values,
)
from estimators.estimator import source_table
from estimators.inputs import records
from estimators.run_optimizer.degrees import DEGREES, best_microbatches
from estimators.run_optimizer.estimator import RELATION, RELATION_PATH, RUN_OPTIMIZER
from estimators.run_optimizer.step import Degrees, Problem, phase_seconds, step_seconds
from tests.estimators.parity import evaluated, read_golden, resolved, worst_error
from tests.examples import examples
from warehouse.studies.study import load_study

DEVICES = ("A100", "H100 SXM5", "32 x H100 SXM5 5.0 GB/s limit")
KEYS = RELATION.keys
PHASES = ("boundary", "sustained_dp", "sustained_no_dp", "bubble")
RESOURCES = ("compute", "memory", "network")


def cells(catalog: Catalog, **space: Sequence[Scalar]) -> list[Cell]:
    RUN_OPTIMIZER.search.check(space, catalog, PUBLISHED)
    return list(RUN_OPTIMIZER.search.cells(space, catalog, PUBLISHED))


def rows(cell: Cell) -> dict[str, Array]:
    """Return the layouts of a cell with utilization and training time."""
    [layouts] = RUN_OPTIMIZER.search.layouts(cell, 10**7)
    size = len(layouts["num_microbatches"])
    out = {name: np.empty(size) for name in ("utilization", "training_seconds", "num_gpus")}
    relation = RELATION if cell.relation == RELATION.name else RELATION_PATH
    RUN_OPTIMIZER.estimate(relation, cell.values, layouts, PUBLISHED, out, Catalog({}))
    return {**layouts, **out}


def path(catalog: Catalog, accelerator: str, rule: str = "first") -> dict[str, Array]:
    [cell] = cells(catalog, accelerator=[accelerator], tie_rule=[rule])
    assert cell.relation == RELATION_PATH.name
    return rows(cell)


@pytest.mark.parametrize("golden", ["run_optimizer_path", "run_optimizer_path_first_tie"])
def test_every_figure_at_the_degrees_of_the_paths_is_reproduced(
    catalog: Catalog, golden: str
) -> None:
    frame = read_golden(golden)
    found = evaluated(RUN_OPTIMIZER, RELATION, frame, catalog)
    names = [name for name in RELATION.outputs if name in frame.columns]
    assert {"num_gpus", "training_seconds", "utilization"} <= set(names)
    assert max(worst_error(found, frame, names).values()) < 1e-12


@pytest.mark.parametrize("accelerator", DEVICES)
def test_the_path_under_the_explicit_rule_is_reproduced(catalog: Catalog, accelerator: str) -> None:
    golden = read_golden("run_optimizer_path_first_tie").filter(
        pl.col("accelerator") == accelerator
    )
    found = path(catalog, accelerator)
    assert found["path_step"].tolist() == golden["step"].to_list()
    for name in (*KEYS, "num_gpus", "utilization", "training_seconds"):
        assert found[name] == pytest.approx(golden[name].to_numpy(), rel=1e-12)


@pytest.mark.parametrize(
    ("rule", "utilization"),
    [("first", 0.549), ("last", 0.671), ("most_microbatches", 0.686)],
)
def test_equal_candidates_decide_where_the_path_ends(
    catalog: Catalog, rule: str, utilization: float
) -> None:
    assert path(catalog, "H100 SXM5", rule)["utilization"][-1] == pytest.approx(
        utilization, abs=5e-4
    )


def splits_of(number: int) -> list[tuple[int, ...]]:
    """Return every ordered split of devices over the four degrees."""
    divisors = [n for n in range(1, number + 1) if number % n == 0]
    return [
        (p, d, h, number // (p * d * h))
        for p in divisors
        for d in divisors
        for h in divisors
        if number % (p * d * h) == 0
    ]


def whole(value: object) -> int:
    """Return a value that is a whole number."""
    assert isinstance(value, int)
    return value


def test_the_exact_search_finds_what_the_path_misses(catalog: Catalog) -> None:
    num_gpus = 14_929_920  # 2^12 x 3^6 x 5, just below 15 million
    [cell] = cells(catalog, accelerator=["H100 SXM5"], num_gpus=[num_gpus])
    found = rows(cell)
    best = int(found["utilization"].argmax())
    assert found["utilization"][best] == pytest.approx(0.797, abs=1e-3)
    greedy = path(catalog, "H100 SXM5")
    before = greedy["num_gpus"] <= num_gpus
    assert found["training_seconds"][best] < 0.7 * greedy["training_seconds"][before].min()


@pytest.mark.long
def test_the_numbers_of_the_study_are_the_fastest_up_to_each_where_the_network_is_slow(
    catalog: Catalog,
) -> None:
    study = load_study(Path(__file__).parents[2] / "studies" / "run_optimizer.toml")
    [space] = study.spaces
    searched = [n for n in map(whole, space["num_gpus"]) if n <= 8192]
    every = {*range(1, 673), *range(221, 8193, 221), *searched}
    values = problem(catalog, DEVICES[2], 4e26)
    splits = np.array([split for number in sorted(every) for split in splits_of(number)], float)
    degrees = dict(zip(DEGREES, splits.T, strict=True))
    stages = degrees["pipeline_parallel"]
    run = Problem.of(values)
    most = np.floor(run.model.batch_tokens / degrees["data_parallel"])
    possible = (stages <= run.model.num_layers) & (stages <= most)
    degrees = {name: column[possible] for name, column in degrees.items()}
    microbatches = best_microbatches(run, Degrees.of(degrees), most[possible])
    out = {"training_seconds": np.empty(len(microbatches))}
    layouts = {**degrees, "num_microbatches": microbatches}
    RUN_OPTIMIZER.estimate(RELATION, values, layouts, PUBLISHED, out, Catalog({}))
    assert len(searched) == 27
    num_gpus = splits.prod(axis=1)[possible]
    is_searched = np.isin(num_gpus, searched)
    for number in searched:
        fastest = out["training_seconds"][num_gpus <= number].min()
        assert out["training_seconds"][is_searched & (num_gpus <= number)].min() == fastest, number


def test_the_search_has_every_split_of_the_devices_once(catalog: Catalog) -> None:
    [cell] = cells(catalog, accelerator=["A100"], num_gpus=[36])
    found = rows(cell)
    layouts = set(zip(*(found[name].tolist() for name in DEGREES), strict=True))
    expected = set(splits_of(36))
    assert layouts == expected
    assert len(found["utilization"]) == len(expected) == RUN_OPTIMIZER.search.count(cell)


def test_stages_are_at_most_the_layers(catalog: Catalog) -> None:
    [cell] = cells(catalog, accelerator=["A100"], num_gpus=[1024])
    assert rows(cell)["pipeline_parallel"].max() == 128  # of 221.9 layers; 256 is beyond


def problem(catalog: Catalog, accelerator: str, flops: float) -> dict[str, Any]:
    [cell] = cells(catalog, accelerator=[accelerator], num_gpus=[1], training_flops=[flops])
    return dict(cell.values)


@cache
def microbatch_times(run: Problem, degrees: tuple[int, ...], most: int) -> Array:
    tried = np.arange(degrees[0], most + 1, dtype=np.float64)
    columns = Degrees(*(np.full(len(tried), float(degree)) for degree in degrees))
    return np.asarray(step_seconds(phase_seconds(run, columns, tried)))


@given(
    st.sampled_from(DEVICES),
    st.sampled_from([1e18, 1e20, 1e22, 1e24]),
    st.tuples(st.integers(1, 6), st.integers(1, 300), st.integers(1, 40), st.integers(1, 40)),
)
@examples(80)
def test_the_best_number_of_microbatches_is_that_of_trying_every_one(
    catalog: Catalog, accelerator: str, flops: float, degrees: tuple[int, ...]
) -> None:
    run = Problem.of(problem(catalog, accelerator, flops))
    most = min(int(run.model.batch_tokens // degrees[1]), 20_000)
    times = microbatch_times(run, degrees, most)
    columns = Degrees(*(np.array([float(degree)]) for degree in degrees))
    [best] = best_microbatches(run, columns, np.array([float(most)]))
    assert best == int(best)
    assert times[int(best) - degrees[0]] == pytest.approx(times.min(), rel=1e-14)


@given(
    st.sampled_from(DEVICES),
    st.tuples(st.floats(1, 200), st.floats(1, 5000), st.floats(1, 200), st.floats(1, 50)),
    st.floats(200, 1e6),
)
@examples(60)
def test_a_phase_takes_as_long_as_its_slowest_resource_and_phases_add_up(
    catalog: Catalog, accelerator: str, degrees: tuple[float, ...], microbatches: float
) -> None:
    given_row = dict(zip(DEGREES, degrees, strict=True))
    frame = pl.DataFrame(
        [{"accelerator": accelerator, **given_row, "num_microbatches": microbatches}]
    )
    found = evaluated(RUN_OPTIMIZER, RELATION, frame, catalog).row(0, named=True)
    parts = [max(found[f"{p}_{r}_seconds"] for r in RESOURCES) for p in PHASES]
    assert found["step_seconds"] == pytest.approx(sum(parts), rel=1e-14)
    assert found["utilization"] <= 0.8 * (1 + 1e-9)
    assert found["num_gpus"] == pytest.approx(float(np.prod(degrees)), rel=1e-14)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"pipeline_parallel": 230, "num_microbatches": 300}, "is more than the model's layers"),
        ({"pipeline_parallel": 4, "num_microbatches": 2}, "is more than `num_microbatches`"),
        ({"training_flops": -1.0}, "must be at least"),
        ({"accelerator": "H1000"}, "is not in the `device` table"),
    ],
)
def test_what_cannot_be_is_refused(catalog: Catalog, changes: dict[str, Any], words: str) -> None:
    frame = pl.DataFrame([{"accelerator": "A100", **changes}])
    refusals = resolved(RUN_OPTIMIZER, RELATION, frame, catalog)[1]
    assert any(words in str(refusal) for refusal in refusals)


@pytest.mark.parametrize("asked", [{"tie_rule": ["first"]}, {"num_gpus": [8]}])
def test_a_model_of_less_than_a_layer_is_refused(catalog: Catalog, asked: dict[str, Any]) -> None:
    least = {"accelerator": ["A100"], **asked}
    with pytest.raises(RefusedError, match=r"`training_flops` .* less than one layer"):
        cells(catalog, **least, training_flops=[1e12])
    [cell] = cells(catalog, **least, training_flops=[3.35e12])
    assert RUN_OPTIMIZER.search.count(cell) > 0


def test_a_space_may_ask_for_the_path_for_the_search_or_for_both(catalog: Catalog) -> None:
    relations = {
        "path": {cell.relation for cell in cells(catalog, accelerator=["A100"])},
        "search": {c.relation for c in cells(catalog, accelerator=["A100"], num_gpus=[8])},
        "both": {
            c.relation
            for c in cells(catalog, accelerator=["A100"], num_gpus=[8], tie_rule=["last"])
        },
    }
    assert relations == {
        "path": {"run_optimizer_path"},
        "search": {"run_optimizer"},
        "both": {"run_optimizer", "run_optimizer_path"},
    }


def test_a_budget_needs_no_other_input(catalog: Catalog) -> None:
    found, _ = resolved(RUN_OPTIMIZER, RELATION, pl.DataFrame({"training_flops": [1e25]}), catalog)
    assert found["accelerator"].tolist() == ["H100 SXM5"]
    assert found["flops_8bit_per_second"].tolist() == [1979e12]


def test_an_attribute_of_a_device_is_not_completed_by_another_device(catalog: Catalog) -> None:
    frame = pl.DataFrame({"training_flops": [1e25], "flops_8bit_per_second": [1e15]})
    _, refusals = resolved(RUN_OPTIMIZER, RELATION, frame, catalog)
    assert [refusal.column for refusal in refusals] == ["memory_bytes_per_second"]


def test_the_table_of_a_budget_has_the_fastest_degrees_of_each_number(catalog: Catalog) -> None:
    def evaluate(relation: Relation, texts: Mapping[str, str]) -> Values:
        frame = pl.DataFrame({name: [text] for name, text in texts.items()})
        columns, refusals = resolved(RUN_OPTIMIZER, relation, frame, catalog)
        assert not refusals
        [values] = records(columns)
        return values

    lines = source_table(
        RUN_OPTIMIZER, "gpu_counts", {"training_flops": "1e25"}, PUBLISHED, evaluate
    )
    # 1e25 FLOPs at 0.8 of 989.5e12 FLOP/s take 3.509e6 hours; 32 devices would take 13 years
    assert (lines[0]["devices"], lines[0]["device hours"]) == (64, 3.509e6)
    assert lines[0]["days"] == pytest.approx(3.509e6 / 64 / 24, rel=1e-3)
    assert [line["devices"] for line in lines] == [2**n for n in range(6, 24)]
    for line in lines[:4]:
        [cell] = cells(catalog, num_gpus=[line["devices"]], training_flops=[1e25])
        assert line["days"] == pytest.approx(rows(cell)["training_seconds"].min() / 86400, rel=1e-3)
    with pytest.raises(RefusedError, match="is an axis of the table"):
        source_table(RUN_OPTIMIZER, "gpu_counts", {"num_gpus": "64"}, PUBLISHED, evaluate)
