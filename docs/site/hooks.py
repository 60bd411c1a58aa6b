"""What MkDocs calls while it builds the site."""

import posixpath
from typing import Any

from documents import TOP, for_the_site, pictures
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.exceptions import PluginError
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page
from reference import pages
from reference.markdown import ROOT

from rlmem.evidence.page.documents import data_text
from rlmem.evidence.page.find import find, published
from rlmem.evidence.records import compressed

DATA = "results.csv.gz"
"""The place of the file with all published numbers, to which results/README.md links."""
generated = pages()
"""The pages that are made from the code, once for a build."""


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Put the generated pages into the navigation, where it names their folders."""
    config.nav = expanded(config.nav)
    return config


def expanded(nav: Any) -> Any:
    """The navigation with the pages of a folder in the place of `FOLDER/`, its index first."""
    if isinstance(nav, list):
        return [expanded(item) for item in nav]
    if isinstance(nav, dict):
        return {title: expanded(item) for title, item in nav.items()}
    if not nav.endswith("/"):
        return nav
    listed = [place for place in generated if posixpath.dirname(place) == nav.rstrip("/")]
    if not listed:
        raise PluginError(f"mkdocs.yml: nav: {nav} has no pages")
    return [place if place.endswith("index.md") else {title_of(place): place} for place in listed]


def title_of(place: str) -> str:
    return generated[place].text.partition("\n")[0].removeprefix("# ").rpartition("=")[2].removeprefix("rlmem ")


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the generated pages, documents of the repository's top, and the pictures of both."""
    for place, page in generated.items():
        add(files, config, place, page.text, page.source)
        for name, content in page.pictures.items():
            add(files, config, posixpath.join(posixpath.dirname(place), name), content, page.source)
    for path, place in TOP.items():
        text = (ROOT / path).read_text(encoding="utf-8")
        add(files, config, place, text, path)
        for picture in pictures(text):
            add(files, config, picture, (ROOT / picture).read_bytes(), picture)
    numbers = data_text(published(find([ROOT / "results"]), "make docs"))
    add(files, config, DATA, compressed(numbers), "results/README.md")
    return files


def add(files: Files, config: MkDocsConfig, place: str, content: str | bytes, source: str) -> None:
    """Add a file that is made in memory; `source` is what "edit this page" opens."""
    file = File.generated(config, place, content=content)
    file.edit_uri = f"../{source}"
    files.append(file)


def on_page_markdown(markdown: str, page: Page, **kwargs: Any) -> str:
    """Adapt documents of the repository to the site."""
    if page.file.src_uri in generated:
        return markdown
    sources = {place: path for path, place in TOP.items()}
    return for_the_site(markdown, sources.get(page.file.src_uri, f"docs/{page.file.src_uri}"))
