"""Launch files of training programs, read as columns, and the logs of their runs."""
