"""The control API: commands of the command line, carried out by a running gateway."""
