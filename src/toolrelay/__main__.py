"""`python -m toolrelay`."""

from toolrelay.cli import main

main()
