"""Rows as files: exports a query as a file, and all facts as a folder; imports such a folder."""
