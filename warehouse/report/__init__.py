"""A plan as one page: it opens offline, explains itself, and recomputes prices and power."""
