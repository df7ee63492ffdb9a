"""`python -m vestige`: the same as the command `vestige`."""

from vestige.cli.main import main

if __name__ == "__main__":
    main()
