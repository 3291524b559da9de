"""`python -m pseudoquery` is the command `pseudoquery`."""

from pseudoquery.cli.command import main

if __name__ == "__main__":
    main()
