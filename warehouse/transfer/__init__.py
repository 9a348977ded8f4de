"""Rows as files: the result of a query as one file, all facts as a folder, and a folder back."""
