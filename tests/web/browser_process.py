"""A real browser in a process of its own: does what it reads, one line of JSON each, and says what it saw."""

import json
import sys
from collections.abc import Callable
from typing import Any, Literal

from playwright.sync_api import ConsoleMessage, Dialog, Locator, Page, sync_playwright

ARGUMENTS = ["--headless", "--no-sandbox", "--disable-gpu", "--disable-background-networking"]
MILLISECONDS = 30_000


Step = Callable[..., Any]


def steps(page: Page, complaints: list[str]) -> dict[str, Step]:
    """What can be asked for."""

    def shown(selector: str, text: str) -> Locator:
        return page.locator(selector).filter(has_text=text).first

    def see(selector: str, text: str) -> None:
        shown(selector, text).wait_for()

    def gone(selector: str, text: str) -> None:
        shown(selector, text).wait_for(state="detached")

    def scheme(name: Literal["light", "dark"]) -> None:
        page.emulate_media(color_scheme=name)

    def shoot(path: str) -> None:
        page.screenshot(path=path, full_page=True)

    return {
        "open": page.goto,
        "fill": page.fill,
        "click": page.click,
        "press": page.keyboard.press,
        "see": see,
        "gone": gone,
        "value": page.evaluate,
        "scheme": scheme,
        "shoot": shoot,
        "complaints": lambda: complaints,
    }


def main() -> None:
    """Serve until the input ends."""
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path="/usr/bin/chromium", args=ARGUMENTS)
        page = browser.new_page(viewport={"width": 1200, "height": 800})
        page.set_default_timeout(MILLISECONDS)
        complaints: list[str] = []

        def complain(message: ConsoleMessage) -> None:
            if message.type == "error":
                complaints.append(message.text)

        def dismiss(dialog: Dialog) -> None:
            complaints.append(f"dialog: {dialog.message}")
            dialog.dismiss()

        page.on("console", complain)
        page.on("pageerror", lambda error: complaints.append(str(error)))
        page.on("dialog", dismiss)
        known = steps(page, complaints)
        for line in sys.stdin:
            step, *words = json.loads(line)
            try:
                seen = known[step](*words)
                answer = {"seen": seen if step in ("value", "complaints") else None}
            except Exception as exc:  # noqa: BLE001 - the test is told, whatever it is
                answer = {"error": f"{step} {words}: {exc}\n{page.url}\n{page.inner_text('body')}"}
            sys.stdout.write(json.dumps(answer) + "\n")
            sys.stdout.flush()
        browser.close()


if __name__ == "__main__":
    main()
