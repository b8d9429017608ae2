"""Tools, results and other offers of servers as values, without I/O.

Other packages use `tools` (`ToolKey`, `ToolEntry`, `Listing`), `catalog`, `results`, `definitions`, `naming`,
`signatures`, and of the sub-packages `sanitize.gate`, `repair`, `schema.validate` and `search.search`.
"""
