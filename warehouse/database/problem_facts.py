"""Table `stored_problem`: the facts that follow from a problem and the reference tables.

They are the names of problems, their differences from the tables, and groups to compare. Views
`problem_model`, `problem_system`, `problem_product`, `problem_assumption`, `changed_constant` and
`recipe_default` show them and say what each means.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from math import inf
from typing import TYPE_CHECKING, Any

from warehouse.database.sql_text import iterate_rows, registered, view_exists
from warehouse.database.tables import STORED_PROBLEM
from warehouse.database.views import FOUND_PROBLEM

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from duckdb import DuckDBPyConnection

Row = Mapping[str, Any]

PROBLEM_GROUP = "problem_group"
"""View by which all others read the facts."""

_NO_ROW: Row = {}

_COMPARED_SIZES = (
    *("num_layers", "hidden_size", "ffn_hidden_size", "uses_glu", "num_heads", "num_kv_heads"),
    *("seq_len", "vocab_size", "num_experts", "experts_per_token"),
)
"""Sizes whose differences from table `model` follow the name of a model."""

_SIZES = (
    *("num_layers", "hidden_size", "ffn_hidden_size", "internal_size", "uses_glu", "num_heads"),
    *("num_kv_heads", "multi_query_attention", "head_size", "num_experts", "experts_per_token"),
    *("expert_ffn_hidden_size", "num_shared_experts", "num_dense_layers", "moe_period"),
    *("shared_ffn_hidden_size", "num_mtp_layers", "route_groups", "route_groups_kept"),
    *("q_lora_rank", "kv_lora_rank", "qk_head_size", "qk_rotary_size", "v_head_size"),
    *("attention_window", "window_period", "uses_chunked_attention", "uses_qk_norm"),
    *("uses_attention_sinks", "uses_linear_bias", "uses_gate_clamp", "uses_yarn"),
    *("uses_router_bias", "uses_post_norm", "other_layer_parameters", "seq_len", "vocab_size"),
)
"""Sizes that identify a model."""

_COUNTS = ("parameters", "active_parameters", "training_flops")
"""Numbers that identify a model of which an estimator knows no more."""

_PLAIN_SIZES: Row = {
    **dict.fromkeys(("moe_period", "route_groups"), 1),
    **dict.fromkeys(("num_mtp_layers", "q_lora_rank", "kv_lora_rank", "qk_rotary_size"), 0),
    **dict.fromkeys(("attention_window", "window_period"), 0),
    **dict.fromkeys(("uses_chunked_attention", "uses_qk_norm", "uses_attention_sinks"), False),
    **dict.fromkeys(("uses_gate_clamp", "uses_yarn", "uses_router_bias", "uses_post_norm"), False),
    "other_layer_parameters": 0,
}
"""Size -> its value in models without that feature; their shapes leave it out."""

_PUBLISHED = {
    "matrix_flops_per_second": ("bf16_flops_per_second",),
    "vector_flops_per_second": (),
    "peak_flops_per_second": ("bf16_flops_per_second", "fp8_flops_per_second"),
    "fp8_flops_per_second": ("fp8_flops_per_second",),
    "fp4_flops_per_second": ("fp4_flops_per_second",),
    "flops_8bit_per_second": ("fp8_flops_per_second",),
    "cluster_flops_per_second": (),
    "hbm_bytes_per_second": ("hbm_bytes_per_second",),
    "memory_bytes_per_second": ("hbm_bytes_per_second",),
    "hbm_bytes": ("hbm_bytes", "device_bytes"),
    "nvlink_bytes_per_second": ("nvlink_bytes_per_second",),
    "network_bytes_per_second": ("nic_bytes_per_second",),
    "nics_per_gpu": (),
    "nvlink_efficiency": (),
    "nvlink_latency_seconds": (),
    "network_efficiency": (),
    "network_latency_seconds": (),
    "flops_efficiency": (),
    "launch_seconds": (),
}
"""Attribute of a system -> columns of table `accelerator` with published figures of it."""

_OF_EFFICIENCIES = (
    *("nvlink_efficiency", "nvlink_latency_seconds", "network_efficiency"),
    *("network_latency_seconds", "launch_seconds"),
)
"""Attributes that count where an estimator takes all efficiencies from table `system`."""

_OF_ACCELERATOR = {
    "num_sms": "num_sms",
    "power_limit_watts": "tdp_watts",
    "nvlink_size": "gpus_per_node",
    "matrix_flops_per_second": "bf16_flops_per_second",
    "hbm_bytes_per_second": "hbm_bytes_per_second",
    "nvlink_bytes_per_second": "nvlink_bytes_per_second",
    "network_bytes_per_second": "nic_bytes_per_second",
}
"""Rate or size of a problem -> its column in table `accelerator`."""

_OF_RECIPE = (
    *("overlapped_expert_fraction", "uses_cuda_graphs", "captures_attention"),
    *("captures_whole_steps", "quantizes_output_layer"),
)
"""Constants that a row of table `expert_default` may set."""

_DEFAULTS: Row = {
    "framework": "megatron_core",
    "profile": "default",
    "precision": "bf16",
    "recompute_modules": "none",
    "bytes_per_element": 2,
    "precision_bits": 8,
    "source_version": "current",
    "base_utilization": 0.8,
    "internal_ratio": 5,
    "reduces_in_network": True,
    "sequential_attention_ffn": False,
    "forward_only": False,
    "network_bytes_per_element": 2,
}
"""Assumption -> its default, in the order in which they are listed."""

_BASE_UTILIZATION = {"current": 0.6, "readme": 1}
"""Version of the simulator of pipelines -> its default of `base_utilization`."""


def refresh_problems(connection: DuckDBPyConnection, profiles: Collection[str] = ()) -> None:
    """Bring table `stored_problem` up to date; call it in the transaction that changed problems.

    Facts of a problem with a profile also follow from its constants: `profiles` are those that were
    stored, changed or dropped.
    """
    if not connection.execute(view_exists(PROBLEM_GROUP)).fetchall():  # views of another directory
        return
    connection.execute(
        f"delete from {STORED_PROBLEM} where problem_id not in (select problem_id from problem)"
    )
    if profiles:
        connection.execute(
            f"delete from {STORED_PROBLEM} where problem_id in"
            " (select problem_id from problem where list_contains(?, profile))",
            [list(profiles)],
        )
    missing = f"from problem anti join {STORED_PROBLEM} using (problem_id)"
    _insert(connection, STORED_PROBLEM, missing)


def find_problems(connection: DuckDBPyConnection) -> None:
    """Make temporary table `FOUND_PROBLEM` with the facts of all problems."""
    empty = f"from {STORED_PROBLEM} limit 0"
    connection.execute(f"create or replace temp table {FOUND_PROBLEM} as {empty}")
    _insert(connection, FOUND_PROBLEM, "from problem")


def _insert(connection: DuckDBPyConnection, table: str, source: str) -> None:
    """Insert the facts of the problems that query `source` returns.

    An id is a hash of text, so that another release of DuckDB gives the same.
    """
    if connection.execute(f"select exists({source})").fetchall() == [(False,)]:
        return
    import pyarrow as pa  # readers do not wait for it

    references = References(connection)
    facts = pa.Table.from_pylist(list(map(references.facts_of, iterate_rows(connection, source))))
    with registered(connection, "fact", facts):
        connection.execute(f"""
            insert into {table} by name
            select * exclude (conditions, work)
            from (
                select
                    fact.*,
                    cast(struct_pack(*columns(problem.* exclude (
                        problem_id, num_gpus, num_clusters, max_num_gpus, nvlink_size
                    ))) as varchar) as conditions,
                    cast(row(
                        fact.model_shape, problem.global_batch_size, problem.num_gpus,
                        problem.num_clusters, problem.gpus_per_cluster, problem.dataset_tokens,
                        fact.assumptions
                    ) as varchar) as work,
                    text_id(concat_ws(' ', conditions, problem.nvlink_size)) as scaling_id,
                    text_id(conditions) as capacity_id,
                    text_id(work) as workload_id
                from fact
                inner join problem on fact.problem_id = problem.problem_id
            )
        """)


class References:
    """The reference tables with which problems are compared, and the constants of profiles."""

    def __init__(self, connection: DuckDBPyConnection) -> None:
        def table(name: str) -> dict[Any, Row]:
            """Return the rows of a table by their first column."""
            rows = iterate_rows(connection, f"from {name}")
            return {next(iter(row.values())): row for row in rows}

        self._models, self._systems = table("model"), table("system")
        self._devices, self._accelerators = table("device"), table("accelerator")
        self._aliases = {n: row["accelerator"] for n, row in table("accelerator_alias").items()}
        self._clusters = table("named_cluster")
        priced_as = {name: row["priced_as"] for name, row in table("priced_as").items()}
        names = {name: name for name in self._accelerators}
        names |= {name: row["based_on"] for name, row in self._clusters.items()}
        self._products: dict[Any, str] = priced_as | self._aliases | names
        self._constants: dict[tuple[str | None, str | None], dict[str, Any]] = {}
        for row in table("step_constant").values():
            place = self._constants.setdefault((row["framework"], row["accelerator"]), {})
            place[row["constant"]] = row["constant_value"]
        self._constant_names = {name for place in self._constants.values() for name in place}
        self._recipe_constants: dict[tuple[str, str], dict[str, Any]] = {}
        for row in table("recipe_constant").values():
            place = self._recipe_constants.setdefault((row["framework"], row["number_recipe"]), {})
            place[row["constant"]] = row["constant_value"]
        self._release_constants = list(table("release_constant").values())
        self._recipes: dict[str, list[Row]] = {}
        for name, row in table("expert_default").items():
            self._recipes.setdefault(name.partition(" until ")[0], []).append(row)
        # the key of a constant is its column, then @ and the accelerator or framework
        self._of_profiles = {
            (row["profile"], row["step_constant"].partition("@")[0], row["fitted_constant_value"])
            for row in iterate_rows(connection, "from calibration")
        }

    def facts_of(self, problem: Row) -> dict[str, Any]:
        """Return the facts of a problem, but for the ids of its groups."""
        is_known, differences = self._system(problem)
        product, recipe, changed = None, _NO_ROW, []
        if problem["framework"] is not None:
            product = self._product(problem)
            recipe = self._recipe(problem, product or problem["accelerator"])
            changed = self._changed_constants(problem, product or problem["accelerator"], recipe)
        names = {row["constant_name"] for row in changed}
        return {
            "problem_id": problem["problem_id"],
            "model": _model_name(problem, self._models.get(problem["model"])),
            "model_shape": _model_shape(problem),
            "is_published_system": not differences if is_known else None,
            "system_changes": differences or None,
            "product": product,
            "expert_default": recipe.get("expert_default"),
            "recompute_modules": recipe.get("recompute_modules"),
            "assumptions": self._assumptions(problem, recipe, changed) or None,
            "changed_constants": changed,
            "num_changed_constants": len(names),
            "num_changed_step_constants": len(names & self._constant_names),
        }

    def _system(self, problem: Row) -> tuple[bool, str]:
        """Return whether a table has the system, and its attributes that are not as published."""
        name, is_simulated = problem["accelerator"], problem["flops_8bit_per_second"] is not None
        system = self._systems.get(self._aliases.get(name, name), _NO_ROW)
        device = self._devices.get(name, _NO_ROW) if is_simulated else _NO_ROW
        accelerator = self._machine(name)
        is_known = bool(system or device or accelerator)
        published = _published(problem, system, device, accelerator)
        differences = {
            attribute: _digits(problem[attribute])
            for attribute, figures in published.items()
            if not is_known or (figures and problem[attribute] not in figures)
        }
        return is_known, _listed(differences)

    def _machine(self, name: str | None) -> Row:
        """Return the row of an accelerator; of a named cluster its accelerator's, with its own."""
        row = self._accelerators.get(self._products.get(name), _NO_ROW)
        cluster = self._clusters.get(name, _NO_ROW)
        own = {column: cluster.get(attribute) for attribute, column in _OF_ACCELERATOR.items()}
        own |= dict.fromkeys(("hbm_bytes", "device_bytes"), cluster.get("hbm_bytes"))
        own["pair_ring_share"] = cluster.get("pair_ring_share")
        return {**row, **{column: value for column, value in own.items() if value is not None}}

    def _product(self, problem: Row) -> str | None:
        """Return the product of an accelerator; of an unknown one the product most like it.

        A user's system may be based on a product, but its problems do not name it.
        """
        name = problem["accelerator"]
        product = self._products.get(name)
        if name is None or product is not None:
            return product
        candidates: list[str | None] = [None]
        if problem["num_sms"] is not None:
            products = self._accelerators.items()
            candidates += sorted(n for n, row in products if row["num_sms"] == problem["num_sms"])

        def differences(product: str | None) -> tuple[int, int]:
            usual = self._usual_constants(problem["framework"], product)
            row = self._accelerators.get(product, _NO_ROW)
            machine = {name: row.get(column) for name, column in _OF_ACCELERATOR.items()}
            machine.pop("num_sms", None)  # which each of them shares
            constants, attributes = (
                sum(problem.get(name) != value for name, value in each.items())
                for each in (usual, machine)
            )
            return constants, attributes

        return min(candidates, key=differences)

    def _usual_constants(self, framework: str, accelerator: str | None) -> dict[str, Any]:
        """Return the constants of table `step_constant`; the most specific row counts."""
        usual: dict[str, Any] = {}
        places = ((None, None), (None, accelerator), (framework, None), (framework, accelerator))
        for place in places:
            usual |= self._constants.get(place, {})
        return usual

    def _recipe(self, problem: Row, accelerator: str | None) -> Row:
        """Return the row of table `expert_default` that holds for a problem.

        The row lacks parts that the problem cannot recompute.
        """
        names = (problem["framework"], accelerator, problem["model"], problem["number_recipe"])
        release = inf if problem["framework_release"] is None else problem["framework_release"]
        for length in (4, 3, 2, 1):
            place = "@".join(filter(None, names[:length]))
            limits = {row["before_release"] or inf: row for row in self._recipes.get(place, ())}
            later = [limit for limit in limits if release < limit or limit == inf]
            if not later:
                continue
            recipe = dict(limits[min(later)])
            modules = recipe["recompute_modules"] or ""
            has_latents = bool(problem["kv_lora_rank"])
            is_delayed = problem["number_recipe"] == "delayed"
            if ("mla_up_proj" in modules and not has_latents) or (
                is_delayed and re.search("layernorm|moe_act", modules)
            ):
                recipe["recompute_modules"] = None
            return recipe
        return _NO_ROW

    def _changed_constants(
        self, problem: Row, accelerator: str | None, recipe: Row
    ) -> list[dict[str, Any]]:
        """Return constants, rates and sizes that differ from the tables, with both values."""
        framework = problem["framework"]
        usual = self._usual_constants(framework, accelerator)
        # least specific first; dense models capture no graphs unless the recipe of the model does
        release = inf if problem["framework_release"] is None else problem["framework_release"]
        settings = {
            row["constant"]: row["constant_value"]
            for row in self._release_constants
            if row["framework"] == framework and release < row["before_release"]
        }
        settings |= self._recipe_constants.get((framework, problem["number_recipe"]), {})
        if (problem["num_experts"] or inf) <= 1:
            settings["uses_cuda_graphs"] = 0
        settings |= {name: recipe[name] for name in _OF_RECIPE if recipe.get(name) is not None}
        usual |= {name: value for name, value in settings.items() if name in usual}
        own = problem["accelerator"]
        if row := self._machine(own if own in self._clusters else accelerator):
            usual |= {name: row[column] for name, column in _OF_ACCELERATOR.items()}
            usual["hbm_bytes"] = row["device_bytes"] or row["hbm_bytes"]  # the driver's size counts
            usual |= {name: row[name] for name in ("pair_ring_share",) if name in row}
        return [
            {
                "constant_name": name,
                "expected_value": _number(usual[name]),
                "given_value": _number(problem.get(name)),
            }
            for name in sorted(usual)
            if usual[name] != problem.get(name)
        ]

    def _assumptions(self, problem: Row, recipe: Row, changed: Sequence[Row]) -> str:
        """Return the assumptions of a problem that are no defaults; a profile covers its own."""
        usual = {**_DEFAULTS, "recompute_modules": recipe.get("recompute_modules") or "none"}
        utilization = _BASE_UTILIZATION.get(problem["source_version"], usual["base_utilization"])
        usual["base_utilization"] = utilization
        given = {name: problem[name] for name in usual if problem[name] != usual[name]}
        if "precision_bits" in given:
            given["precision_bits"] = _short(given["precision_bits"])
        rate = "achieved_flops_per_second_per_gpu"
        if problem[rate] != problem["matrix_flops_per_second"]:
            given[rate] = _digits(problem[rate])
        for row in changed:
            name, value = row["constant_name"], row["given_value"]
            is_fitted = (problem["profile"], name, value) in self._of_profiles
            if not is_fitted and (name == "num_sms" or name in self._constant_names):
                given[name] = _short(value)
        return _listed(given)


def _model_name(problem: Row, known: Row | None) -> str | None:
    """Return the name of a model with its differences from its row, or a description of it."""
    if problem["model"] is not None:
        usual = {"num_experts": 1, "experts_per_token": 1}
        usual |= {name: value for name, value in (known or _NO_ROW).items() if value is not None}
        differences = {
            name: problem[name]
            for name in _COMPARED_SIZES
            if problem[name] != usual.get(name)
            and (name in usual or (name == "vocab_size" and known))
        }
        return " with ".join(filter(None, (problem["model"], _listed(differences))))
    if problem["parameters"] is not None:
        active = problem["active_parameters"]
        return f"{problem['parameters'] / 1e9:g}B parameters" + (
            "" if active in (None, problem["parameters"]) else f", {active / 1e9:g}B active"
        )
    if problem["num_layers"] is None:
        flops = problem["training_flops"]
        return None if flops is None else f"{flops:g} FLOPs"
    width = _first(problem["ffn_hidden_size"], problem["internal_size"])
    experts, chosen = problem["num_experts"] or 1, problem["experts_per_token"]
    sizes: tuple[Any, ...] = (
        problem["hidden_size"] and f"{problem['num_layers']} x {problem['hidden_size']}",
        width and f"ffn {width}",
        _first(problem["uses_glu"], problem["use_glu"]) and "gated",
        experts > 1 and f"{experts} experts",
        experts > 1 and chosen and f"{chosen} a token",
    )
    return ", ".join(filter(None, sizes))


def _model_shape(problem: Row) -> str:
    """Return every size that identifies the model of a problem."""
    sizes = {name: problem[name] for name in _SIZES}
    sizes["uses_glu"] = _first(problem["uses_glu"], problem["use_glu"])
    sizes |= {name: _digits(problem[name]) for name in _COUNTS}
    plain = {
        **_PLAIN_SIZES,
        **dict.fromkeys(("qk_head_size", "v_head_size"), problem["head_size"]),
        "route_groups_kept": problem["route_groups"],
        "shared_ffn_hidden_size": (problem["num_shared_experts"] or 0)
        * (problem["expert_ffn_hidden_size"] or 0),
        "uses_linear_bias": None if problem["uses_glu"] is None else not problem["uses_glu"],
    }
    return _listed({name: size for name, size in sizes.items() if size != plain.get(name)})


def _published(problem: Row, system: Row, device: Row, accelerator: Row) -> dict[str, set[float]]:
    """Return for each attribute of a system its published figures."""
    figures: dict[str, list[float | None]] = {
        attribute: [system.get(attribute), *map(accelerator.get, columns)]
        for attribute, columns in _PUBLISHED.items()
    }
    rate, of_cluster = system.get("matrix_flops_per_second"), problem["cluster_flops_per_second"]
    figures["peak_flops_per_second"].append(rate)
    if rate is not None and problem["gpus_per_cluster"] is not None:
        peak = problem["gpus_per_cluster"] * rate
        # any rate up to that of its accelerators may be achieved
        is_below = of_cluster is not None and of_cluster <= (1 + 1e-9) * peak
        figures["cluster_flops_per_second"] = [of_cluster if is_below else peak]
    if accelerator.get("nic_bytes_per_second") is not None:
        figures["nics_per_gpu"].append(1)
    if accelerator.get("bf16_flops_per_second") is not None:
        figures["flops_8bit_per_second"].append(2 * accelerator["bf16_flops_per_second"])
    if device:
        figures["flops_8bit_per_second"] = [device["flops_8bit_per_second"]]
        if device["memory_bytes_per_second"] is not None:
            figures["memory_bytes_per_second"] = [device["memory_bytes_per_second"]]
    if problem["source_version"] == "readme":
        figures["network_bytes_per_second"] = [device.get("readme_network_bytes_per_second")]
    elif problem["flops_8bit_per_second"] is not None:
        figures["network_bytes_per_second"] = [device.get("network_bytes_per_second")]
    if problem["flops_efficiency"] is None:
        figures |= {attribute: [] for attribute in _OF_EFFICIENCIES}
    return {
        name: {value for value in values if value is not None} for name, values in figures.items()
    }


def _listed(values: Row) -> str:
    """Return the known values, each after its name, with commas between."""
    texts = {n: str(v).lower() if isinstance(v, bool) else v for n, v in values.items()}
    return ", ".join(f"{name} {text}" for name, text in texts.items() if text is not None)


def _first(*values: Any) -> Any:
    """Return the first value that is known."""
    return next((value for value in values if value is not None), None)


def _digits(value: float | None) -> str | None:
    """Return a number with all its digits."""
    return None if value is None else f"{value:.17g}"


def _short(value: float | None) -> str | None:
    """Return a number without the zero of a whole one."""
    return None if value is None else str(value).removesuffix(".0")


def _number(value: float | None) -> float | None:
    return None if value is None else float(value)
