"""Pictures of stored rows: a query, a chart and an entry of the registry each.

Needs the extra `plots` (Altair and vl-convert). Nothing here imports it before a picture is drawn.
"""
