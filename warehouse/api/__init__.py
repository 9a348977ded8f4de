"""The warehouse in Python: what the commands do, as methods with polars frames."""
