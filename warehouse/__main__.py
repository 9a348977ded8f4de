"""``python -m warehouse`` is the program `warehouse`."""

from warehouse.cli.main import main

if __name__ == "__main__":
    main()
