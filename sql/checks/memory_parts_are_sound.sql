-- Memory of a GPU, or a part of it, that is negative or not finite.
select
    estimator,
    variant,
    problem_id,
    cell_id,
    weights_bytes,
    gradients_bytes,
    optimizer_bytes,
    activations_bytes,
    logits_bytes,
    gathered_bytes,
    unused_bytes,
    library_bytes,
    framework_bytes,
    memory_bytes
from configuration_source
where
    not isfinite(memory_bytes)
    or memory_bytes < 0
    or not isfinite(weights_bytes)
    or weights_bytes < 0
    or not isfinite(gradients_bytes)
    or gradients_bytes < 0
    or not isfinite(optimizer_bytes)
    or optimizer_bytes < 0
    or not isfinite(activations_bytes)
    or activations_bytes < 0
    or not isfinite(logits_bytes)
    or logits_bytes < 0
    or not isfinite(gathered_bytes)
    or gathered_bytes < 0
    or not isfinite(unused_bytes)
    or unused_bytes < 0
    or not isfinite(library_bytes)
    or library_bytes < 0
    or not isfinite(framework_bytes)
    or framework_bytes < 0
