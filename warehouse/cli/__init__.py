"""The command line: one module a command; `warehouse.cli.main` joins them.

A command parses, calls one function and prints. Data goes to stdout, talk to stderr. Nothing
heavy is imported before a command runs, so that `--help` answers at once.
"""
