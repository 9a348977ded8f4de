"""Estimates beside published measurements, as `validate` and `quickstart` show them."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from warehouse.cli.common import fetched, put_for_people

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

_ACCURACY = """\
select
    reference, estimator, variant, num_rows, mean_absolute_relative_error,
    max_absolute_relative_error, bias, spearman_correlation,
    baseline_mean_absolute_relative_error
from estimator_accuracy
order by reference, estimator, variant"""

_COMPARISON = """\
select
    model, num_gpus, tensor_parallel, pipeline_parallel, data_parallel, microbatch_size,
    virtual_pipeline, estimator, variant, published_flops_per_second_per_gpu,
    predicted_flops_per_second_per_gpu, published_step_seconds, step_seconds, relative_error
from megatron_comparison
order by estimator, variant, num_gpus, model"""


def show_comparison(connection: DuckDBPyConnection) -> None:
    """Print the errors per estimator and variant, then every published run."""
    heading("Error of the predicted FLOP/s; the baseline is the mean of the other published rows")
    put_for_people(*fetched(connection, _ACCURACY))
    heading("Published and predicted FLOP/s and step of Megatron's configurations")
    put_for_people(*fetched(connection, _COMPARISON))


def heading(text: str) -> None:
    """Print the heading of a section of stdout."""
    sys.stdout.write(f"\n{text}\n\n")
