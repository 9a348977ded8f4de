"""The few files of sql/ that the fixture `small_package` has."""

from __future__ import annotations

SMALL_VIEW = "-- Models.\n-- Grain: one row per model\n-- Key: model\nselect * from model\n"

SMALL_FUNCTION = """\
-- Wide models.
-- Grain: one row per model
-- Key: model
create or replace macro wider(least) as table select * from model where hidden_size > least;
"""
