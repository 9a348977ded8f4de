"""docs/pictures/report.png: the first screen of a report, as Chromium shows it."""

from __future__ import annotations

import shutil
from pathlib import Path

from docs.build.console import printed

COMMAND = "warehouse report --model llama3_70B --tokens 15T --accelerator H100 --gpus 1024"
"""A command of docs/planning.md."""

PICTURE = Path(__file__).parents[1] / "pictures" / "report.png"
WIDTH, HEIGHT = 1000, 1180


def draw(folder: Path) -> bool:
    """Draw the picture from the default database of `folder`; return False without Chromium."""
    browser = next(filter(None, map(shutil.which, ("chromium", "chromium-browser"))), None)
    if browser is None:
        return False
    from playwright.sync_api import sync_playwright

    printed(f"{COMMAND} --out picture.html", folder)
    with sync_playwright() as driver:
        opened = driver.chromium.launch(executable_path=browser, args=["--no-sandbox"])
        page = opened.new_page(viewport={"width": WIDTH, "height": HEIGHT})
        page.goto((folder / "picture.html").as_uri())
        page.wait_for_selector("html[data-drawn]")
        page.screenshot(path=PICTURE)
        opened.close()
    return True
