"""The built-in `docs` server: pages of allowed sites as Markdown.

`docs` has the tool and its cache, `allowlist` the sites, `fetch` one request, `pages` the parsing in a
process of its own, by `html` and `markdown`.
"""
