"""Tool search over an immutable index. Other packages use `search.search`, `index.Index` and `vectors`.

`tokenize` makes terms of texts (stems, synonyms), `query` parses queries, and `score` ranks by name, by
words (`sums`, or with numpy `array_scores`) and by meaning (`vectors`, `embedded`). `memory` has past
queries.
"""
