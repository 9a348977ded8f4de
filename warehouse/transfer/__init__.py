"""The rows of a query as a file."""
