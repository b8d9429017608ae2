"""Types of the part of PyStemmer that is used here; it has none of its own."""

class Stemmer:
    def __init__(self, algorithm: str, cache_size: int = ..., /) -> None: ...
    def stemWord(self, word: str) -> str: ...  # noqa: N802 - its name there
