"""Other programs' files about MCP servers, one module per format: read into our words, written from them."""
