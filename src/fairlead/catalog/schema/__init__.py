"""Tools' JSON Schemas: normalized to 2020-12, checked in bounded time, and arguments coerced to them."""
