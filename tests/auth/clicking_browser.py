"""A real browser, in a process of its own: opens a page, presses a button, says what the next page says."""

import sys

from playwright.sync_api import sync_playwright

ARGUMENTS = ["--headless", "--no-sandbox", "--disable-gpu", "--disable-background-networking"]


def command(url: str, button: str) -> list[str]:
    """The command line that has a browser do this."""
    return [sys.executable, "-m", "tests.auth.clicking_browser", url, button]


def main() -> None:
    url, button = sys.argv[1:]
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path="/usr/bin/chromium", args=ARGUMENTS)
        page = browser.new_page()
        page.goto(url)
        page.click(f"text={button}")
        page.wait_for_url("**/callback?**")
        print(page.inner_text("body"))  # noqa: T201 - this is how it answers
        browser.close()


if __name__ == "__main__":
    main()
