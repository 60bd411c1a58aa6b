"""The pages of the notebooks: their text and code, and the file itself."""

import nbformat

from reference.markdown import ROOT, Page

FOLDER = "docs/notebooks"


def pages() -> dict[str, Page]:
    found = {}
    for path in sorted((ROOT / FOLDER).glob("*.ipynb")):
        cells = nbformat.read(path, as_version=4).cells
        texts = [cell.source if cell.cell_type == "markdown" else f"```python\n{cell.source}\n```" for cell in cells]
        texts.insert(1, f"[Download the notebook]({path.name})")
        found[f"notebooks/{path.stem}.md"] = Page("\n\n".join(texts) + "\n", f"{FOLDER}/{path.name}")
    return found
