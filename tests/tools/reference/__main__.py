"""Write every generated page into `docs/`."""

from tests.tools.reference.pages import DOCS, generated_pages

for name, text in generated_pages().items():
    path = DOCS / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
