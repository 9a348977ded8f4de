"""Different values of a column, as `numpy.unique` finds them, without what it imports."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest
from numpy.typing import ArrayLike

from estimators.factored import distinct


@pytest.mark.parametrize(
    "values",
    [
        [],
        [3, 1, 3, 2],
        [np.nan, 1.0, np.nan, 1.0, np.inf],
        np.int64(5),
        [[2, 1], [1, 0]],
        ["b", "a"],
    ],
    ids=str,
)
def test_they_are_those_that_numpy_finds(values: ArrayLike) -> None:
    assert distinct(values).tolist() == pytest.approx(
        np.unique(np.array(values)).tolist(), nan_ok=True
    )


def test_masked_arrays_are_not_imported() -> None:
    code = """if True:
        import sys
        from estimators.factored import distinct
        distinct([2, 1, 2])
        sys.exit("numpy.ma" in sys.modules)
    """
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
