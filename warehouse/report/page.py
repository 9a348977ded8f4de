"""A report as one HTML file that reads nothing but itself."""

from __future__ import annotations

import json
import math
from base64 import b64encode
from datetime import UTC, datetime
from hashlib import sha256
from importlib.resources import files
from typing import TYPE_CHECKING, Any, NamedTuple

import jinja2
from markupsafe import Markup

import warehouse
from warehouse.database.stamp import reference_in_words
from warehouse.plot.files import bundle
from warehouse.report.charts import charts_of
from warehouse.report.content import content_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from warehouse.plan.answer import PlanAnswer

_SECTIONS = (
    ("limits", "What limits it"),
    ("changes", "What would change it"),
    ("layouts", "Layouts"),
    ("trust", "How far to trust it"),
    ("assumptions", "Assumptions"),
    ("reproduce", "How it was made"),
)


class Slider(NamedTuple):
    """A slider of the page; it begins at `value`, rounded to its steps."""

    name: str
    label: str
    value: float
    least: float
    most: float
    step: float


def page_of(answer: PlanAnswer, command: str) -> str:
    """Return the page of a plan that a command line made."""
    content, charts = content_of(answer), charts_of(answer)
    terms = terms_of(answer)
    run = {
        "gpu_hours": answer.best["gpu_hours"],
        "num_gpus": answer.num_gpus,
        "goodput": answer.run.goodput,
    }
    loader = jinja2.PackageLoader("warehouse.report", ".")
    environment = jinja2.Environment(
        loader=loader, autoescape=True, undefined=jinja2.StrictUndefined
    )
    style, scripts = _own("page.css"), [bundle(), _own("page.js")]
    return environment.get_template("page.html.j2").render(
        policy=_policy(style, scripts),
        content=content,
        charts=charts,
        terms=terms,
        has_terms=bool(terms),
        sections=_SECTIONS,
        date=datetime.now(UTC).date().isoformat(),
        version=f"{warehouse.__version__}, {reference_in_words()}",
        command=command,
        data=Markup(_json({"charts": charts, "run": run})),
        style=Markup(style),
        scripts=[Markup(each) for each in scripts],
    )


def _policy(style: str, scripts: Sequence[str]) -> str:
    """Return the content security policy: the page's own style and scripts, and nothing else."""

    def hashed(text: str) -> str:
        return f"'sha256-{b64encode(sha256(text.encode()).digest()).decode()}'"

    parts = {
        "default-src": "'none'",
        "script-src": " ".join(map(hashed, scripts)),
        "style-src": hashed(style),
        "img-src": "data:",  # the empty icon
        "base-uri": "'none'",
        "form-action": "'none'",
    }
    return "; ".join(f"{name} {value}" for name, value in parts.items())


def terms_of(answer: PlanAnswer) -> list[Slider]:
    """Return the sliders at the plan's values; figures that are unknown have none."""
    basis = answer.run.terms.basis if answer.run.terms.price is None else None
    cost = next((line for line in answer.costs if basis in (None, line["basis"])), {})
    energy = answer.energies[0] if answer.energies else {}
    goodput = answer.run.goodput
    found = [Slider("goodput", "Goodput", goodput, min(0.3, goodput), 1.0, 0.01)]
    price = cost.get("usd_per_gpu_hour")
    if price is not None:
        found.append(_around("price", "USD of a GPU-hour", price))
    watts = energy.get("watts_per_gpu")
    if watts is not None and energy.get("pue") is not None:
        found += [
            _around("watts", "Watts of a GPU with its server", watts),
            Slider("pue", "PUE", energy["pue"], 1.0, max(2.0, energy["pue"]), 0.01),
        ]
        if energy.get("usd_per_kwh"):
            found.append(_around("electricity", "USD of a kWh", energy["usd_per_kwh"]))
        else:
            usual = 0.08 if energy.get("usd_per_kwh") is None else 0.0
            found.append(Slider("electricity", "USD of a kWh", usual, 0.0, 0.4, 0.001))
        if energy.get("kg_co2e_per_kwh") is not None:
            carbon = energy["kg_co2e_per_kwh"]
            found.append(Slider("carbon", "kg CO2e of a kWh", carbon, 0.0, max(1.0, carbon), 0.001))
    return found


def _around(name: str, label: str, value: float) -> Slider:
    """Return a slider from a quarter to three times of a positive value, in steps of 3 digits."""
    step = 10 ** (math.floor(math.log10(value)) - 2)
    near = round(value / step) * step
    return Slider(name, label, value, _plain(step * round(near / step / 4)), _plain(3 * near), step)


def _plain(value: float) -> float:
    return float(f"{value:.10g}")


def _own(name: str) -> str:
    return files("warehouse.report").joinpath(name).read_text("utf-8")


def _json(value: Mapping[str, Any]) -> str:
    """Return JSON in which no browser finds the end of a script."""
    text = json.dumps(value, ensure_ascii=False)
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")
