"""PDFs by hand: pages of lines at places, as small as the format allows."""


def pdf(
    *pages: list[tuple[float, float, str]], info: str = "", outline: list[tuple[str, int]] = ()
) -> bytes:
    """Make a PDF; each page is a list of (x, y, text), in the order they are drawn.

    The outline names titles, and the numbers of their pages from 0.
    """
    objects = ["<< /Type /Catalog /Pages 2 0 R /Lang (en-GB) >>"]
    kids = " ".join(f"{4 + 2 * i} 0 R" for i in range(len(pages)))
    objects.append(f"<< /Type /Pages /Kids [{kids}] /Count {len(pages)} >>")
    objects.append("<< /Type /Font /Subtype /Type1 /BaseFont /Helvetica >>")
    for i, lines in enumerate(pages):
        drawn = "\n".join(
            f"BT /F1 12 Tf {x} {y} Td ({escaped(text)}) Tj ET" for x, y, text in lines
        )
        objects.append(
            "<< /Type /Page /Parent 2 0 R /MediaBox [0 0 600 800] "
            f"/Resources << /Font << /F1 3 0 R >> >> /Contents {5 + 2 * i} 0 R >>"
        )
        objects.append(f"<< /Length {len(drawn)} >>\nstream\n{drawn}\nendstream")
    objects.append(f"<< {info} >>")
    info_number = len(objects)
    if outline:
        first, last = len(objects) + 2, len(objects) + 1 + len(outline)
        objects.append(f"<< /Type /Outlines /First {first} 0 R /Last {last} 0 R >>")
        objects[0] = objects[0].replace(">>", f"/Outlines {first - 1} 0 R >>")
        for i, (title, page) in enumerate(outline):
            following = f"/Next {first + i + 1} 0 R" if first + i < last else ""
            objects.append(
                f"<< /Title ({escaped(title)}) /Parent {first - 1} 0 R "
                f"/Dest [{4 + 2 * page} 0 R /Fit] {following} >>"
            )
    return assembled(objects, info=info_number)


def assembled(objects: list[str], *, info: int = 0) -> bytes:
    """Number the objects and write the table that finds them."""
    out, places = b"%PDF-1.4\n", []
    for number, content in enumerate(objects, start=1):
        places.append(len(out))
        out += f"{number} 0 obj\n{content}\nendobj\n".encode("latin-1")
    table = "".join(f"{place:010} 00000 n \n" for place in places)
    trailer = f"/Size {len(objects) + 1} /Root 1 0 R" + (f" /Info {info} 0 R" if info else "")
    return out + (
        f"xref\n0 {len(objects) + 1}\n0000000000 65535 f \n{table}"
        f"trailer << {trailer} >>\nstartxref\n{len(out)}\n%%EOF\n"
    ).encode("latin-1")


def escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace("(", "\\(").replace(")", "\\)")


def looped() -> bytes:
    """Make a PDF whose tree of pages leads back into itself, as does its page's content."""
    page = (
        "<< /Type /Page /Parent 2 0 R /MediaBox [0 0 600 800] /Contents [4 0 R 3 0 R] "
        "/Resources << /XObject << /X 4 0 R >> >> >>"
    )
    drawing = (
        "<< /Type /XObject /Subtype /Form /BBox [0 0 9 9] /Length 5 "
        "/Resources << /XObject << /X 4 0 R >> >> >>\nstream\n/X Do\nendstream"
    )
    tree = "<< /Type /Pages /Kids [2 0 R 3 0 R] /Count 1000000 >>"
    return assembled(["<< /Type /Catalog /Pages 2 0 R >>", tree, page, drawing])


def lines(*texts: str, top: float = 700, step: float = 14, left: float = 50):
    """Lay lines out one below the other."""
    return [(left, top - step * i, text) for i, text in enumerate(texts)]
