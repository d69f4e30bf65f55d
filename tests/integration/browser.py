"""Pages and pictures as a reader sees them: drawn by a real browser, and not blank."""
import re
import shutil
import subprocess
import sys

from PIL import Image

MAX_SECONDS = 60
SVG = "http://www.w3.org/2000/svg"  # a name, not an address


def self_contained(page):
    """The page's text. Ends the script when it names an address, or loads anything from outside or by a script."""
    html = page.read_text()
    addresses = set(re.findall(r"[a-z]+://[^\s\"'<]*", html)) - {SVG}
    loads = re.findall(r"<(?:script|link|img|iframe|object|embed|source)\b|\b(?:src|href)\s*=|url\(|@import", html)
    if addresses or loads:
        sys.exit(f"{page}: wanted a page that needs nothing else, found {sorted(addresses)} {loads}")
    return html


def draw(file, picture, height=None):
    """A browser's picture of an HTML or SVG file. Ends the script when it is blank; returns the number of colours."""
    browser = shutil.which("chromium") or sys.exit("wanted chromium, found none; apt-get install chromium")
    height = height or (1800 if file.suffix == ".html" else 700)
    subprocess.run([browser, "--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--disable-dev-shm-usage",
                    f"--user-data-dir={picture.parent / 'browser'}", f"--window-size=1000,{height}",
                    f"--screenshot={picture}", file.resolve().as_uri()], check=True, capture_output=True, timeout=MAX_SECONDS)
    image = Image.open(picture).convert("RGB")
    colours = image.getcolors(maxcolors=1 << 24)
    drawn = 1 - max(count for count, _ in colours) / (image.width * image.height)
    if len(colours) < 30 or drawn < 0.01:
        sys.exit(f"{file} is nearly blank in a browser: {len(colours)} colours, {100 * drawn:.2f}% drawn")
    return len(colours)
