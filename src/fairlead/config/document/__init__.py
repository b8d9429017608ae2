"""Configuration files: JSON with comments, edited in place, read and written with care."""
