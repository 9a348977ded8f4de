"""The command line: one module a command; `warehouse.cli.main` joins them.

A command parses, calls one function and prints. Data goes to stdout, messages to stderr. Libraries
are imported only when a command runs, so that `--help` is fast.
"""
