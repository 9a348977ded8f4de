"""The data dictionary: `columns.csv` is written as its loader reads it, and has no mistake."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator
from dataclasses import fields
from itertools import groupby
from typing import get_args

import duckdb
import pytest

from estimators.columns import COLUMNS, GROUPS, Column, Form, Kind
from estimators.columns.columns import FILE, STORAGE, Better, read
from estimators.columns.forms import FORMS

HEADER = ("group", *(field.name for field in fields(Column)))
TEXT = FILE.read_text("utf-8")

CHOSEN_FROM = {
    "kind": {*get_args(Kind)},
    "shown_as": {"", *FORMS},
    "better": {*get_args(Better)},
    "is_optional": {"", "true"},
    "in_layout": {"", "true"},
}


def faults(text: str) -> list[str]:
    """Return the mistakes of a dictionary, each with its line."""
    header, *rows = csv.reader(io.StringIO(text), strict=True)
    if tuple(header) != HEADER:
        return [f"1: the header is not {','.join(HEADER)}"]
    found = []
    lines: dict[str, int] = {}
    groups = [group for group, _ in groupby(row[0] for row in rows)]
    for number, row in enumerate(rows, start=2):
        if len(row) != len(HEADER):
            found.append(f"{number}: {len(row)} fields instead of {len(HEADER)}")
            continue
        line = dict(zip(HEADER, row, strict=True))
        first = lines.setdefault(line["name"], number)
        if first != number:
            found.append(f"{number}: `{line['name']}` is already in line {first}")
        found += [f"{number}: {fault}" for fault in faults_in(line)]
        if groups.count(row[0]) > 1:
            found.append(f"{number}: the lines of group `{row[0]}` are not together")
    return found


def faults_in(line: dict[str, str]) -> Iterator[str]:
    """Yield the mistakes in the fields of one line."""
    for field in ("group", "name", "meaning"):
        if not line[field]:
            yield f"{field} is empty"
    for field, known in CHOSEN_FROM.items():
        if line[field] not in known:
            yield f"{field} `{line[field]}` is unknown"
    for field in ("minimum", "maximum", "above"):
        try:
            float(line[field] or 0)
        except ValueError:
            yield f"{field} `{line[field]}` is no number"
    try:
        duckdb.sqltype(line["storage"] or "INTEGER")
    except duckdb.Error:
        yield f"storage `{line['storage']}` is unknown"
    for field, text in line.items():
        if field != "short" and text != text.strip():
            yield f"{field} begins or ends with a space"


def written(groups: dict[str, tuple[Column, ...]]) -> str:
    """Return the text of a dictionary with these columns."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(HEADER)
    for group, columns in groups.items():
        for column in columns:
            values = {name: as_text(getattr(column, name)) for name in HEADER[1:]}
            if values["heading"] == column.form.heading(column.name):
                values["heading"] = ""
            for flag in ("is_optional", "in_layout"):
                values[flag] = values[flag].replace("false", "")
            writer.writerow([group, *values.values()])
    return text.getvalue()


def as_text(value: object) -> str:
    match value:
        case None:
            return ""
        case bool():
            return str(value).lower()
        case tuple():
            return ";".join(value)
        case Form():
            return next(name for name, form in FORMS.items() if form is value)
        case _:
            return str(value)


def test_the_dictionary_has_no_mistake() -> None:
    assert faults(TEXT) == []


def test_the_dictionary_is_written_as_it_is_read() -> None:
    assert written(GROUPS).splitlines() == TEXT.splitlines()
    assert not TEXT.startswith("\ufeff")
    assert "\r" not in TEXT


def line_of(**values: str) -> str:
    """Return a line of a sound column with other values."""
    column = {"group": "Model", "name": "num_layers", "kind": "int", "meaning": "Layers"}
    text = io.StringIO()
    csv.DictWriter(text, HEADER, lineterminator="\n").writerow(column | values)
    return text.getvalue()


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        (line_of(), "3: `num_layers` is already in line 2"),
        (line_of(name="x", kind="double"), "3: kind `double` is unknown"),
        (line_of(name="x", meaning=""), "3: meaning is empty"),
        (line_of(name="x", group=""), "3: group is empty"),
        (line_of(name="x", shown_as="weeks"), "3: shown_as `weeks` is unknown"),
        (line_of(name="x", storage="HUGE"), "3: storage `HUGE` is unknown"),
        (line_of(name="x", minimum="one"), "3: minimum `one` is no number"),
        (line_of(name="x", in_layout="yes"), "3: in_layout `yes` is unknown"),
        (line_of(name="x "), "3: name begins or ends with a space"),
        ("Model,x,int\n", "3: 3 fields instead of 19"),
    ],
)
def test_a_mistake_is_named_with_its_line(line: str, expected: str) -> None:
    sound = ",".join(HEADER) + "\n" + line_of()
    assert faults(sound) == []
    assert faults(sound + line) == [expected]


def test_the_lines_of_a_group_are_together() -> None:
    lines = [line_of(name=name, group=group) for name, group in zip("xyz", "ABA", strict=True)]
    assert faults(",".join(HEADER) + "\n" + "".join(lines)) == [
        "2: the lines of group `A` are not together",
        "4: the lines of group `A` are not together",
    ]


def test_a_line_becomes_a_column() -> None:
    text = ",".join(HEADER) + "\n"
    text += line_of(choices="a;b", minimum="1", maximum="1e30", above="-90", neutral="0")
    text += line_of(kind="bool", neutral="false", is_optional="true", other_names="depth;layers")
    text += line_of(kind="str", neutral="none", shown_as="days", heading="layers")
    [(group, (number, flag, words))] = read(text.splitlines()).items()
    assert group == "Model"
    assert (number.choices, number.minimum, number.maximum) == (("a", "b"), 1, 1e30)
    assert (number.above, number.neutral, number.heading) == (-90, 0, "num layers")
    assert (flag.neutral, flag.is_optional, flag.in_layout) == (False, True, False)
    assert flag.other_names == ("depth", "layers")
    assert (words.neutral, words.shown_as, words.heading) == ("none", FORMS["days"], "layers")
    assert (number.minimum.__class__, number.maximum.__class__) == (int, float)


def test_a_type_of_storage_stands_only_where_the_kind_has_another() -> None:
    assert [
        name for name, column in COLUMNS.items() if column.storage == STORAGE[column.kind]
    ] == []


def test_a_bound_or_a_form_is_of_a_number_and_choices_are_of_a_text() -> None:
    for column in COLUMNS.values():
        is_number = column.kind in ("int", "float")
        bounds = (column.minimum, column.maximum, column.above, column.shown_as)
        assert is_number or bounds == (None, None, None, None), column.name
        assert column.kind == "str" or not column.choices, column.name
