"""`python -m prefold`."""

if __name__ == "__main__":  # a second process imports this module too, and has no use for commands
    from prefold.cli.main import main

    main()
