"""Configuration formats of other agents, one module per format, converted to and from Fairlead's own.

Other packages use `registry` (find, detect, by name), `dialect` (the types) and `syntax` (text of files).
"""
