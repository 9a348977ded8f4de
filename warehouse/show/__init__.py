"""Text for people: number formats, units and reports."""
