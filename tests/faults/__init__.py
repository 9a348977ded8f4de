"""A campaign of faults: `python -m tests.faults` kills, fills disks, damages files, and checks."""
