"""The one way from records to results, and the one parser of variants."""

from __future__ import annotations

from collections.abc import Callable

import polars as pl
import pytest

from estimators import registry
from estimators.contract import PUBLISHED, Catalog, Mends, RefusedError
from tests.toy_estimator import CONFIGURATIONS, TOY
from warehouse.database.catalog import packaged_catalog
from warehouse.errors import UsageError
from warehouse.evaluate.inputs import evaluate_rows, resolve_rows
from warehouse.studies.variants import (
    mends_of_options,
    parse_variant,
    parse_variants,
    variants_of_options,
)

ROOFLINE = registry.get("roofline")
TOY_CATALOG = Catalog(
    {
        "model": {"tiny": {"model": "tiny", "num_layers": 2, "hidden_size": 8, "seq_len": 16}},
        "system": {
            "card": {
                "accelerator": "card",
                "matrix_flops_per_second": 1e6,
                "hbm_bytes": 1e4,
                "network_bytes_per_second": 1e3,
            }
        },
    }
)
ROWS = pl.DataFrame(
    {
        "model": ["tiny", "tiny", "none", "tiny", None],
        "accelerator": ["card", "card", "card", "card", None],
        "num_gpus": ["2", "two", "2", "4", None],
        "global_batch_size": ["4", "4", "4", "3", None],
    }
)


@pytest.mark.usefixtures("toy")
def test_rows_are_read_resolved_and_evaluated_or_refused_one_by_one() -> None:
    found = resolve_rows(TOY, CONFIGURATIONS, ROWS, TOY_CATALOG, PUBLISHED)
    assert found.is_good.tolist() == [True, False, False, False, False]
    assert [(one.row, one.column) for one in found.refusals] == [
        (1, "num_gpus"),
        (2, "model"),
        (3, "data_parallel"),
        (4, "row"),
    ]
    # the second and the last row cannot be read; the others are resolved, good or not
    assert found.rows.tolist() == [0, 2, 3]
    assert {len(column) for column in found.columns.values()} == {3}
    assert found.good["num_gpus"].tolist() == [2]
    alone = resolve_rows(TOY, CONFIGURATIONS, ROWS[:1], TOY_CATALOG, PUBLISHED)
    one, same = evaluate_rows(found), evaluate_rows(alone)
    assert one.keys() == {*CONFIGURATIONS.outputs}
    assert all(one[name].tolist() == same[name].tolist() for name in one)
    assert evaluate_rows(found, ["step_seconds"]).keys() == {"step_seconds"}


@pytest.mark.usefixtures("toy")
def test_texts_of_one_configuration_may_have_grouped_numbers() -> None:
    given = {"model": "tiny", "accelerator": "card", "num_gpus": "2", "global_batch_size": "1_024"}
    found = resolve_rows(TOY, CONFIGURATIONS, given, TOY_CATALOG, PUBLISHED)
    assert found.refusals == ()
    assert found.columns["global_batch_size"].tolist() == [1024]


@pytest.mark.usefixtures("toy")
def test_a_column_of_a_wrong_type_refuses_every_row_and_evaluates_none() -> None:
    frame = pl.DataFrame({"num_gpus": [[1], [2]], "model": ["tiny", "tiny"]})
    found = resolve_rows(TOY, CONFIGURATIONS, frame, TOY_CATALOG, PUBLISHED)
    assert not found.is_good.any()
    assert [(one.row, one.column) for one in found.refusals] == [(None, "num_gpus")]
    assert found.columns == {}
    assert {len(column) for column in evaluate_rows(found).values()} == {0}


@pytest.mark.usefixtures("toy")
def test_every_estimator_evaluates_what_it_resolves() -> None:
    for estimator in registry.all_estimators():
        relation = estimator.relations[0]
        found = resolve_rows(estimator, relation, {}, packaged_catalog(), PUBLISHED)
        results = evaluate_rows(found)
        assert results.keys() == {*relation.outputs}
        expected = int(found.is_good.sum())
        assert {len(column) for column in results.values()} == {expected}
        assert bool(found.refusals) != bool(expected), estimator.name


# ---- variants ----

ALL = frozenset(ROOFLINE.mends)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("published", (PUBLISHED,)),
        ("corrected", (ALL,)),
        ("both", (PUBLISHED, ALL)),
        ("R2", (frozenset({"R2"}),)),
        (" R4, R2,", (frozenset({"R2", "R4"}),)),
        (",".join(ROOFLINE.mends), (ALL,)),
    ],
)
def test_a_variant_is_a_word_or_a_list_of_errata(text: str, expected: tuple[Mends, ...]) -> None:
    assert parse_variants(ROOFLINE, text) == expected
    assert variants_of_options(ROOFLINE, text, None) == expected


def test_each_erratum_alone_lies_between_published_and_corrected() -> None:
    alone = tuple(frozenset({name}) for name in ROOFLINE.mends)
    assert parse_variants(ROOFLINE, "each") == (PUBLISHED, *alone, ALL)
    without = registry.get("linear_layer")
    assert without.mends == ()
    assert parse_variants(without, "each") == (PUBLISHED,)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("all", '`variant` "all" is not known\nhint: use published, corrected'),
        ("", '`variant` "" is not known'),
        (3, "`variant` 3 is not known"),
        ("R2,R99", '`mends` "R99" is not a mend of roofline\nhint: known: R1, R2'),
        ("R2,R2", '`mends` "R2" is given twice'),
    ],
)
def test_other_texts_are_refused_alike(text: object, says: str) -> None:
    for parse in (parse_variant, parse_variants):
        with pytest.raises(RefusedError) as caught:
            parse(ROOFLINE, text)
        assert str(caught.value).startswith(says)


def test_a_refusal_lists_the_words_that_its_caller_takes() -> None:
    for parse, words in ((parse_variants, ", both, each, or"), (parse_variant, ", or")):
        with pytest.raises(RefusedError) as caught:
            parse(ROOFLINE, "all")
        assert f"hint: use published, corrected{words} errata" in str(caught.value)


@pytest.mark.parametrize(
    ("text", "mends"),
    [("Corrected", ALL), (" PUBLISHED ", PUBLISHED), ("r2, R1", frozenset({"R1", "R2"}))],
)
def test_capitals_of_a_variant_do_not_matter(text: str, mends: frozenset[str]) -> None:
    assert parse_variant(ROOFLINE, text) == mends
    assert parse_variants(ROOFLINE, text) == (mends,)
    assert parse_variants(ROOFLINE, "Both") == parse_variants(ROOFLINE, "both")


@pytest.mark.parametrize("text", ["both", "each"])
def test_one_variant_is_not_several(text: str) -> None:
    with pytest.raises(RefusedError, match=f'"{text}" names several variants'):
        parse_variant(ROOFLINE, text)
    with pytest.raises(UsageError, match=f"`--variant` {text} names several variants"):
        mends_of_options(ROOFLINE, text, None)


@pytest.mark.parametrize("parse", [mends_of_options, variants_of_options])
@pytest.mark.parametrize(
    ("variant", "mend", "says"),
    [
        ("published", "R1", "`--mend` and `--variant` exclude each other"),
        (None, " , ", "names no erratum"),
        (None, "R99", "`--mend` R99 is not a mend of roofline"),
        (None, "published", "`--mend` published is not a mend of roofline"),
        ("nonsense", None, "`--variant` nonsense is not known"),
    ],
)
def test_options_say_what_is_wrong_with_them(
    parse: Callable[..., object], variant: str | None, mend: str | None, says: str
) -> None:
    with pytest.raises(UsageError, match=says):
        parse(ROOFLINE, variant, mend)


def test_without_options_every_erratum_is_mended() -> None:
    assert mends_of_options(ROOFLINE, None, None) == ALL
    assert variants_of_options(ROOFLINE, None, None) == (ALL,)
    assert mends_of_options(ROOFLINE, None, "R3,R1") == frozenset({"R1", "R3"})
