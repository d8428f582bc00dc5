"""Pillow: PNG, JPEG, WebP, and text with a CJK font."""
import glob
import io

from PIL import Image, ImageDraw, ImageFilter, ImageFont, features

checks = 0


def check(holds, what):
    global checks
    assert holds, what
    checks += 1


check(features.check("freetype2"), "text can be drawn")
fonts = [path for kind in ("ttf", "otf", "ttc") for path in glob.glob(f"/usr/share/fonts*/**/*.{kind}", recursive=True)]
cjk = [path for path in fonts if any(word in path for word in ("CJK", "Droid", "wqy", "Han"))]
check(cjk, f"a font that covers CJK among {fonts}")
image = Image.new("RGB", (400, 200), "white")
draw = ImageDraw.Draw(image)
font = ImageFont.truetype(cjk[0], 48)
draw.text((10, 10), "沙漏 数据", font=font, fill="black")
box = draw.textbbox((10, 10), "沙漏 数据", font=font)
check(box[2] - box[0] > 150, "the text has a width")
# A font without these characters draws the same box for each.
glyphs = {ImageFont.truetype(cjk[0], 48).getmask(character).getbbox() and bytes(font.getmask(character)) for character in "沙漏数据"}
check(len(glyphs) == 4, "four different characters")
check(image.convert("L").getextrema()[0] < 50, "something was drawn")
for kind in ("PNG", "JPEG", "WEBP"):
    data = io.BytesIO()
    image.save(data, kind)
    data.seek(0)
    with Image.open(data) as back:
        back.load()
        check(back.size == (400, 200) and back.format == kind, f"{kind} there and back")
check(image.filter(ImageFilter.GaussianBlur(2)).resize((100, 50)).size == (100, 50), "filters and sizes")
image.save("/out/text.png")
print(f"work ok: {checks} checks")
