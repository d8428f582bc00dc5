"""Lets matplotlib list the image's fonts, and writes its cache file in one order."""
import json
import os
import sys

from matplotlib import font_manager, get_cachedir

target = sys.argv[1]
name = f"fontlist-v{font_manager.FontManager.__version__}.json"
with open(os.path.join(get_cachedir(), name), encoding="utf-8") as file:
    cache = json.load(file)
for key in ("afmlist", "ttflist"):
    # matplotlib's own files first: of two equal fonts it takes the first.
    cache[key].sort(key=lambda font: (font["fname"].startswith("/"), font["fname"], font.get("index", 0)))
families = {font["name"] for font in cache["ttflist"]}
missing = {"DejaVu Sans", "Droid Sans Fallback"} - families
if missing:
    sys.exit(f"matplotlib does not see {missing}")
# The fallback has one weight. Listed as bold too, it serves a bold title without a warning for each.
regular = next(font for font in cache["ttflist"] if font["name"] == "Droid Sans Fallback")
cache["ttflist"].append({**regular, "weight": 700})
with open(os.path.join(target, name), "w", encoding="utf-8") as file:
    json.dump(cache, file, separators=(",", ":"))
