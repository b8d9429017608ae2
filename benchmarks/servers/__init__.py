"""Servers that do next to nothing, so that whoever calls them is what is measured."""
