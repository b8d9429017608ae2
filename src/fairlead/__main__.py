"""`python -m fairlead`."""

from fairlead.cli.main import main

main()
