"""The interactive terminal host: `fairlead console`."""
