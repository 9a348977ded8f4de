"""Launch files of training programs, read as columns and written from layouts; logs of runs.

A program is a table, `<program>.toml`: what each of its arguments means, in both directions
(megatron.toml says what the entries are). `read.py` finds the program of a file, `write.py` makes
one, and `written/` has what is said only in a file that is written. A new argument is a line of a
table; a new program is a table, with functions for what several arguments say together.
"""
