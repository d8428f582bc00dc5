"""matplotlib: PNG, SVG and PDF with CJK text, and no wait for a font cache."""
import io
import logging
import time
import warnings

started = time.monotonic()
log = io.StringIO()
logging.basicConfig(stream=log, level=logging.INFO)
warnings.simplefilter("error")

import matplotlib
import matplotlib.pyplot as plt
from matplotlib import font_manager

checks = 0


def check(holds, what):
    global checks
    assert holds, what
    checks += 1


check(matplotlib.get_backend().lower() == "agg", "a backend without a screen")
families = {entry.name for entry in font_manager.fontManager.ttflist}
cjk = [name for name in families if any(word in name for word in ("CJK", "Droid Sans Fallback", "WenQuanYi", "Source Han", "Noto Sans SC"))]
check(cjk, f"a font that covers CJK among {sorted(families)}")
check("DejaVu Sans" in families, "DejaVu")
plt.rcParams["font.family"] = ["DejaVu Sans", cjk[0]]
figure, axes = plt.subplots()
axes.plot([1, 2, 3], [1, 4, 9], label="売上 收入")
axes.set_title("沙漏 Sandglass")
axes.legend()
for kind, head in (("png", b"\x89PNG"), ("svg", b"<?xml"), ("pdf", b"%PDF")):
    path = f"/out/chart.{kind}"
    figure.savefig(path)
    with open(path, "rb") as f:
        data = f.read()
    check(data.startswith(head) and len(data) > 2000, f"a {kind}")
said = log.getvalue()
check("font cache" not in said and "generated new fontManager" not in said, f"no font cache is built: {said}")
check(time.monotonic() - started < 30, "no long wait")
from PIL import Image
with Image.open("/out/chart.png") as image:
    check(image.size[0] > 300 and len(set(image.convert("L").resize((64, 64)).tobytes())) > 5, "the picture shows something")
print(f"work ok: {checks} checks")
