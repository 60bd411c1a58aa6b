"""The built site in a real browser, wide and narrow, light and dark: it asks nothing of another server, nothing sticks
out, and what a reader looks for is found."""

import json
import resource
import subprocess
import sys
from collections.abc import Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from browser import NEEDS_BROWSER, look
from helpers import ROOT
from server import LocalServer

pytestmark = [pytest.mark.slow, NEEDS_BROWSER]
PAGES = (
    "", "memory/", "library/", "batching/", "results/", "contributing/", "reference/memory/ffm/",
    "reference/env/cartpole/", "reference/env/repeat_previous/", "reference/algo/ppo/", "reference/config/",
    "reference/commands/train/", "reference/metrics/", "reference/python/",
)  # fmt: skip
OUTSIDE = """
const room = document.documentElement.clientWidth + 1
const scrolls = e => e.closest('.md-typeset__scrollwrap, pre')
return [...document.querySelectorAll('.md-content *')]
    .filter(e => e.getClientRects().length && !scrolls(e) && e.getBoundingClientRect().right > room)
    .map(e => e.outerHTML.slice(0, 120))
"""
GROUND = "return getComputedStyle(document.body).backgroundColor.match(/\\d+/g).slice(0, 3).map(Number)"
BROKEN = "return [...document.images].filter(i => i.complete && !i.naturalWidth).map(i => i.src)"
FOUND = "return [...document.querySelectorAll('.md-search-result__link')].map(a => a.href)"


@pytest.fixture(scope="module")
def built(tmp_path_factory) -> Path:
    """The site, built as `make docs` does, within a minute."""
    folder = tmp_path_factory.mktemp("site")
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    command = [
        sys.executable,
        "-m",
        "mkdocs",
        "build",
        "--quiet",
        "--strict",
        "-f",
        "docs/site/mkdocs.yml",
        "-d",
        folder,
    ]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    assert after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime < 60
    return folder


@pytest.fixture(scope="module")
def server(built) -> Iterator[str]:
    quiet = type("Quiet", (SimpleHTTPRequestHandler,), {"log_message": lambda *_: None})
    with LocalServer(partial(quiet, directory=str(built))) as serving:
        yield f"{serving.url}/"


@pytest.mark.parametrize("width", [1400, 390])
def test_pages_are_whole_and_nothing_sticks_out(chrome, server, width):
    look(chrome, width)
    chrome.get_log("performance")
    for page in PAGES:
        chrome.get(server + page)
        assert chrome.execute_script("return document.documentElement.scrollWidth") <= width, page
        assert chrome.execute_script(OUTSIDE) == [], page
        assert chrome.execute_script(BROKEN) == [], page
    entries = [json.loads(entry["message"])["message"] for entry in chrome.get_log("performance")]
    asked = [e["params"]["request"]["url"] for e in entries if e["method"] == "Network.requestWillBeSent"]
    own = (server, "data:", "blob:")
    assert [url for url in asked if not url.startswith(own)] == []
    assert [line for line in chrome.get_log("browser") if line["level"] == "SEVERE"] == []


def test_dark_follows_the_system(chrome, server):
    for dark in (False, True):
        look(chrome, 1400, dark)
        chrome.get(server)
        assert (max(chrome.execute_script(GROUND)) < 80) is dark


@pytest.mark.parametrize(
    ("words", "page"), [("Fast and Forgetful", "reference/memory/ffm/"), ("ratio_max_dev", "reference/metrics/")]
)
def test_the_search_finds_it(chrome, server, words, page):
    from selenium.webdriver.support.wait import WebDriverWait

    look(chrome, 1400)
    chrome.get(server)
    field = chrome.find_element("css selector", ".md-search__input")
    field.click()
    field.send_keys(words)
    WebDriverWait(chrome, 20).until(lambda c: any(page in link for link in c.execute_script(FOUND)))


def test_every_page_can_be_edited(built):
    """The pencil of a page leads to a file of the repository."""
    found = 0
    for file in built.rglob("*.html"):
        for line in file.read_text(encoding="utf-8").splitlines():
            if 'rel="edit"' in line:
                path = urlsplit(line.partition('href="')[2].partition('"')[0]).path
                assert (ROOT / path.removeprefix("/rlmem/rlmem/edit/main/")).is_file(), f"{file}: {path}"
                found += 1
    assert found > 150
