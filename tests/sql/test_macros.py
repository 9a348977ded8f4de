"""The functions of sql/macros.sql, against published figures and sums done by hand."""

from __future__ import annotations

from typing import Any

import duckdb
import pytest

from estimators.columns import COLUMNS, LAYOUT_COLUMNS, names_in
from warehouse.database.sql_text import least_fit_probability
from warehouse.limits import FIT_PROBABILITY
from warehouse.show.units import layout_in_words


def value(connection: duckdb.DuckDBPyConnection, expression: str) -> Any:
    row = connection.execute(f"select {expression}").fetchone()
    assert row is not None
    return row[0]


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        ("in_days(7 * 86400)", 7),
        ("in_gb(80e9)", 80),
        ("in_tflops(312e12)", 312),
        ("in_percent(0.52)", 52),
        ("days(7 * 86400)", 7),
        ("gb(80e9)", 80),
        ("usd(1024, 30 * 86400, 2.5)", 1024 * 720 * 2.5),
    ],
)
def test_units_for_people(
    scratch: duckdb.DuckDBPyConnection, expression: str, expected: float
) -> None:
    assert value(scratch, expression) == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ("'published_measurement', 'H100 dense', false", "H100 dense"),
        ("'published_megatron_scaling', 'all', false", "scaling"),
        ("'published_training_stage', 'all groups', false", "stage all groups"),
        ("'team', 'all', true", "your runs team"),
    ],
)
def test_groups_of_steps_have_short_names(
    scratch: duckdb.DuckDBPyConnection, arguments: str, expected: str
) -> None:
    assert value(scratch, f"group_in_words({arguments})") == expected


@pytest.mark.parametrize(
    ("shape", "printed"),
    [("96, 12288, 51200, 2048", 174.6e9), ("128, 25600, 51200, 2048", 1008.0e9)],
)
def test_parameters_are_those_that_megatron_prints(
    scratch: duckdb.DuckDBPyConnection, shape: str, printed: float
) -> None:
    found = value(scratch, f"megatron_parameters({shape})")
    assert found == pytest.approx(printed, abs=0.05e9)


def test_an_unknown_vocabulary_leaves_its_parameters_out(
    scratch: duckdb.DuckDBPyConnection,
) -> None:
    # 12 x 2 x 64 + 13 x 2 x 8 + 6 x 8 for the positions
    assert value(scratch, "megatron_parameters(2, 8, null, 6)") == 1792


def test_the_step_of_the_largest_megatron_run_overflows_no_integer(
    scratch: duckdb.DuckDBPyConnection,
) -> None:
    # equation 3 as printed, in Python's integers where they are whole
    expected = (
        96 * 3072 * 2048 * 128 * 25600**2 * (1 + 2048 / (6 * 25600) + 51200 / (16 * 128 * 25600))
    )
    found = value(scratch, "megatron_flops(3072, 2048, 128, 25600, 51200, 'full')")
    assert found == pytest.approx(expected, rel=1e-14)
    assert found > 2**63


def test_recomputation_repeats_the_layers_but_not_the_logits(
    scratch: duckdb.DuckDBPyConnection,
) -> None:
    # B 8, s 6, l 2, h 8, V 10: 72 or 96 x 8 x 6 x 2 x 64 x 1.125, and 6 x 8 x 6 x 8 x 10
    shape = "8, 6, 2, 8, 10"
    assert value(scratch, f"megatron_flops({shape}, 'none')") == 497_664 + 23_040
    assert value(scratch, f"megatron_flops({shape}, 'full')") == 663_552 + 23_040


def test_a_recomputation_that_equation_3_does_not_cover_has_no_flops(
    scratch: duckdb.DuckDBPyConnection,
) -> None:
    assert value(scratch, "megatron_flops(8, 6, 2, 8, 10, 'selective')") is None


def test_a_recomputation_that_is_not_known_has_no_flops(
    scratch: duckdb.DuckDBPyConnection,
) -> None:
    assert value(scratch, "megatron_flops(8, 6, 2, 8, 10, null)") is None


def test_a_recomputation_that_does_not_exist_is_reported(
    scratch: duckdb.DuckDBPyConnection,
) -> None:
    expected = '`activation_recompute` "selectve": must be none, selective or full'
    with pytest.raises(duckdb.Error, match=expected):
        value(scratch, "megatron_flops(8, 6, 2, 8, 10, 'selectve')")


@pytest.mark.parametrize("vocab", ["51200", "null"])
def test_model_flops_of_a_megatron_shape_are_equation_3_without_recomputation(
    scratch: duckdb.DuckDBPyConnection, vocab: str
) -> None:
    found = value(
        scratch,
        f"model_flops(1536, 2048, 96, 12288, 4 * 12288, 96, 96, {vocab})"
        f" / megatron_flops(1536, 2048, 96, 12288, {vocab}, 'none')",
    )
    assert found == pytest.approx(1, rel=1e-14)


def test_grouped_queries_and_a_narrow_feed_forward_layer_need_fewer_model_flops(
    scratch: duckdb.DuckDBPyConnection,
) -> None:
    # a token and layer, forward: queries and output 4 x 64, keys and values half of that
    # (2 of 4 heads), attention 4 x 6 x 8, feed-forward 4 x 8 x 20: 256 + 128 + 192 + 640 = 1216
    found = value(scratch, "model_flops(8, 6, 2, 8, 20, 4, 2, null)")
    assert found == 3 * 1216 * 2 * 48


def test_utilization_of_all_gpus_at_half_their_peak_is_a_half(
    scratch: duckdb.DuckDBPyConnection,
) -> None:
    assert value(scratch, "mfu(3e15, 5, 4, 3e14)") == pytest.approx(0.5, rel=1e-15)


@pytest.mark.parametrize(("given", "expected"), [("1", 1), ("'2.5'", 2.5), ("10", 10)])
def test_an_argument_within_its_limits_is_that_number(
    scratch: duckdb.DuckDBPyConnection, given: str, expected: float
) -> None:
    found = value(scratch, f"argument_within('a', {given}, 1, 10, 'is 1 to 10')")
    assert found == expected
    assert isinstance(found, float)


def test_an_argument_that_is_not_given_is_null(
    scratch: duckdb.DuckDBPyConnection,
) -> None:
    assert value(scratch, "argument_within('a', null, 1, 10, 'is 1 to 10')") is None


@pytest.mark.parametrize("given", ["0.5", "11", "'nan'::double", "'inf'::double"])
def test_an_argument_outside_its_limits_is_reported_by_name(
    scratch: duckdb.DuckDBPyConnection, given: str
) -> None:
    expected = given.removesuffix("::double").strip("'")
    with pytest.raises(duckdb.Error, match=f"`a` {expected}: is 1 to 10"):
        value(scratch, f"argument_within('a', {given}, 1, 10, 'is 1 to 10')")


def as_layout() -> str:
    """Return the SQL of a layout whose values are parameters."""
    columns = (COLUMNS[name] for name in LAYOUT_COLUMNS)
    fields = (f"{c.name} := cast(? as {c.duckdb_type})" for c in columns)
    return f"struct_pack({', '.join(fields)})"


PLAIN_LAYOUT = {"data_parallel": 4, "tensor_parallel": 8, "pipeline_parallel": 2}


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({}, None),
        (PLAIN_LAYOUT | {"microbatch_size": 1}, "dp4 tp8 pp2 micro1"),
        (
            PLAIN_LAYOUT
            | {"strategy": "summa_2d", "tensor_parallel_2": 4, "summa_panels": 32}
            | {"nvlink_data_parallel": 1, "nvlink_tensor_parallel": 4}
            | {"nvlink_tensor_parallel_2": 2, "nvlink_pipeline_parallel": 1},
            "summa_2d dp4 tp8x4 pp2 panels32 (nvlink tp4x2)",
        ),
        (
            PLAIN_LAYOUT | {"context_parallel": 2, "expert_parallel": 8, "virtual_pipeline": 3},
            "dp4 tp8 cp2 ep8 pp2 vp3",
        ),
        # a degree of sequence parallelism, and the tensor-parallel group splitting sequences
        (PLAIN_LAYOUT | {"sequence_parallel": 16}, "dp4 tp8 sp16 pp2"),
        (
            PLAIN_LAYOUT | {"uses_sequence_parallel": True, "zero_stage": 1},
            "dp4 tp8 seq pp2 zero1",
        ),
        (
            PLAIN_LAYOUT | {"uses_sequence_parallel": False, "zero_stage": 0},
            "dp4 tp8 pp2 zero0",
        ),
        # no choice of the stage: nothing to say
        (PLAIN_LAYOUT | {"zero_stage": 0}, "dp4 tp8 pp2"),
        (
            PLAIN_LAYOUT | {"activation_recompute": "full", "attention": "unfused"},
            "dp4 tp8 pp2 recompute full attention unfused",
        ),
        (
            PLAIN_LAYOUT | {"activation_recompute": "none", "attention": "flash"},
            "dp4 tp8 pp2",
        ),
        (
            PLAIN_LAYOUT | {"schedule": "1f1b", "counts_loss": False, "counts_embedding": False},
            "dp4 tp8 pp2",
        ),
        (
            PLAIN_LAYOUT
            | {"virtual_pipeline": 2, "microbatch_group": 4, "microbatch_size": 1}
            | {"layers_in_first_stage": 3, "layers_in_last_stage": 5, "counts_loss": True},
            "dp4 tp8 pp2 vp2 group4 first3 last5 counts loss micro1",
        ),
        (
            PLAIN_LAYOUT
            | {"schedule": "zb_h1", "pipeline_layout": "Et|tL", "counts_embedding": True},
            "dp4 tp8 pp2 schedule zb_h1 stages Et|tL counts embedding",
        ),
        (
            {"data_parallel": 3, "tensor_parallel_external": 2, "num_microbatches": 7},
            "dp3 ext2 microbatches7",
        ),
        (
            PLAIN_LAYOUT
            | {"microbatch_size": 2, "num_microbatches": 7, "nvlink_tensor_parallel": 1}
            | {"nvlink_context_parallel": 2, "nvlink_data_parallel": 2},
            "dp4 tp8 pp2 micro2 (nvlink dp2 cp2)",
        ),
    ],
)
def test_a_layout_reads_the_same_from_sql_and_from_python(
    scratch: duckdb.DuckDBPyConnection, values: dict[str, Any], words: str | None
) -> None:
    found = scratch.execute(
        f"select layout_in_words({as_layout()})", [values.get(n) for n in LAYOUT_COLUMNS]
    ).fetchone()
    assert found == (words,)
    assert layout_in_words(values) == (words or "")


def fields_of(connection: duckdb.DuckDBPyConnection, macro: str) -> list[str]:
    found = connection.execute(f"describe select unnest({macro}(configuration)) from configuration")
    return [name for name, *_ in found.fetchall()]


def test_macros_of_a_layout_have_every_column_of_one(
    scratch: duckdb.DuckDBPyConnection,
) -> None:
    layout = fields_of(scratch, "layout_of")
    assert sorted(layout) == sorted(LAYOUT_COLUMNS)
    assert set(LAYOUT_COLUMNS) < set(fields_of(scratch, "evaluated_layout"))
    # all layouts of a cell have these in common: they tell none apart
    in_cell = {"strategy", "attention", "activation_recompute", *names_in("Schedule of a pipeline")}
    assert fields_of(scratch, "layout_order") == ["fit_risk", "by_time"]
    order = fields_of(scratch, "time_order")
    assert order[:2] == ["step_seconds", "memory_bytes"]
    assert set(order[2:]) == set(LAYOUT_COLUMNS) - in_cell


LAYOUTS = """(values
    ('sure', 5.0, 40.0, true, 0.95), ('surer', 6.0, 30.0, true, 0.99),
    ('just', 5.5, 45.0, true, 0.9), ('below', 4.0, 50.0, true, 0.8999),
    ('risky', 3.0, 60.0, true, 0.6), ('riskier', 2.0, 70.0, true, 0.58),
    ('too large', 1.0, 90.0, false, 0.4)
) as layout (name, step_seconds, memory_bytes, fits_memory, fit_probability)"""


def best_first(connection: duckdb.DuckDBPyConnection, where: str = "true") -> list[str]:
    absent = ", ".join(
        f"null as {name}"
        for name in LAYOUT_COLUMNS
        if name not in ("strategy", "attention", "activation_recompute")
    )
    found = connection.execute(
        f"select name from (select *, {absent} from {LAYOUTS}) as layout"
        f" where {where} order by layout_order(layout)"
    )
    return [name for (name,) in found.fetchall()]


def test_the_best_layout_is_the_fastest_that_is_likely_to_fit(
    scratch: duckdb.DuckDBPyConnection,
) -> None:
    # by time from 90 % on, then by the chance to fit; 1 s does not fit and is last
    likely, others = ["sure", "just", "surer"], ["below", "risky", "riskier", "too large"]
    assert best_first(scratch) == likely + others
    assert best_first(scratch, "is_likely_to_fit(layout)") == likely
    # none is likely to fit: the likeliest, though it is the slowest
    assert best_first(scratch, "fit_probability < 0.9") == others
    assert value(scratch, "least_fit_probability()") == FIT_PROBABILITY


def test_another_least_chance_to_fit_gives_another_best(
    scratch: duckdb.DuckDBPyConnection,
) -> None:
    usual = best_first(scratch)
    with least_fit_probability(scratch, 0.98):
        assert best_first(scratch)[:3] == ["surer", "sure", "just"]
    with least_fit_probability(scratch, 0.1):  # every layout that fits by the estimate
        assert best_first(scratch)[:2] == ["riskier", "risky"]
        assert best_first(scratch)[-1] == "too large"
    assert best_first(scratch) == usual


@pytest.mark.parametrize(
    ("chance", "fits", "likely"),
    [
        # without a chance the memory decides; without a memory every layout fits
        ("null", "true", True),
        ("null", "false", False),
        ("null", "null", True),
        ("0.9", "true", True),
        ("0.89", "true", False),
        ("0.95", "false", False),
    ],
)
def test_a_layout_is_likely_to_fit_by_its_chance_or_its_memory(
    scratch: duckdb.DuckDBPyConnection, chance: str, fits: str, likely: bool
) -> None:
    layout = f"{{'fit_probability': cast({chance} as double), 'fits_memory': {fits}}}"
    assert value(scratch, f"is_likely_to_fit({layout})") is likely


@pytest.mark.parametrize(
    ("deviations", "share"), [(-1.6448536, 0.05), (0, 0.5), (1, 0.8413447), (1.6448536, 0.95)]
)
def test_the_normal_distribution_is_that_of_tables(
    scratch: duckdb.DuckDBPyConnection, deviations: float, share: float
) -> None:
    found = value(scratch, f"normal_cumulative({deviations})")
    assert found == pytest.approx(share, abs=2e-7)


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ("'allocated', 5, 7, 9", 5),
        ("'reserved', 5, 7, 9", 7),
        ("'device', 5, 7, 9", 9),
        ("'unknown', 5, 7, 9", 9),
        ("null, 5, 7, 9", 9),
        ("'allocated', null, null, 9", 9),
    ],
)
def test_memory_is_compared_with_what_counts_the_same(
    scratch: duckdb.DuckDBPyConnection, arguments: str, expected: float
) -> None:
    assert value(scratch, f"memory_of_kind({arguments})") == expected


@pytest.mark.parametrize(
    ("rows", "expected"),
    [
        ("(1, null, null), (2, null, 'gpu')", 2),
        ("(1, null, null), (2, null, 'gpu'), (3, 'program', null)", 3),
        ("(4, 'program', 'gpu'), (3, 'program', null), (2, null, 'gpu')", 4),
    ],
)
def test_the_most_specific_constant_counts(
    scratch: duckdb.DuckDBPyConnection, rows: str, expected: float
) -> None:
    query = f"(select most_specific(a, f, g) from (values {rows}) as constants (a, f, g))"
    assert value(scratch, query) == expected


def test_a_layout_has_whole_numbers_and_no_missing_values() -> None:
    layout: dict[str, float | None] = {
        "data_parallel": 2,
        "microbatch_group": 6.0,
        "layers_in_first_stage": 11.0,
    }
    layout |= {"pipeline_layout": None, "layers_in_last_stage": float("nan")}
    assert layout_in_words(layout) == "dp2 group6 first11"
