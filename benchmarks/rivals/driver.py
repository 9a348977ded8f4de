"""What runs in another program's environment: it knows neither this project nor its packages.

``python driver.py NAME ASKED TOLD [CHECKOUT]`` reads a list of configurations from ASKED and writes
to TOLD the seconds of each, or the program's words why there are none.
"""

from __future__ import annotations

import contextlib
import io
import json
import logging
import sys
import traceback
import warnings
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any

Config = dict[str, Any]


def calculon(config: Config) -> float:
    """Return Calculon's time of a step [s]."""
    llm = import_module("calculon.llm.llm").Llm
    root = Path(import_module("calculon").__file__ or "").parents[1]
    system = json.loads((root / "systems" / config["template"]).read_text(encoding="utf-8"))
    sizes = {"float16": "float16", "float8": "float8"}
    for part, rates in (("matrix", config["matrix"]), ("vector", None)):
        system[part] = {
            name: {**system[part][name], "tflops": (rates or {}).get(name, config["vector"])}
            for name in sizes
            if name in config["matrix"] and name in system[part]
        }
    system["mem1"] |= {"GiB": config["GiB"], "GBps": config["GBps"]}
    for network, changes in zip(system["networks"], config["networks"], strict=True):
        network |= changes
    model = llm(llm.Application(config["application"]), logging.getLogger("quiet"))
    machine = import_module("calculon.system").System(system)
    model.compile(machine, llm.Execution.from_json(config["execution"]))
    model.run(machine)
    return float(model.get_total_time())


def llm_analysis(config: Config) -> float:
    """Return llm-analysis' time of a step [s]."""
    analysis, configs = (import_module(f"llm_analysis.{name}") for name in ("analysis", "config"))
    configs.model_configs["row"] = configs.ModelConfig(**config["model"])
    configs.gpu_configs["row"] = configs.GPUConfig(**config["gpu"])
    arguments = dict(config["arguments"])
    kinds = analysis.ActivationRecomputation
    # a later version tells recomputed parts apart
    names = {"none": "NONE", "full": "FULL", "selective": "ATTN_COMPUTE"}
    known = kinds.__members__
    kind = known.get(names[arguments["activation_recomputation"]], known.get("SELECTIVE"))
    arguments["activation_recomputation"] = kind.value
    if not hasattr(
        configs.ParallelismConfig, "rdp_size"
    ):  # an earlier one knows one kind of replica
        del arguments["dp_size"]
    found = analysis.train(model_name="row", gpu_name="row", log_level="ERROR", **arguments)
    return float(found["latency_per_iter"])


def simumax(config: Config) -> float:
    """Return SimuMax's time of a step [s]."""
    configs = import_module("simumax.core.config")
    model = import_module("simumax.core.perf_llm").PerfLLM()
    root = Path(import_module("simumax.core").__file__ or "").parents[2] / "configs" / "system"
    system, networks = (
        json.loads((root / config[name]).read_text(encoding="utf-8"))
        for name in ("template", "network_template")
    )
    system |= {"num_per_node": config["num_per_node"], "networks": networks["networks"]}
    system["accelerator"]["mem_gbs"] = config["mem_gbs"]
    for name, rate in system["accelerator"]["op"].items():
        rate["tflops"] = config["fp8_tflops" if name.startswith("fp8") else "tflops"]
        if not config["has_shapes"]:
            rate.pop("accurate_efficient_factor", None)
    for rate in system["accelerator"]["bandwidth"].values():
        rate["gbps"] = config["gbps"]
    for name, network in system["networks"].items():
        if name != "intra_with_pcie":
            which = "inter_gbps" if name == "inter_node" else "intra_gbps"
            network["bandwidth"]["gbps"] = config[which]
    model.configure(
        strategy_config=configs.StrategyConfig.init_from_dict(config["strategy"]),
        model_config=configs.ModelConfig.init_from_dict(config["model"]),
        system_config=configs.SystemConfig.init_from_dict(system),
    )
    model.run_estimate()
    # its result has texts of few digits with units: take the number, which is in milliseconds
    times: list[float] = []
    perf: Any = import_module("simumax.core.perf_llm")
    perf.convert_final_result_to_human_format = lambda result: times.append(
        result["duration_time_per_iter"]
    )
    model.analysis_cost()
    return times[-1] / 1e3


PROGRAMS = {
    "calculon": ("calculon.llm.llm", calculon),
    "llm-analysis": ("llm_analysis.analysis", llm_analysis),
    "simumax": ("simumax.core.perf_llm", simumax),
}
"""Name -> a module of the program, and what asks it."""


def answer(ask: Callable[[Config], float], config: Config) -> float | str:
    """Return the seconds of a configuration, or why the program has none."""
    try:
        with contextlib.redirect_stdout(io.StringIO()):
            return ask(config)
    except Exception as error:  # of a program of others, which may raise anything
        where = traceback.extract_tb(error.__traceback__)[-1].line
        return str(error) or f"{type(error).__name__}: {where}"


def main(name: str, asked: str, told: str, *checkout: str) -> None:
    """Answer all configurations of a file; raise `ImportError` where the program is not there."""
    sys.path[:0] = checkout
    module, ask = PROGRAMS[name]
    import_module(module)
    warnings.simplefilter("ignore")
    logging.disable(logging.CRITICAL)
    configs = json.loads(Path(asked).read_text(encoding="utf-8"))
    answers = [answer(ask, config) for config in configs]
    Path(told).write_text(json.dumps(answers), encoding="utf-8")


if __name__ == "__main__":
    main(*sys.argv[1:])
