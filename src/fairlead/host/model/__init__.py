"""What a model gets: toolsets, bundles, meta-tools, their cost, and why a tool is offered or not."""
