"""`warehouse repair`: rebuild a damaged database."""

from __future__ import annotations

from warehouse.cli.common import say
from warehouse.cli.options import DEFAULT_DATABASE, Database
from warehouse.show.formats import count


def repair(db: Database = DEFAULT_DATABASE) -> None:
    """Rebuild a damaged database from what can be read.

    Every value is read, as by `validate --deep`. If some cannot be read, the others are copied to a
    new file, and damaged cells of studies are evaluated again. The new file replaces the damaged
    one, which is kept under another name. Cells that came from a file of configurations are only
    named. This needs free disk space for the copy.
    """
    from warehouse.cli.validate import say_damage
    from warehouse.sweep.repair import repair as repaired

    report = repaired(db)
    if report.kept is None:
        say(f"{db}: every value of every table can be read, nothing to repair")
        return
    say_damage(report.damage)
    cells, rows = count(report.cells, "cell"), count(report.rows, "row")
    say(f"{db}: repaired, {cells} with {rows} evaluated again; {report.kept} is the damaged file")
    for study, number in report.lost:
        say(f"warning: {count(number, 'cell')} of {study} are lost: evaluate its file again")
