"""Studies: files and flags that say which search spaces to evaluate."""
