"""How figures are written for people: the unit that they read, and the digits.

The unit of a column decides its form, unless the column names another one.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Form:
    """A way to write a figure.

    Attributes
    ----------
    unit
        The unit that people read.
    ending
        End of a column's name that the unit replaces in a heading: `step_seconds` is "step s".
    digits
        Format specification of the figure.
    times, per
        The figure is the stored value times `times` over `per`.
    small_digits, small_below
        Format specification of figures smaller than `small_below`, in the unit that people read.
    digits_in_text
        Format specification in running text, where it differs from that of a table.
    suffix
        Text right after the figure.
    smaller, smaller_below
        The form of a column whose stored values are all below `smaller_below`: a smaller unit.
    """

    unit: str
    ending: str
    digits: str
    times: float = 1
    per: float = 1
    small_digits: str = ""
    small_below: float = 0
    digits_in_text: str = ""
    suffix: str = ""
    smaller: Form | None = None
    smaller_below: float = 0

    def fitting(self, values: Iterable[float | None]) -> Form:
        """Return the form in which to write stored values together: this, or a smaller unit."""
        largest = max((abs(value) for value in values if value is not None), default=None)
        if self.smaller is None or largest is None or not largest < self.smaller_below:
            return self
        return self.smaller.fitting([largest])

    def figures(self, values: Iterable[float]) -> list[str]:
        """Return stored values as a table shows them, without their unit."""
        return [
            format(scaled, self.small_digits if abs(scaled) < self.small_below else self.digits)
            + self.suffix
            for scaled in map(self._scaled, values)
        ]

    def figure(self, value: float) -> str:
        """Return one stored value as a table shows it, without its unit."""
        return self.figures([value])[0]

    def in_text(self, value: float) -> str:
        """Return a stored value as running text has it, with its unit."""
        figure = self.figure(value)
        if self.digits_in_text:
            figure = format(self._scaled(value), self.digits_in_text) + self.suffix
        # a heading such as "error %": its figures are percentages
        return f"{figure} {self.unit.split()[-1] if self.unit.endswith('%') else self.unit}"

    def heading(self, name: str) -> str:
        """Return the heading of the column `name`: its unit in place of the end of its name."""
        return f"{spaced(name.removesuffix(self.ending))} {self.unit}".strip()

    def _scaled(self, value: float) -> float:
        return value * self.times / self.per


def spaced(name: str) -> str:
    """Return a name with spaces between its words."""
    return name.strip("_").replace("_", " ")


def _share(unit: str, ending: str) -> Form:
    return Form(unit, ending, ".1f", times=100)


def _signed_share(unit: str, ending: str) -> Form:
    return Form(unit, ending, "+.1f", times=100)


PLAIN = Form("", "", "")
"""As stored, with the unit of storage, and a comma at each thousand."""

IDENTIFIER = Form("", "", "")
"""Digit by digit: a number that names something, such as an id or a year."""

SCORE = Form("", "", ".2f")
"""Two places after the point, without a unit."""

SECONDS = Form("s", "_seconds", ",.0f", small_digits="#.4g", small_below=1000, digits_in_text=".4g")
MINUTES = Form("minutes", "_seconds", ",.1f", per=60, small_digits=".3g", small_below=0.1)
HOURS = Form(
    *("hours", "_seconds", ",.1f"),
    per=3600,
    small_digits=".3g",
    small_below=0.1,
    smaller=MINUTES,
    smaller_below=2 * 3600,
)
DAYS = Form(
    *("days", "_seconds", ",.1f"),
    per=86400,
    small_digits=".3g",
    small_below=0.1,
    smaller=HOURS,
    smaller_below=2 * 86400,
)
"""Times of whole runs: in hours below two days, in minutes below two hours."""
BYTES = Form("GB", "_bytes", ",.1f", per=1e9)
BYTES_OF_ELEMENT = Form("bytes", "_bytes", ",.4g")
BYTES_PER_SECOND = Form("GB/s", "_bytes_per_second", ",.1f", per=1e9, digits_in_text=",.4g")
BYTES_PER_FLOP = Form("bytes/FLOP", "_bytes_per_flop", ".3g")
FLOPS_PER_GPU = Form("TFLOP", "flops_per_gpu", ",.1f", per=1e12)
FLOPS_PER_SECOND = Form("TFLOP/s", "_flops_per_second", ",.1f", per=1e12)
FLOPS_PER_SECOND_PER_GPU = Form("TFLOP/s per GPU", "_flops_per_second_per_gpu", ",.1f", per=1e12)
MILLIONS_OF_TOKENS = Form("M tokens", "dataset_tokens", ",.4g", per=1e6)
BILLIONS_OF_TOKENS = Form(
    *("B tokens", "dataset_tokens", ",.4g"),
    per=1e9,
    smaller=MILLIONS_OF_TOKENS,
    smaller_below=1e8,
)
DATASET_TOKENS = Form(
    *("T tokens", "dataset_tokens", ",.4g"),
    per=1e12,
    smaller=BILLIONS_OF_TOKENS,
    smaller_below=1e11,
)
"""Tokens of a run: in billions below 0.1 T, in millions below 0.1 B."""
TOKENS_PER_SECOND = Form("tokens/s", "tokens_per_second", ",.0f")
ROWS_PER_SECOND = Form("rows/s", "rows_per_second", ",.0f")
GPU_HOURS = Form("GPU-hours", "gpu_hours", ",.0f", small_digits=".3g", small_below=10)
COST = Form("USD", "cost_usd", ",.0f", small_digits=".2f", small_below=10)
USD = Form("USD", "_usd", ",.0f", small_digits=".2f", small_below=10)
USD_PER_GPU_HOUR = Form("USD/GPU-hour", "usd_per_gpu_hour", ".2f")
USD_PER_KWH = Form("USD/kWh", "usd_per_kwh", ".3f")
KWH = Form("kWh", "energy_kwh", ",.1f")
ENERGY = Form("MWh", "energy_kwh", ",.1f", per=1e3, smaller=KWH, smaller_below=1e4)
KILOGRAMS = Form("kg CO2e", "kg_co2e", ",.1f")
EMISSIONS = Form("t CO2e", "kg_co2e", ",.1f", per=1e3, smaller=KILOGRAMS, smaller_below=1e4)
EMISSIONS_PER_KWH = Form("kg CO2e/kWh", "kg_co2e_per_kwh", ".3f")
POWER = Form("MW", "power_watts", ",.3f", per=1e6)
SERVER_POWER = Form("W", "_watts_per_gpu", ",.0f")
GPU_POWER = Form("W per GPU", "watts_per_gpu", ",.0f")
SHARE = _share("%", "_fraction")
MFU = _share("MFU %", "mfu")
UTILIZATION = _share("utilization %", "utilization")
FIT = _share("fits %", "fit_probability")
PLANNED = _share("planned %", "planned_share")
ROUNDING = _share("rounding %", "published_rounding")
ERROR = _signed_share("error %", "relative_error")
ERROR_SIZE = _share("|error| %", "absolute_relative_error")
ERROR_BEYOND_ROUNDING = _signed_share("error beyond rounding %", "error_beyond_rounding")
ERROR_SIZE_BEYOND_ROUNDING = _share("|error| beyond rounding %", "absolute_error_beyond_rounding")
BIAS = _signed_share("bias %", "bias")
RANK_CORRELATION = Form("Spearman", "spearman_correlation", ".2f")
TIME_RANK_CORRELATION = Form("Spearman", "spearman_correlation", ".3f")
SPEEDUP = Form("best is faster by", "speedup_of_best", ".2f", suffix="x")

FORMS = {name.lower(): value for name, value in list(vars().items()) if isinstance(value, Form)}
"""Every form by the name that columns.csv gives to it."""

FORM_OF_UNIT = {
    "seconds": SECONDS,
    "GPU-seconds": SECONDS,
    "bytes": BYTES,
    "bytes/s": BYTES_PER_SECOND,
    "bytes/FLOP": BYTES_PER_FLOP,
    "FLOP/s": FLOPS_PER_SECOND,
    "tokens/s": TOKENS_PER_SECOND,
    "GPU-hours": GPU_HOURS,
    "USD": USD,
    "USD/GPU-hour": USD_PER_GPU_HOUR,
    "USD/kWh": USD_PER_KWH,
    "kWh": ENERGY,
    "kg": EMISSIONS,
    "kg/kWh": EMISSIONS_PER_KWH,
}
"""Form of the columns of a unit of storage; others are plain."""

_BY_NAME = (
    *(SECONDS, BYTES, BYTES_PER_SECOND, BYTES_PER_FLOP, FLOPS_PER_GPU, FLOPS_PER_SECOND),
    *(FLOPS_PER_SECOND_PER_GPU, DATASET_TOKENS, TOKENS_PER_SECOND, ROWS_PER_SECOND, GPU_HOURS),
    *(COST, USD, USD_PER_GPU_HOUR, USD_PER_KWH, ENERGY, EMISSIONS, EMISSIONS_PER_KWH, POWER),
    *(SERVER_POWER, GPU_POWER, SHARE, MFU, UTILIZATION, PLANNED, ROUNDING, ERROR, ERROR_SIZE),
    *(ERROR_BEYOND_ROUNDING, ERROR_SIZE_BEYOND_ROUNDING, BIAS, RANK_CORRELATION, SPEEDUP),
)


def form_of_name(name: str) -> Form:
    """Return the form of a column that only a query defines.

    Names end with their unit: the form with the longest ending that fits is taken.
    """
    if name.endswith(("_id", "_version", "year")):
        return IDENTIFIER
    fitting = (form for form in _BY_NAME if name.endswith(form.ending))
    return max(fitting, key=lambda form: len(form.ending), default=PLAIN)
