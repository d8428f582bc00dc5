"""What the image promises, tried once before it gets a name: modules, fonts, the font cache, no installer."""
import importlib
import importlib.metadata
import importlib.util
import io
import logging
import sys
import warnings

warnings.simplefilter("error", UserWarning)
log = io.StringIO()
logging.basicConfig(stream=log, level=logging.DEBUG)

for module in (
    "asyncio bz2 concurrent.futures csv ctypes dataclasses datetime decimal email hashlib html http.client json "
    "logging lzma multiprocessing.shared_memory pickle sqlite3 ssl statistics subprocess tempfile threading "
    "unicodedata unittest urllib.request uuid venv xml.etree.ElementTree zipfile zlib zoneinfo "
    "numpy numpy.random numpy.linalg numpy.testing pandas matplotlib.pyplot mpl_toolkits.mplot3d PIL.Image "
    "PIL.ImageDraw PIL.ImageFont reportlab.pdfgen.canvas reportlab.platypus fpdf pypdf dateutil fontTools.ttLib"
).split():
    importlib.import_module(module)
for distribution in sys.argv[1:]:
    importlib.metadata.version(distribution)
for module in ("pip", "ensurepip", "setuptools", "tkinter"):
    if importlib.util.find_spec(module):
        sys.exit(f"{module} is in the image")

import matplotlib.pyplot as plt
import zoneinfo

zoneinfo.ZoneInfo("Asia/Tokyo")
figure, axes = plt.subplots()
axes.plot([-1, 0, 1])
axes.set_title("chart 図表 图表 차트 \u2212")
image = io.BytesIO()
figure.savefig(image, format="png")
if not image.getvalue().startswith(b"\x89PNG"):
    sys.exit("matplotlib drew nothing")
said = log.getvalue()
if "generated new fontManager" in said or "Using fontManager instance from" not in said:
    sys.exit("matplotlib did not take the font cache")

from reportlab.pdfbase import pdfmetrics
from reportlab.pdfbase.ttfonts import TTFont
import fpdf

for path in (
    "/usr/share/fonts/truetype/dejavu/DejaVuSans.ttf",
    "/usr/share/fonts/truetype/droid/DroidSansFallback.ttf",
):
    pdfmetrics.registerFont(TTFont(path, path))
    pdf = fpdf.FPDF()
    pdf.add_font("font", fname=path)
    pdf.add_page()
    pdf.set_font("font", size=12)
    pdf.cell(text="sand 砂")
    if not bytes(pdf.output()).startswith(b"%PDF"):
        sys.exit("fpdf2 made no PDF")
