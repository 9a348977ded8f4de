"""Columns of experts as they are run: how tokens reach them, and how evenly."""

from __future__ import annotations

from estimators.columns.column import Column, count, positive, text
from estimators.columns.forms import BYTES_OF_ELEMENT

DISPATCHERS = ("alltoall", "allgather", "flex")
"""Values of `dispatcher`."""

ROUTINGS = ("balanced", "power_law_1.01", "power_law_1.2")
"""Values of `expert_routing`."""

EXPERTS = (
    text(
        "dispatcher",
        "How tokens reach their experts: a copy for each expert (alltoall), all tokens to all "
        "ranks (allgather), or a copy for each node and rank that needs it (flex, as DeepEP)",
        *DISPATCHERS,
    ),
    Column(
        "dispatch_element_bytes",
        "float",
        "bytes",
        "Bytes of an element of a token on its way to the experts; results come back in 16 bits",
        minimum=0.5,
        maximum=4,
        shown_as=BYTES_OF_ELEMENT,
    ),
    Column(
        "expert_load_ratio",
        "float",
        "",
        "Tokens of the rank of experts that has most, over the mean; 1: balanced",
        minimum=1,
        maximum=1e4,
    ),
    text(
        "expert_routing",
        "How evenly tokens choose experts: balanced, or by a power law of exponent 1.01 or 1.2; "
        "the fullest rank has at least `expert_load_ratio` times the mean",
        *ROUTINGS,
    ),
    Column(
        "overlaps_shared_experts",
        "bool",
        "",
        "Whether shared experts run during the exchange of tokens with routed experts",
    ),
    Column(
        "overlaps_expert_comm",
        "bool",
        "",
        "Whether tokens of one microbatch travel during the arithmetic of another",
    ),
    Column(
        "framework_release",
        "float",
        "",
        "Release of the program, a year and a month as 26.04, if it is not the newest",
        minimum=15,
        maximum=99,
    ),
)
"""Inputs of a problem."""

EXPERT_DEFAULT = (
    text(
        "expert_default",
        "Framework, after @ the accelerator, the model and the recipe that differ from it; after "
        "a space, until which release",
    ),
    Column("before_release", "float", "", "First release that differs", minimum=15, maximum=99),
)
"""Columns of the table of defaults."""

EXPERT_LOAD = (
    text("expert_load", "Key of a load: routing, number of experts and of their ranks, @ between"),
    positive(
        "lowest_load_ratio", "", "`expert_load_ratio` below which a tenth of the kernels lies"
    ),
    positive(
        "highest_load_ratio", "", "`expert_load_ratio` above which a tenth of the kernels lies"
    ),
    count("num_kernels", "Number of measured kernels whose median a figure is"),
)
"""Columns of the table of measured loads."""
