"""Models from the config.json of a Hugging Face folder.

A file becomes the same attributes as an entry [models.NAME] of a catalog. hugging_face.toml has
what each `model_type` means. A kind of layer that no estimator has is refused by name. What the
file leaves out, what is not read and what is not modelled is the model's `note`.
"""

from __future__ import annotations

import json
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from estimators.columns import COLUMNS
from estimators.contract import Refusal, RefusedError, Scalar
from estimators.names import joined_hint
from warehouse.errors import InputError
from warehouse.files import json_object, read_text
from warehouse.limits import accept, shown
from warehouse.studies.toml_files import Faults, nearest

FILE_NAME = "config.json"

MAX_BYTES = 1_000_000
"""Largest file: those of the largest models have some kilobytes."""

_MAX_LAYERS = 100_000
"""Most layers whose kinds are listed one by one."""

USUAL_LENGTH = 4096
LONGEST = 8192
"""Tokens of a sequence where a file does not say how long those of the training were: at most the
first. Where positions were stretched later, the length before, at most the second."""

_NEEDED = ("num_layers", "hidden_size", "ffn_hidden_size", "num_heads", "vocab_size")
_NEEDED_OF_EXPERTS = ("num_experts", "experts_per_token", "expert_ffn_hidden_size")

_SILENT = (
    *("_name_or_path", "architectures", "auto_map", "model_type", "torch_dtype", "dtype"),
    *("transformers_version", "use_cache", "initializer_range", "pretraining_tp", "rope_theta"),
    *("rms_norm_eps", "layer_norm_eps", "layer_norm_epsilon", "norm_eps", "norm_epsilon"),
    *("bos_token_id", "eos_token_id", "pad_token_id", "cache_implementation", "hidden_act"),
    *("hidden_activation", "max_position_embeddings", "original_max_position_embeddings"),
    *("rope_scaling", "rope_parameters", "text_config", "layer_types", "max_window_layers"),
)
"""Keys that are read elsewhere, or that change neither time nor memory of a step."""

_FULL, _WINDOWED, _CHUNKED = "full_attention", "sliding_attention", "chunked_attention"
_LAYER_KINDS = (_FULL, _WINDOWED, _CHUNKED)


class ModelFile(NamedTuple):
    """The model of a file: its name and its attributes, as a catalog has them."""

    name: str
    attributes: dict[str, Scalar]


def is_model_file(text: str) -> bool:
    """Return whether a text names a .json file, or a folder with a config.json."""
    try:
        is_folder = bool(text) and (Path(text) / FILE_NAME).is_file()
        return is_folder or text.lower().endswith(".json")
    except (OSError, ValueError):  # no name of a file, for example one with a zero byte
        return False


def load_model(path: Path) -> ModelFile:
    """Read a model from a .json file, or from config.json of a folder."""
    path = path / FILE_NAME if path.is_dir() else path
    content = _read(path)
    config, left_out = _text_part(content)
    faults = Faults()
    attributes = _Reading(config, path.name, faults).attributes(left_out)
    if faults.refusals:
        raise InputError.from_refusals(faults.refusals, str(path))
    return ModelFile(_name(path, content), attributes)


# ---- the file ----


def _read(path: Path) -> dict[str, Any]:
    hint = "name the config.json of a Hugging Face model"
    return json_object(read_text(path, MAX_BYTES, hint), str(path), hint)


def _text_part(content: dict[str, Any]) -> tuple[dict[str, Any], list[str]]:
    """Return the part of a file that has the decoder, and the names of the other parts."""
    kind, part = content.get("model_type"), content.get("text_config")
    if not isinstance(part, dict):
        return content, []
    of_text = _table()["of_text"].get(kind) if isinstance(kind, str) else None
    others = [
        key
        for key, value in content.items()
        if key.endswith("_config") and isinstance(value, dict) and key != "text_config"
    ]
    others = [key for key in others if key not in ("quantization_config", "generation_config")]
    return {**({"model_type": of_text} if of_text else {}), **part}, others


def _name(path: Path, content: Mapping[str, Any]) -> str:
    """Return the name of a model: that of its file, else the one it has within, else its folder's.

    A file that is called config.json says nothing.
    """
    given = content.get("_name_or_path")
    within = given.rstrip("/").rpartition("/")[2] if isinstance(given, str) else ""
    of_file = "" if path.name == FILE_NAME else path.stem
    names = (of_file, within, path.resolve().parent.name)
    usable = (name.strip() for name in names if name.strip() and name.isprintable())
    return next((name for name in usable if len(name) <= 100), FILE_NAME)


# ---- the meaning of its keys ----


@cache
def _table() -> dict[str, dict[str, Any]]:
    return tomllib.loads(Path(__file__).with_suffix(".toml").read_text(encoding="utf-8"))


_OTHERS = ("decoder", "deepseek_moe", "of_text", "unmodelled", "refused")
"""Tables of hugging_face.toml that are no `model_type`."""


def known_types() -> list[str]:
    """Return every `model_type` that can be read."""
    return sorted(name for name in _table() if name not in _OTHERS)


@dataclass(frozen=True)
class _Kind:
    """A `model_type`: see hugging_face.toml."""

    keys: Mapping[str, str]
    defaults: Mapping[str, Any]
    only: Mapping[str, list[Any]]
    makes: Mapping[str, Any]
    says: str


def _kind(name: str) -> _Kind:
    entry = _table()[name]
    base = _kind(entry["like"]) if "like" in entry else _Kind({}, {}, {}, {}, "")
    removed = entry.get("removes", {})

    def joined(part: str) -> dict[str, Any]:
        former: Mapping[str, Any] = getattr(base, part)
        kept = {key: value for key, value in former.items() if key not in removed.get(part, ())}
        return {**kept, **entry.get(part, {})}

    keys, defaults, only, makes = map(joined, ("keys", "defaults", "only", "makes"))
    return _Kind(keys, defaults, only, makes, entry.get("says", base.says))


class _Reading:
    """One configuration being read.

    Parameters
    ----------
    config
        The part of the file that has the decoder.
    faults
        Collects the refusals.
    """

    def __init__(self, config: Mapping[str, Any], file: str, faults: Faults) -> None:
        self.config, self.file, self.faults = config, file, faults
        self.read: set[str] = set()
        self.left_to_class: dict[str, Any] = {}

    def attributes(self, left_out: list[str]) -> dict[str, Scalar]:
        """Return the attributes of the model; `faults` has what is refused."""
        name = self.config.get("model_type")
        if not isinstance(name, str) or name in _OTHERS or name not in _table():
            self._refuse_type(name)
            return {}
        self.kind = _kind(name)
        for key, values in self.kind.only.items():
            self._require(key, values)
        found = self._sizes()
        found |= self._flags()
        if self.faults.refusals:
            return {}
        found |= self._latents(found) | self._experts(found)
        found |= self._attention(found)
        found |= self._length()
        if self.faults.refusals:
            return {}
        found |= self._small_parameters(found)
        found["assumed"] = "seq_len"
        found["source"] = f"{self.file}, model_type {name}"
        found["note"] = self._note(found, left_out)
        return {key: value for key, value in found.items() if value is not None}

    def _refuse_type(self, name: object) -> None:
        known = f"known: {', '.join(known_types())}"
        if name is None:
            self.faults.add("model_type", None, "is missing", known)
        elif not isinstance(name, str):
            self.faults.add("model_type", name, "must be a text", known)
        elif name in _table()["refused"]:
            self.faults.add(
                "model_type", name, f"has {_table()['refused'][name]}, {_LACKING}", known
            )
        else:
            shape = "or give its shape: num_layers=..., or [models.NAME] in a file of --catalog"
            hint = joined_hint(nearest(name, known_types()), shape)
            self.faults.add("model_type", name, "is not known", hint)

    def _get(self, key: str) -> Any:
        """Return the value of a key, by default that of the class; null is None."""
        self.read.add(key)
        if key in self.config:
            return self.config[key]
        value = self.kind.defaults.get(key)
        if value is not None:
            self.left_to_class[key] = value
        return value

    def _number(self, key: str, column: str) -> Scalar:
        value = self._get(key)
        if value is None:
            return None
        try:
            return accept(COLUMNS[column], value)
        except RefusedError as error:
            for refusal in error.refusals:
                reason, hint = refusal.reason, f"it is `{column}`: {COLUMNS[column].meaning}"
                self.faults.refusals.append(Refusal(key, refusal.value, reason, hint))
            return None

    def _is(self, feature: str) -> bool:
        """Return what the class makes: a flag, or the value of the key that decides."""
        decided = self.kind.makes.get(feature, False)
        return decided if isinstance(decided, bool) else self._flag_of(str(decided))

    def _flag_of(self, key: str) -> bool:
        value, refused = self._get(key), {refusal.column for refusal in self.faults.refusals}
        if value is not None and not isinstance(value, bool) and key not in refused:
            self.faults.add(key, value, "must be true or false", "write it without quotes")
        return value is True

    def _require(self, key: str, values: list[Any]) -> None:
        value = self._get(key)
        if value is not None and not any(value == v and type(value) is type(v) for v in values):
            usual = json.dumps(values[0])
            self.faults.add(key, value, f"makes another kind of layer, {_LACKING}", f"use {usual}")

    def _sizes(self) -> dict[str, Scalar]:
        kept = {n: self._number(key, n) for n, key in self.kind.keys.items()}
        needed = [*_NEEDED, *(n for n in _NEEDED_OF_EXPERTS if "num_experts" in self.kind.keys)]
        refused = {refusal.column for refusal in self.faults.refusals}
        for column in needed:
            key = self.kind.keys[column]
            if kept.get(column) is None and key not in refused:
                hint = f"it is `{column}`: {COLUMNS[column].meaning}"
                self.faults.add(key, None, "is missing", hint)
        return kept

    def _flags(self) -> dict[str, Scalar]:
        flags = {"uses_glu": "gated", "uses_attention_sinks": "sinks"}
        found: dict[str, Scalar] = {name: self._is(feature) for name, feature in flags.items()}
        found["ties_embedding"] = self._flag_of(self.kind.keys["ties_embedding"])
        found["uses_router_bias"] = self._is("router_bias") or self._is("expert_bias")
        found["uses_gate_clamp"] = self._is("expert_bias")
        found["uses_post_norm"] = self.kind.makes["norms"] == 4 or None
        return found

    def _latents(self, found: Mapping[str, Scalar]) -> dict[str, Scalar]:
        """Return the widths of heads, with latents or without."""
        hidden, heads = int(found["hidden_size"] or 0), int(found["num_heads"] or 1)
        if "kv_lora_rank" in self.kind.keys:
            size = found["qk_head_size"]
            self.read.add("num_key_value_heads")  # every head has its own
            return {"num_kv_heads": heads, "head_size": size}
        size = found.get("head_size")
        if size is None and hidden % heads:
            key = self.kind.keys["num_heads"]
            reason = f"does not divide `hidden_size` {hidden}"
            width = self.kind.keys.get("head_size")
            hint = f"use a divisor of {hidden}" + (f", or give `{width}`" if width else "")
            self.faults.add(key, heads, reason, hint)
        kv_heads = int(found.get("num_kv_heads") or heads)
        if heads % kv_heads:
            key = self.kind.keys["num_kv_heads"]
            reason = f"does not divide `num_attention_heads` {heads}"
            self.faults.add(key, kv_heads, reason, f"use a divisor of {heads}")
        return {"num_kv_heads": kv_heads, "head_size": size or hidden // heads}

    def _experts(self, found: Mapping[str, Scalar]) -> dict[str, Scalar]:
        if "num_experts" not in self.kind.keys:
            return {}
        layers, experts = int(found["num_layers"] or 0), int(found["num_experts"] or 0)
        if int(found["experts_per_token"] or 0) > experts:
            key, least = self.kind.keys["experts_per_token"], self.kind.keys["num_experts"]
            reason = f"is above `{least}` {experts}"
            self.faults.add(key, found["experts_per_token"], reason, f"use at most {experts}")
        dense = int(found.get("num_dense_layers") or 0)
        if dense > layers:
            key = self.kind.keys["num_dense_layers"]
            reason = f"is above `num_hidden_layers` {layers}"
            self.faults.add(key, dense, reason, f"use at most {layers}")
        period = int(found.get("moe_period") or 1)
        shared = int(found.get("num_shared_experts") or 0)
        width = found.get("shared_ffn_hidden_size")
        if width is None:
            width = shared * int(found["expert_ffn_hidden_size"] or 0)
        elif width:
            shared = 1
        return {
            "num_shared_experts": shared,
            "shared_ffn_hidden_size": width,
            "num_dense_layers": layers - layers // period if period > 1 else dense,
            "moe_period": period if period > 1 else None,
        }

    def _attention(self, found: Mapping[str, Scalar]) -> dict[str, Scalar]:
        """Return the windows, of every layer or of all but each last of a period."""
        none: dict[str, Scalar] = {"attention_window": None}
        layers = int(found["num_layers"] or 0)
        kinds = self._layer_kinds(layers, has_window=bool(found.get("attention_window")))
        others = {kind for kind in kinds if kind not in _LAYER_KINDS}
        if others:
            known = f"known: {', '.join(_LAYER_KINDS)}"
            self.faults.add("layer_types", min(others), f"is a kind of layer {_LACKING}", known)
            return none
        full = [number for number, kind in enumerate(kinds, 1) if kind == _FULL]
        if len(full) == len(kinds) or not found.get("attention_window"):
            return none
        period = full[0] if full else 0
        if full != [number for number in range(1, layers + 1) if period and number % period == 0]:
            self.faults.add(
                "layer_types",
                f"{len(full)} of {layers} layers without a window",
                f"are not every last of a number of layers, a mixture {_LACKING}",
                "for sequences within the window: leave out `layer_types` and the window",
            )
            return none
        return {
            "window_period": period,
            "uses_chunked_attention": True if _CHUNKED in kinds else None,
        }

    def _layer_kinds(self, layers: int, *, has_window: bool) -> list[str]:
        """Return the kind of each layer, as the file lists it or as the class makes it."""
        given = self.config.get("layer_types")
        if given is not None:
            if not isinstance(given, list) or not all(isinstance(kind, str) for kind in given):
                hint = f"known: {', '.join(_LAYER_KINDS)}"
                self.faults.add("layer_types", given, "must be a list of texts", hint)
                return []
            if len(given) != layers:
                reason = f"has {len(given)} layers, `num_hidden_layers` {layers}"
                hint = f"give {layers}, or leave them out"
                self.faults.add("layer_types", f"a list of {len(given)}", reason, hint)
                return []
            return given
        windowed = self.kind.makes.get("windowed")
        switch = self.kind.makes.get("windowed_if")
        if windowed is None or (switch and not self._flag_of(switch)) or not has_window:
            return [_FULL]
        if layers > _MAX_LAYERS:
            key = self.kind.keys["num_layers"]
            self.faults.add(key, layers, f"is above {_MAX_LAYERS:,}", "use fewer")
            return []
        inside = _CHUNKED if self.kind.makes.get("chunked") else _WINDOWED
        if windowed == "all":
            return [inside] * layers
        if windowed == "beyond":
            first = int(self._number("max_window_layers", "num_dense_layers") or 0)
            return [_FULL if number < first else inside for number in range(layers)]
        period = int(self._number(str(windowed), "window_period") or 0)
        return [_FULL if period and n % period == 0 else inside for n in range(1, layers + 1)]

    def _length(self) -> dict[str, Scalar]:
        """Return the tokens of a sequence in training, which a file does not say: an assumption."""
        rope = self._rope()
        longest = self._number("max_position_embeddings", "seq_len")
        original = self._number("original_max_position_embeddings", "seq_len")
        if "original_max_position_embeddings" in rope:
            original = _Reading(rope, self.file, self.faults).length_before()
        if original is not None:
            return {"seq_len": min(int(original), LONGEST)} | self._yarn(rope)
        return {"seq_len": min(int(longest or USUAL_LENGTH), USUAL_LENGTH)} | self._yarn(rope)

    def length_before(self) -> Scalar:
        """Return the length before positions were stretched, of the part on positions."""
        self.kind = _Kind({}, {}, {}, {}, "")
        return self._number("original_max_position_embeddings", "seq_len")

    def _rope(self) -> Mapping[str, Any]:
        for key in ("rope_scaling", "rope_parameters"):
            rope = self._get(key)
            if rope is not None and not isinstance(rope, dict):
                hint = 'write {"rope_type": ...}, or null'
                self.faults.add(key, rope, "must be an object of keys and values", hint)
            elif rope:
                inner = rope.get(_FULL)  # a part for each kind of layer
                return inner if isinstance(inner, dict) else rope
        return {}

    def _yarn(self, rope: Mapping[str, Any]) -> dict[str, Scalar]:
        is_yarn = "yarn" in (rope.get("rope_type"), rope.get("type"))
        return {"uses_yarn": True if is_yarn and "kv_lora_rank" not in self.kind.keys else None}

    def _small_parameters(self, found: Mapping[str, Scalar]) -> dict[str, Scalar]:
        """Return flags of biases and norms, and the parameters of a layer that they do not make."""

        def size(name: str) -> int:
            return int(found.get(name) or 0)

        hidden, ffn, key = size("hidden_size"), size("ffn_hidden_size"), size("head_size")
        queries, keys = size("num_heads") * key, size("num_kv_heads") * key
        of_qkv, of_output, of_ffn = map(self._is, ("qkv_bias", "output_bias", "ffn_bias"))
        others = (self.kind.makes["norms"] % 2) * -hidden
        if not (of_qkv and of_output and of_ffn):
            others += of_qkv * (queries + 2 * keys) + of_output * hidden
            others += of_ffn * ((2 if found["uses_glu"] else 1) * ffn + hidden)
        qk_norm, _, switch = str(self.kind.makes.get("qk_norm", "")).partition(" if ")
        has_norm = bool(qk_norm) and (not switch or self._flag_of(switch))
        if has_norm and qk_norm == "all":
            others += queries + keys - 2 * key
        others += hidden if self._is("shared_gate") else 0
        return {
            "uses_linear_bias": of_qkv and of_output and of_ffn,
            "uses_qk_norm": has_norm,
            "other_layer_parameters": others or None,
        }

    def _note(self, found: Mapping[str, Scalar], left_out: list[str]) -> str:
        """Return what the file leaves out, what is not read, and what is not modelled."""
        words = [f"{', '.join(left_out)} left out"] if left_out else []
        words.append(self.kind.says)
        for key, sentence in _table()["unmodelled"].items():
            if self.config.get(key, self.kind.defaults.get(key)):
                words.append(sentence)
        if self.kind.makes["norms"] == 1:
            words.append("one norm a layer, and the time of two")
        if not found.get("attention_window"):  # of a window that no layer has
            for key in ("attention_window", "windowed"):
                name = {**self.kind.keys, **self.kind.makes}.get(key)
                self.left_to_class.pop(str(name), None)
        if self.left_to_class:
            pairs = (f"{key} {json.dumps(value)}" for key, value in self.left_to_class.items())
            words.append(f"of its class, as the file has none: {', '.join(pairs)}")
        unread = [str(shown(key)) for key in self.config if self._is_unread(key)]
        if unread:
            words.append(f"not read: {', '.join(unread[:20])}{', ...' if len(unread) > 20 else ''}")
        return "; ".join(filter(None, words))

    def _is_unread(self, key: str) -> bool:
        known = key in self.read or key in _SILENT or key in _table()["unmodelled"]
        is_said = key.endswith(("_dropout", "_pdrop", "dropout")) or not key.isprintable()
        return not (known or is_said)


_LACKING = "which the estimates do not have"
