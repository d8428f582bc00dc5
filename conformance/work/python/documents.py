"""reportlab and fpdf2: PDF with a CJK font, read again by pypdf."""
import glob

from fpdf import FPDF
from pypdf import PdfReader, PdfWriter
from reportlab.lib.pagesizes import A4
from reportlab.pdfbase import pdfmetrics
from reportlab.pdfbase.ttfonts import TTFont
from reportlab.pdfgen import canvas
from reportlab.platypus import SimpleDocTemplate, Table

checks = 0


def check(holds, what):
    global checks
    assert holds, what
    checks += 1


fonts = [p for kind in ("ttf", "otf", "ttc") for p in glob.glob(f"/usr/share/fonts*/**/*.{kind}", recursive=True)]
cjk = [p for p in fonts if p.endswith(".ttf") and any(word in p for word in ("CJK", "Droid", "wqy", "Han"))]
check(cjk, f"a TrueType font that covers CJK among {fonts}")
pdfmetrics.registerFont(TTFont("CJK", cjk[0]))
page = canvas.Canvas("/out/reportlab.pdf", pagesize=A4)
page.setFont("CJK", 24)
page.drawString(72, 700, "报告 沙漏")
page.setFont("Helvetica", 12)
page.drawString(72, 650, "Sandglass 2024")
page.showPage()
page.save()
text = PdfReader("/out/reportlab.pdf").pages[0].extract_text()
check("报告" in text and "2024" in text, f"reportlab's text is read again: {text!r}")
SimpleDocTemplate("/out/table.pdf").build([Table([["a", "b"], ["1", "2"]])])
check("a" in PdfReader("/out/table.pdf").pages[0].extract_text(), "a table")
pdf = FPDF()
pdf.add_page()
pdf.add_font("CJK", fname=cjk[0])
pdf.set_font("CJK", size=20)
pdf.cell(text="発表 数据")
pdf.set_font("Helvetica", size=12)
pdf.cell(text="Sandglass")
pdf.output("/out/fpdf.pdf")
text = PdfReader("/out/fpdf.pdf").pages[0].extract_text()
check("数据" in text and "Sandglass" in text, f"fpdf2's text is read again: {text!r}")
writer = PdfWriter()
for path in ("/out/reportlab.pdf", "/out/fpdf.pdf"):
    writer.append(path)
writer.write("/out/merged.pdf")
check(len(PdfReader("/out/merged.pdf").pages) == 2, "two documents in one")
print(f"work ok: {checks} checks")
