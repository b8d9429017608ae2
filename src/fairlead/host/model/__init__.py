"""Tools for models: toolsets, bundles, meta-tools, their token cost, and why a tool is offered or not.

Programs get a `toolset.Toolset` from the host. `bundles` selects, `catalogs` caches what is known,
`meta_tools`, `resource_tools` and `search_answers` are Fairlead's own tools, `costs` counts tokens,
`explain` gives reasons.
"""
