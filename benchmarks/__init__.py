"""Measurements, each side by side with what it is compared with, in one run."""
