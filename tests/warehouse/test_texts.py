"""Records given as texts: each is read as in a frame, and without polars."""

from __future__ import annotations

import subprocess
import sys

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from estimators.registry import get
from warehouse.evaluate.frames import read_columns
from warehouse.evaluate.texts import read_texts

RELATION = get("training_step").relations[0]
NAMES = ("model", "uses_glu", "num_gpus", "power_limit_watts", "precision", "schedule")

ODD = (
    *("", " ", "1_000", " 5 ", "5\x1c", "٣", "inf", "-Infinity", "NaN", "1e400", "1e-400", "0x1"),
    *("bf16", " BF-16", "FP8", "1F1B", "Zero Bubble", "true", "No", "1.0", "-0", "5.", ".5"),
    "\u20035",
)
TEXTS = st.one_of(
    st.sampled_from(ODD),
    st.text(alphabet="0123456789.eE+-_ \t\u2003\x1cnaifty", max_size=6),
)


@given(st.lists(st.tuples(*[TEXTS] * len(NAMES)), min_size=1, max_size=4))
def test_texts_are_read_as_in_a_frame(rows: list[tuple[str, ...]]) -> None:
    records = [dict(zip(NAMES, row, strict=True)) for row in rows]
    columns, refusals = read_texts(records, NAMES, RELATION)
    frame = pl.DataFrame(records, schema=dict.fromkeys(NAMES, pl.String))
    expected, refused = read_columns(frame, NAMES, RELATION)
    assert [str(one) for one in refusals] == [str(one) for one in refused]
    for name in NAMES:
        assert repr(columns[name].tolist()) == repr(expected[name].tolist()), name


@pytest.mark.parametrize("command", ["plan", "rank"])
def test_a_stored_answer_needs_no_polars(command: str) -> None:
    modules = {"plan": "warehouse.plan.run", "rank": "warehouse.ask.rank"}
    program = (
        f"import sys, {modules[command]}; "
        "sys.exit([name for name in ('polars', 'pyarrow') if name in sys.modules] or None)"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")
