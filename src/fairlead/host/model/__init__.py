"""Tools for models: toolsets, bundles, meta-tools, their token cost, and why a tool is offered or not."""
