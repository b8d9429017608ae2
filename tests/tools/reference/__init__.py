"""The generated pages of the documentation: what models, `--help`, docstrings and tests say.

`uv run python -m tests.tools.reference` writes them; `test_reference.py` fails where one is stale.
"""
