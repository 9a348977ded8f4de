"""Finds the study of a command: by path, name or table, under options."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from estimators import registry
from estimators.contract import variant_name
from estimators.names import folded
from warehouse.database import resources
from warehouse.errors import InputError
from warehouse.evaluate.profiles import load_profiles, under_profile
from warehouse.studies.definitions import known_definitions
from warehouse.studies.study import load_study, read_study, under
from warehouse.studies.variants import variants_of_options

if TYPE_CHECKING:
    from estimators.contract import Space
    from warehouse.studies.study import Study


def study_under_options(
    study: str | Path | Mapping[str, Any],
    database: Path,
    variant: str | None = None,
    mend: str | None = None,
    profile: str | None = None,
    catalog: Path | None = None,
) -> Study:
    """Return a study under the mends and the profile of a user's options; None: its own.

    `study` is a TOML file, the content of one, or the name of a study that comes with the package.
    The database has the stored profiles. Models and systems that a study lacks are those of
    `catalog` (None: the file of the settings) and of stored studies.
    """
    if isinstance(study, Mapping):
        loaded = read_study(study, str(study.get("name", "study")))
    else:
        loaded = load_study(study_path(study))
    loaded = _with_known_definitions(under_options(loaded, variant, mend), database, catalog)
    if profile is None:
        return loaded
    estimator = registry.get(loaded.estimator)
    return under_profile(loaded, profile, estimator, lambda: load_profiles(database))


def study_path(study: str | Path) -> Path:
    """Return the study file that `study` names: a path, or the name of one in the package."""
    path = Path(study)
    if path.suffix or path.exists() or len(path.parts) != 1:
        return path  # reading refuses a missing file by name
    packaged = {file.stem: file for file in sorted(resources.studies_directory().glob("*.toml"))}
    names = [name for name in packaged if folded(name) == folded(str(study))]
    if len(names) != 1:
        raise InputError(
            f'study "{study}" is neither a file nor one that comes with the package',
            f"name a .toml file, or one of: {', '.join(packaged)}",
        )
    return packaged[names[0]]


def under_options(study: Study, variant: str | None, mend: str | None) -> Study:
    """Return `study` under the mends that the options name, by default its own."""
    if variant is None and mend is None:
        return study
    estimator = registry.get(study.estimator)
    mends = variants_of_options(estimator, variant, mend)
    # "both" and "each" are part of the name
    called = variant_name(mends[0], estimator.mends) if len(mends) == 1 else str(variant)
    return under(study, mends, called)


def _with_known_definitions(study: Study, database: Path, catalog: Path | None) -> Study:
    """Return a study with the definitions of models and systems that it names but lacks."""
    names = [
        name
        for space in study.spaces
        for column in ("model", "accelerator")
        for name in space.get(column, ())
        if name not in study.defined.models and name not in study.defined.systems
    ]
    known = known_definitions(database, names, catalog)
    if not known.as_data():
        return study
    defined = study.defined.before(known)
    spaces = tuple(_by_name(space, known.paths) for space in study.spaces)
    definition = {**study.definition, **defined.as_data()}
    if known.paths and "spaces" in definition:  # what is stored does not depend on the file
        definition["spaces"] = [{k: [*values] for k, values in s.items()} for s in spaces]
    return replace(study, defined=defined, spaces=spaces, definition=definition)


def _by_name(space: Space, paths: Mapping[str, str]) -> Space:
    """Return a search space with the names of models in place of the paths of their files."""
    if not paths or "model" not in space:
        return space
    return {**space, "model": [paths.get(str(name), name) for name in space["model"]]}
