"""Draw docs/pictures/report.png: the first screen of a report, as Chromium shows it.

Usage: ``python -m benchmarks.report_picture [DATABASE]``. The command is that of docs/planning.md.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

from playwright.sync_api import sync_playwright

COMMAND = (
    *("warehouse", "report", "--model", "llama3_70B", "--tokens", "15T"),
    *("--accelerator", "H100", "--gpus", "1024", "--out", "plan.html"),
)
PICTURE = Path(__file__).parents[1] / "docs" / "pictures" / "report.png"
WIDTH, HEIGHT = 1000, 1180


def main() -> None:
    """Write the report of `COMMAND` and a picture of its first screen."""
    browser = next(filter(None, map(shutil.which, ("chromium", "chromium-browser"))), None)
    if browser is None:
        sys.exit("error: Chromium is not installed\nhint: apt-get install chromium")
    database = {"WAREHOUSE_DB": str(Path(sys.argv[1]).absolute())} if len(sys.argv) > 1 else {}
    with TemporaryDirectory() as folder:
        program = shutil.which("warehouse", path=str(Path(sys.executable).parent))
        words = [str(program), *COMMAND[1:]]
        subprocess.run(words, cwd=folder, check=True, env={**os.environ, **database})
        with sync_playwright() as driver:
            opened = driver.chromium.launch(executable_path=browser, args=["--no-sandbox"])
            page = opened.new_page(viewport={"width": WIDTH, "height": HEIGHT})
            page.goto((Path(folder) / "plan.html").as_uri())
            page.wait_for_selector("html[data-drawn]")
            page.screenshot(path=PICTURE)
            opened.close()


if __name__ == "__main__":
    main()
