"""A real browser in a process of its own: does what it reads, one line of JSON each, and says what it saw."""

import json
import sys
from collections.abc import Callable
from typing import Any, Literal

from playwright.sync_api import ConsoleMessage, Dialog, Locator, Page, sync_playwright

ARGUMENTS = ["--headless", "--no-sandbox", "--disable-gpu", "--disable-background-networking"]
MILLISECONDS = 30_000


Step = Callable[..., Any]


def steps(tabs: list[Page], complaints: list[str]) -> dict[str, Step]:  # noqa: C901 - one function each
    """What can be asked for: of the tab that was opened last."""

    def here(method: str) -> Step:
        return lambda *words: getattr(tabs[-1], method)(*words)

    def press(key: str) -> None:
        tabs[-1].keyboard.press(key)

    def shown(selector: str, text: str) -> Locator:
        return tabs[-1].locator(selector).filter(has_text=text).first

    def see(selector: str, text: str) -> None:
        shown(selector, text).wait_for()

    def gone(selector: str, text: str) -> None:
        shown(selector, text).wait_for(state="detached")

    def follow(selector: str) -> None:
        """Click on what opens a tab of its own, and go on there: it is others' page, so it may complain."""
        with tabs[-1].context.expect_page() as opened:
            tabs[-1].click(selector)
        tabs.append(opened.value)

    def leave() -> None:
        """Close the tab, and go on in the one before."""
        tabs.pop().close()

    def scheme(name: Literal["light", "dark"]) -> None:
        tabs[-1].emulate_media(color_scheme=name)

    def size(width: str, height: str) -> None:
        tabs[-1].set_viewport_size({"width": int(width), "height": int(height)})

    def shoot(path: str) -> None:
        tabs[-1].screenshot(path=path, full_page=True)

    return {
        "open": here("goto"),
        "fill": here("fill"),
        "click": here("click"),
        "press": press,
        "follow": follow,
        "leave": leave,
        "see": see,
        "gone": gone,
        "value": here("evaluate"),
        "scheme": scheme,
        "size": size,
        "shoot": shoot,
        "complaints": lambda: complaints,
    }


def main() -> None:
    """Serve until the input ends."""
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path="/usr/bin/chromium", args=ARGUMENTS)
        context = browser.new_context(viewport={"width": 1200, "height": 800})
        context.set_default_timeout(MILLISECONDS)
        complaints: list[str] = []

        def complain(message: ConsoleMessage) -> None:
            if message.type == "error":
                complaints.append(message.text)

        def dismiss(dialog: Dialog) -> None:
            complaints.append(f"dialog: {dialog.message}")
            dialog.dismiss()

        page = context.new_page()
        page.on("console", complain)
        page.on("pageerror", lambda error: complaints.append(str(error)))
        page.on("dialog", dismiss)
        tabs = [page]
        known = steps(tabs, complaints)
        for line in sys.stdin:
            step, *words = json.loads(line)
            try:
                seen = known[step](*words)
                answer = {"seen": seen if step in ("value", "complaints") else None}
            except Exception as exc:  # noqa: BLE001 - the test is told, whatever it is
                answer = {"error": f"{step} {words}: {exc}\n{tabs[-1].url}\n{tabs[-1].inner_text('body')}"}
            sys.stdout.write(json.dumps(answer) + "\n")
            sys.stdout.flush()
        browser.close()


if __name__ == "__main__":
    main()
