"""A real browser in a process of its own: does what it reads, one line of JSON each, and says what it saw."""

import base64
import json
import struct
import sys
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal

from playwright.sync_api import ConsoleMessage, Dialog, Locator, Page, sync_playwright

ARGUMENTS = ["--headless", "--no-sandbox", "--disable-gpu", "--disable-background-networking"]
NO_SCRIPTS = "--no-scripts"
"""Our own option: scripts of pages do not run."""
MILLISECONDS = 30_000


Step = Callable[..., Any]

REDUCE = """async (png) => {
  const data = Uint8Array.from(atob(png), (each) => each.charCodeAt(0));
  const image = await createImageBitmap(new Blob([data], { type: "image/png" }));
  const canvas = new OffscreenCanvas(image.width, image.height).getContext("2d");
  canvas.drawImage(image, 0, 0);
  const bytes = new Uint32Array(canvas.getImageData(0, 0, image.width, image.height).data.buffer);
  const counts = new Map();
  for (const color of bytes) counts.set(color, (counts.get(color) ?? 0) + 1);
  const parts = (color) => [color & 255, (color >> 8) & 255, (color >> 16) & 255];
  const split = [];
  const distances = ([x, y, z]) => split.map(([r, g, b]) => (r - x) ** 2 + (g - y) ** 2 + (b - z) ** 2);
  for (const [color] of [...counts].sort((a, b) => b[1] - a[1])) {
    if (split.length < 128 && Math.min(...distances(parts(color))) > 120) split.push(parts(color));
  }
  const nearest = new Map();
  const pixels = new Uint8Array(bytes.length);
  bytes.forEach((color, at) => {
    if (!nearest.has(color)) {
      const far = distances(parts(color));
      nearest.set(color, far.indexOf(Math.min(...far)));
    }
    pixels[at] = nearest.get(color);
  });
  let text = "";
  for (let at = 0; at < pixels.length; at += 32768)
    text += String.fromCharCode(...pixels.subarray(at, at + 32768));
  return { palette: split.flat(), pixels: btoa(text) };
}"""
"""Reduces the colours of an image to the most frequent ones that differ enough."""


def indexed_png(width: int, height: int, palette: list[int], pixels: bytes) -> bytes:
    """A PNG of pixels that are numbers of colours."""

    def chunk(kind: bytes, content: bytes) -> bytes:
        whole = kind + content
        return struct.pack(">I", len(content)) + whole + struct.pack(">I", zlib.crc32(whole))

    rows = b"".join(b"\0" + pixels[at : at + width] for at in range(0, width * height, width))
    head = struct.pack(">IIBBBBB", width, height, 8, 3, 0, 0, 0)
    parts = (chunk(b"IHDR", head), chunk(b"PLTE", bytes(palette)), chunk(b"IDAT", zlib.compress(rows, 9)))
    return b"\x89PNG\r\n\x1a\n" + b"".join(parts) + chunk(b"IEND", b"")


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

    def shoot_small(path: str, height: str) -> None:
        """Take a picture of a page down to so many pixels, in few colours."""
        page = tabs[-1]
        shown = min(page.evaluate("document.documentElement.scrollHeight"), int(height))
        width = page.evaluate("document.documentElement.clientWidth")
        taken = page.screenshot(full_page=True, clip={"x": 0, "y": 0, "width": width, "height": shown})
        found = page.evaluate(REDUCE, base64.b64encode(taken).decode())
        Path(path).write_bytes(indexed_png(width, shown, found["palette"], base64.b64decode(found["pixels"])))

    def axe(script: str) -> list[str]:
        """What axe-core finds wrong with the page: the rule, what it is about, and where."""
        page = tabs[-1]
        page.evaluate(Path(script).read_text())
        found = page.evaluate("axe.run(document, {resultTypes: ['violations']})")
        return [
            f"{each['id']}: {each['help']}: {node['html'][:200]} ({node.get('failureSummary', '')[:300]})"
            for each in found["violations"]
            for node in each["nodes"]
        ]

    return {
        "open": here("goto"),
        "prepare": here("add_init_script"),
        "choose": here("select_option"),
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
        "shoot_small": shoot_small,
        "axe": axe,
        "complaints": lambda: complaints,
    }


def main() -> None:
    """Serve until the input ends."""
    options = [each for each in sys.argv[1:] if each != NO_SCRIPTS]
    has_scripts = NO_SCRIPTS not in sys.argv
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path="/usr/bin/chromium", args=[*ARGUMENTS, *options])
        context = browser.new_context(
            viewport={"width": 1200, "height": 800}, java_script_enabled=has_scripts
        )
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
                answer = {"seen": seen if step in ("value", "complaints", "axe") else None}
            except Exception as exc:  # noqa: BLE001 - the test is told, whatever it is
                answer = {"error": f"{step} {words}: {exc}\n{tabs[-1].url}\n{tabs[-1].inner_text('body')}"}
            sys.stdout.write(json.dumps(answer) + "\n")
            sys.stdout.flush()
        browser.close()


if __name__ == "__main__":
    main()
