"""Explore a warehouse: days, dollars and energy of stored runs, as sliders move.

A marimo notebook. `warehouse explore` opens it; so does

    marimo run examples/explore.py -- --db DATABASE

It reads the database and writes nothing. Each query opens the file and closes it again, so that an
open notebook keeps no sweep from writing. To change a copy: `warehouse explore --edit`.
"""

import marimo

app = marimo.App(width="medium", app_title="Explore a training warehouse")

with app.setup:
    import altair as alt
    import marimo as mo
    import polars as pl

    from warehouse import Warehouse
    from warehouse.errors import WarehouseError
    from warehouse.plot import parts
    from warehouse.plot.registry import filtered, parameters_of, plot_named
    from warehouse.plot.theme import DARK, LIGHT

    FILL = "warehouse sweep gpt3_1T_1d"


@app.cell
def _():
    _given = mo.cli_args()
    _path = _given.get("db")
    warehouse = Warehouse(str(_path) if _path else None)
    return (warehouse,)


@app.cell
def _():
    theme = DARK if mo.app_meta().theme == "dark" else LIGHT
    return (theme,)


@app.cell
def _():
    # Leading rows have the fastest layouts of every problem: no need to read all rows.
    fitting = """
    from leading_configuration as layout
    inner join problem_group as problem on layout.problem_id = problem.problem_id
    where
        layout.fits_memory is distinct from false
        and layout.step_seconds is not null
        and problem.num_gpus is not null
        and problem.step_tokens is not null
        and problem.accelerator is not null
        and coalesce(problem.system_changes, '') = ''
    """
    return (fitting,)


@app.cell
def _(fitting, warehouse):
    def _read():
        """Return the systems that are stored, or a sentence on what to do."""
        try:
            found = warehouse.sql(
                f"""
                with systems as (
                    select
                        problem.model, problem.accelerator, layout.estimator, layout.variant,
                        problem.global_batch_size, problem.seq_len,
                        coalesce(problem.assumptions, '') as assumptions, problem.nvlink_size,
                        list(distinct problem.num_gpus order by problem.num_gpus) as gpu_counts
                    {fitting}
                    group by all
                )

                select systems.*
                from systems
                left join accelerator_spelling as named on systems.accelerator = named.spelling
                left join accelerator as sold on named.accelerator = sold.accelerator
                order by
                    len(systems.gpu_counts) desc,
                    -- the domain of the product comes first
                    coalesce(systems.nvlink_size <> sold.gpus_per_node, false),
                    systems.*
                """
            )
        except WarehouseError as error:
            return None, f"```\n{error}\n```"
        if found.is_empty():
            command = f"{FILL} --db '{warehouse.path}'"
            return None, f"**No run is stored yet.** Store some:\n\n```\n{command}\n```"
        return found, None

    stored, _trouble = _read()
    mo.stop(_trouble is not None, mo.callout(mo.md(_trouble or ""), kind="warn"))
    mo.md(f"# Stored runs\n\nThe fastest layouts in `{warehouse.path}`, at your prices.")
    return (stored,)


@app.cell
def _(stored):
    _models = stored["model"].unique(maintain_order=True).to_list()
    model = mo.ui.dropdown(_models, value=_models[0], label="Model")
    return (model,)


@app.cell
def _(model, stored):
    of_model = stored.filter(pl.col("model") == model.value)
    _accelerators = of_model["accelerator"].unique(maintain_order=True).to_list()
    accelerator = mo.ui.dropdown(_accelerators, value=_accelerators[0], label="Accelerator")
    return accelerator, of_model


@app.cell
def _(accelerator, of_model):
    _systems = {
        f"{row['estimator']}, {row['variant']}: {row['global_batch_size']:,} sequences of "
        f"{row['seq_len']:,}"
        + (f", {row['assumptions']}" if row["assumptions"] else "")
        + (f", NVLink domains of {row['nvlink_size']}" if row["nvlink_size"] else ""): row
        for row in of_model.filter(pl.col("accelerator") == accelerator.value).to_dicts()
    }
    system = mo.ui.dropdown(
        _systems, value=next(iter(_systems)), label="Estimate, batch and domain"
    )
    return (system,)


@app.cell
def _(accelerator, model, system):
    mo.hstack([model, accelerator, system], justify="start", gap=2, wrap=True)
    return


@app.cell
def _(accelerator, warehouse):
    # Controls begin at published values: the price on demand, a hyperscaler's PUE, the last
    # industrial price of electricity in the United States.
    published = warehouse.sql(
        """
        select
            (
                select max_by(rate.usd_per_gpu_hour, rate.year)
                from gpu_hour_rate as rate
                inner join accelerator_spelling as named on rate.accelerator = named.accelerator
                where named.spelling = $accelerator and rate.basis = 'on_demand'
            ) as price,
            (select pue from facility_pue where facility = 'Hyperscaler (Epoch)') as pue,
            (
                select max_by(usd_per_kwh, year)
                from electricity_price
                where region = 'US industrial'
            ) as electricity_price
        """,
        accelerator=accelerator.value,
    ).row(0, named=True)
    return (published,)


@app.cell
def _(published, system):
    _gpu_counts = system.value["gpu_counts"]
    controls = mo.ui.dictionary(
        {
            "price": mo.ui.number(
                0.01,
                100,
                0.01,
                value=round(published["price"] or 2, 2),
                label="USD/GPU-hour"
                + (" (no published price)" if published["price"] is None else ""),
            ),
            "billion_tokens": mo.ui.number(1, 100_000, 1, value=1000, label="Billion tokens"),
            "goodput": mo.ui.slider(0.5, 1, 0.01, value=0.9, label="Goodput", show_value=True),
            "pue": mo.ui.slider(
                1, 2, 0.01, value=round(published["pue"], 2), label="PUE", show_value=True
            ),
            "electricity_price": mo.ui.slider(
                *(0, 0.4, 0.005),
                value=round(published["electricity_price"] / 0.005) * 0.005,
                label="USD/kWh",
                show_value=True,
            ),
            "mfu_percent": mo.ui.range_slider(
                0, 100, 1, value=[0, 100], label="MFU (%)", show_value=True
            ),
            "num_gpus": mo.ui.range_slider(
                steps=_gpu_counts if len(_gpu_counts) > 1 else _gpu_counts * 2,
                value=[_gpu_counts[0], _gpu_counts[-1]],
                label="GPUs",
                show_value=True,
            ),
        }
    )
    return (controls,)


@app.cell
def _(controls):
    # Natural widths: each label stays on the line of its control.
    mo.hstack(
        [
            mo.vstack([controls[name] for name in names])
            for names in (
                ("price", "billion_tokens"),
                ("goodput", "pue", "electricity_price"),
                ("mfu_percent", "num_gpus"),
            )
        ],
        justify="start",
        gap=2,
        wrap=True,
    )
    return


@app.cell
def _(controls, system):
    # The values of $name in the queries below.
    asked = {name: value for name, value in system.value.items() if name != "gpu_counts"}
    asked |= {
        name: controls.value[name] for name in ("price", "goodput", "pue", "electricity_price")
    }
    asked["tokens"] = controls.value["billion_tokens"] * 1e9
    asked["lowest_mfu"], asked["highest_mfu"] = (
        percent / 100 for percent in controls.value["mfu_percent"]
    )
    asked["fewest_gpus"], asked["most_gpus"] = controls.value["num_gpus"]
    return (asked,)


@app.cell
def _(asked, fitting, warehouse):
    runs = warehouse.sql(
        f"""
        with fastest as (
            select
                problem.accelerator, problem.num_gpus, layout.mfu, layout.memory_bytes,
                layout.data_parallel, layout.tensor_parallel, layout.pipeline_parallel,
                layout.slot_watts,
                ceil($tokens / problem.step_tokens) * layout.step_seconds / $goodput
                    as training_seconds
            {fitting}
                and problem.model = $model
                and problem.accelerator = $accelerator
                and layout.estimator = $estimator
                and layout.variant = $variant
                and problem.global_batch_size = $global_batch_size
                and problem.seq_len = $seq_len
                and coalesce(problem.assumptions, '') = $assumptions
                and problem.nvlink_size is not distinct from $nvlink_size
                and problem.num_gpus between $fewest_gpus and $most_gpus
            qualify
                row_number() over (partition by problem.num_gpus order by layout_order(layout)) = 1
        )

        select
            fastest.num_gpus,
            in_days(fastest.training_seconds) as training_days,
            fastest.num_gpus * fastest.training_seconds / 3600 as gpu_hours,
            gpu_hours * $price as cost_usd,
            -- the power of the layout's own steps, or else the average of a server
            coalesce(fastest.slot_watts, power.watts_per_gpu) as watts_per_gpu,
            gpu_hours * watts_per_gpu / 1000 * $pue as energy_kwh,
            energy_kwh * $electricity_price as electricity_usd,
            fastest.mfu, fastest.memory_bytes,
            fastest.data_parallel, fastest.tensor_parallel, fastest.pipeline_parallel
        from fastest
        left join accelerator_spelling as named on fastest.accelerator = named.spelling
        left join gpu_power as power
            on named.accelerator = power.accelerator and power.is_default
        where fastest.mfu between $lowest_mfu and $highest_mfu
        order by fastest.num_gpus
        """,
        **asked,
    )
    mo.stop(
        runs.is_empty(),
        mo.callout(
            mo.md("**No stored run is within these bounds.** Widen MFU or the number of GPUs."),
            kind="warn",
        ),
    )
    return (runs,)


@app.cell
def _(runs):
    def _said(run, label):
        """Return a run as a figure with a line below it."""
        energy = run["energy_kwh"]
        power = "no published power" if energy is None else f"{energy / 1000:,.0f} MWh"
        return mo.stat(
            f"{parts.figure(run['training_days'], 3)} days",
            label=f"{label}: {run['num_gpus']:,} GPUs",
            caption=f"{run['cost_usd'] / 1e6:,.2f} M USD, {power}",
            bordered=True,
        )

    cheapest = runs.sort("cost_usd").row(0, named=True)
    _quickest = runs.sort("training_days").row(0, named=True)
    mo.hstack([_said(cheapest, "Cheapest"), _said(_quickest, "Fastest")], justify="start")
    return (cheapest,)


@app.cell
def _(runs):
    shown = runs.select(
        pl.col("num_gpus").alias("GPUs"),
        pl.col("training_days").round(2).alias("days"),
        (pl.col("cost_usd") / 1e6).round(3).alias("M USD"),
        (pl.col("energy_kwh") / 1e3).round(1).alias("MWh"),
        (pl.col("electricity_usd") / 1e3).round(1).alias("electricity (k USD)"),
        (pl.col("mfu") * 100).round(1).alias("MFU (%)"),
        (pl.col("memory_bytes") / 1e9).round(1).alias("memory (GB)"),
        pl.format("{} x {} x {}", "data_parallel", "tensor_parallel", "pipeline_parallel").alias(
            "DP x TP x PP"
        ),
    )
    mo.ui.table(
        shown,
        selection=None,
        page_size=20,
        show_column_summaries=False,
        show_data_types=False,
    )
    return (shown,)


@app.cell
def _(asked, cheapest, runs, theme):
    def _over_gpus(column, divisor, title):
        """Return a panel: a quantity over the number of GPUs."""
        frame = runs.select("num_gpus", (pl.col(column) / divisor).alias(column)).drop_nulls()
        if frame.is_empty():
            return None
        counts, _values = frame["num_gpus"].to_list(), frame[column].to_list()
        return (
            alt.Chart(frame)
            .mark_line(point=alt.OverlayMarkDef(color=theme.blue), color=theme.blue)
            .encode(
                x=alt.X("num_gpus:Q", **parts.doubling(counts, "Number of GPUs", every=2)),
                y=alt.Y(
                    f"{column}:Q", title=title, scale=alt.Scale(domain=[0, max(_values) * 1.1])
                ),
            )
            .properties(width=300, height=220)
        )

    _panels = [
        panel
        for panel in (
            _over_gpus("cost_usd", 1e6, "Cost (M USD)"),
            _over_gpus("energy_kwh", 1e3, "Energy (MWh)"),
        )
        if panel is not None
    ]
    costs = (
        alt.hconcat(*_panels)
        .properties(
            title=parts.headed(
                f"{cheapest['num_gpus']:,} GPUs cost least: "
                f"{cheapest['cost_usd'] / 1e6:,.2f} M USD",
                f"{asked['model']} on {asked['accelerator']}, {asked['price']:g} USD per GPU-hour, "
                f"PUE {asked['pue']:g}, goodput {asked['goodput']:g}",
            )
        )
        .configure(**theme.config)
    )
    mo.as_html(costs)
    return (costs,)


@app.cell
def _(asked, theme, warehouse):
    # A picture of `warehouse plot`, with the goodput and the bounds of this page.
    _plot = plot_named("training_days")
    _wanted = ("tokens", "estimator", "variant", "model", "global_batch_size", "assumptions")
    _values = {name: asked[name] for name in _wanted}
    days = warehouse.sql(filtered(_plot.sql, _values), **_values)
    days = days.with_columns(pl.col("training_days") / asked["goodput"]).filter(
        pl.col("num_gpus").is_between(asked["fewest_gpus"], asked["most_gpus"])
    )
    mo.stop(
        days.is_empty(),
        mo.md("The plot `training_days` shows whole searches without assumptions: none is stored."),
    )
    all_systems = _plot.chart(days, theme).configure(**theme.config)
    mo.vstack([all_systems, mo.md("Days include the goodput, here and above.")])
    return all_systems, days


@app.cell
def _(stored):
    mo.stop(stored is None)
    query = mo.ui.code_editor(
        "select num_gpus, training_days, cost_usd, electricity_usd\n"
        "from runs\n"
        "where training_days < 365 * $goodput\n"
        "order by cost_usd",
        language="sql",
        label="Ask in SQL: `runs` is the table above, and every view of the warehouse is there. "
        "`$price`, `$pue`, `$goodput`, `$model` and the like follow the controls.",
        min_height=90,
    )
    mo.as_html(query)
    return (query,)


@app.cell
def _(asked, query, runs, warehouse):
    def _answered(text):
        """Return the rows of a query, or what is wrong with it."""
        names = parameters_of(text)
        unknown = [name for name in names if name not in asked]
        if unknown:
            return mo.callout(mo.md(f"`${unknown[0]}` is none of: {', '.join(asked)}"), kind="warn")
        try:
            tables = {"runs": runs} if "runs" in text.lower() else {}
            found = warehouse.sql(text, **tables, **{name: asked[name] for name in names})
        except WarehouseError as error:
            return mo.callout(mo.md(f"```\n{error}\n```"), kind="warn")
        floats = [name for name, kind in found.schema.items() if kind.is_float()]
        return mo.ui.table(found, selection=None, format_mapping=dict.fromkeys(floats, _short))

    def _short(value):
        return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.4g}"

    answer = _answered(query.value)
    mo.as_html(answer)
    return (answer,)


if __name__ == "__main__":
    app.run()
