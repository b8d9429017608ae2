"""`python -m fairlead`."""

from fairlead.cli.main import run_program

run_program()
