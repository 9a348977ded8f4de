"""Columns of linear_layer and run_optimizer, and of the view that compares their searches."""

from __future__ import annotations

from estimators.columns.column import Column, count, measure, positive, text
from estimators.columns.forms import DAYS, UTILIZATION
from estimators.columns.layout import best_of

_RESOURCES = {
    "compute": "arithmetic",
    "memory": "memory traffic",
    "network": "communication",
}
_PHASES = {
    "boundary": "the first layer, its gradients reduced",
    "sustained_dp": "the other layers, while gradients are reduced",
    "sustained_no_dp": "one layer's other microbatches",
    "bubble": "idle stages",
}

OPTIMIZER = (
    positive("input_size", "", "Input width of a linear layer"),
    positive("output_size", "", "Output width of a linear layer"),
    Column("tensor_parallel_input", "float", "", "Degree over a layer's input width", minimum=1),
    Column("tensor_parallel_output", "float", "", "Degree over a layer's output width", minimum=1),
    measure("forward_backward_seconds", "seconds", "Forward and backward pass of one layer"),
    Column(
        "training_flops", "float", "FLOP", "FLOPs of the run", above=0, minimum=1e12, maximum=1e40
    ),
    positive("batch_tokens", "tokens", "Tokens of one batch"),
    Column("reduces_in_network", "bool", "", "Whether the network's switches do the reduction"),
    count("gpus_per_device", "GPUs of one device of table device", "GPUs"),
    Column(
        "max_num_gpus",
        "float",
        "devices",
        "Largest number of devices on the greedy path",
        minimum=1,
        maximum=1e9,
    ),
    Column("path_step", "int", "", "Step of the greedy path: multiplications done", minimum=0),
    text(
        "tie_rule",
        "Which of several equally good candidates a greedy path takes",
        *("first", "last", "most_microbatches"),
    ),
    *(
        measure(f"{phase}_{resource}_seconds", "seconds", f"{words.capitalize()} of {what}")
        for phase, what in _PHASES.items()
        for resource, words in _RESOURCES.items()
    ),
    measure(
        "path_num_gpus", "devices", "Devices of the path's last step with at most num_gpus devices"
    ),
    measure(
        "path_utilization", "", "utilization at that step of the greedy path", shown_as=UTILIZATION
    ),
    measure("path_training_seconds", "seconds", "training_seconds at that step", shown_as=DAYS),
    measure("best_utilization", "", "utilization of the best layout", shown_as=UTILIZATION),
    *(
        positive(f"path_{name}", "", f"{name} of that step of the greedy path")
        for name in (
            *("pipeline_parallel", "data_parallel", "tensor_parallel"),
            *("tensor_parallel_external", "num_microbatches"),
        )
    ),
    best_of("num_microbatches", "num_microbatches of the best whole-number degrees"),
    count("best_num_gpus", "Devices that the best whole-number degrees use", heading="best GPUs"),
    measure("training_ratio", "", "path_training_seconds over best_training_seconds"),
)
