"""`python -m prefold`."""

from prefold.cli.main import main

if __name__ == "__main__":
    main()
