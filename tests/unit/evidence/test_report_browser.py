"""The page of `rlmem report` in a real browser: it asks nothing of the network, and all of it can be seen and used."""

import json
from pathlib import Path

import pytest
from browser import NEEDS_BROWSER, look
from made_results import results, run_folder

from rlmem.commands.cli import main

pytestmark = NEEDS_BROWSER
OUTSIDE = """
return [...document.querySelectorAll('body *')]
    .filter(e => !e.closest('.scroll') && e.getBoundingClientRect().right > document.documentElement.clientWidth + 1)
    .map(e => e.outerHTML.slice(0, 80))
"""
CHARTS = """
return [...document.querySelectorAll('.panels img')].map(image => {
    const box = image.getBoundingClientRect()
    return {width: box.width, height: box.height, room: image.parentElement.clientWidth, drawn: image.naturalWidth,
            ground: getComputedStyle(image).backgroundColor}
})
"""
CELLS = """
const table = [...document.querySelectorAll('table')].find(t => t.textContent.includes('greedy evaluation return'))
const metric = [...table.rows[0].cells].findIndex(cell => cell.textContent.includes('greedy evaluation return'))
table.scrollIntoView()
const room = table.parentElement.getBoundingClientRect()
return [...table.tBodies[0].rows].map(row => [row.cells[0], row.cells[metric]].map(cell => {
    const box = cell.getBoundingClientRect()
    const inside = room.left <= box.left + 1 && box.right <= room.right + 1
    const seen = document.elementFromPoint(box.left + 5, box.top + 5)
    return {left: box.left, inside, covered: !cell.contains(seen)}
}))
"""
DQN = "algo=dqn algo.random_steps=9 algo.learning_starts=99 algo.lr=0.01"
PPO = "algo=ppo algo.num_minibatches=1 algo.rollout_slots=64 algo.epochs=2"
MIXED = (
    (f"memory=gru env=repeat_first {DQN} batching=segment batching.length=16 total_steps=200", [0.1, 0.2]),
    (f"memory=mlp env=repeat_previous {PPO} total_steps=100 init_from=other evaluation.every=100", [0.1]),
    (f"memory=ffm env=repeat_first {PPO} total_steps=400 env.level=hard", []),
)
LUMINANCE = """
const light = colour => {
    const parts = colour.match(/[\\d.]+/g).slice(0, 3).map(Number)
        .map(x => x / 255).map(x => x <= 0.03928 ? x / 12.92 : ((x + 0.055) / 1.055) ** 2.4)
    return 0.2126 * parts[0] + 0.7152 * parts[1] + 0.0722 * parts[2]
}
const ground = light(getComputedStyle(document.body).backgroundColor)
const contrast = (e, name) => {
    const own = light(getComputedStyle(e)[name])
    return (Math.max(own, ground) + 0.05) / (Math.min(own, ground) + 0.05)
}
const least = (selector, name) => Math.min(...[...document.querySelectorAll(selector)].map(e => contrast(e, name)))
return {ground: ground, text: least('body, dt, th, a, .caption', 'color')}
"""


@pytest.fixture(scope="module")
def file(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("page")
    assert main(["report", str(results(folder / "results")), "--out", str(folder / "page.html")]) == 0
    return folder / "page.html"


@pytest.fixture
def browser(chrome, file):
    """The page as it is when it was just opened, on a wide and light screen."""
    look(chrome, 1280)
    chrome.get(file.as_uri())
    return chrome


@pytest.mark.slow
def test_nothing_is_asked_of_the_network_and_nothing_goes_wrong(browser, file):
    browser.get_log("performance"), browser.get_log("browser")
    browser.get(file.as_uri())
    entries = [json.loads(entry["message"])["message"] for entry in browser.get_log("performance")]
    asked = [e["params"]["request"]["url"] for e in entries if e["method"] == "Network.requestWillBeSent"]
    assert [url for url in asked if not url.startswith("data:")] == [file.as_uri()]
    assert browser.execute_script("return performance.getEntriesByType('resource').map(e => e.name)") == []
    assert browser.get_log("browser") == []


@pytest.mark.parametrize("width", [1280, 390])
def test_every_chart_is_seen_as_wide_as_there_is_room(browser, width):
    look(browser, width)
    charts = browser.execute_script(CHARTS)
    assert len(charts) > 2
    for chart in charts:
        assert chart["width"] == pytest.approx(chart["room"], abs=1)
        assert chart["height"] > 0.5 * chart["width"] > 100
        assert chart["drawn"] > 0


def test_on_a_phone_nothing_sticks_out_but_what_scrolls_by_itself(browser):
    look(browser, 390)
    width, seen = browser.execute_script("return [document.documentElement.scrollWidth, innerWidth]")
    assert width <= seen == 390
    assert browser.execute_script(OUTSIDE) == []
    scrolled = "return [...document.querySelectorAll('.scroll')].filter(e => e.scrollWidth > e.clientWidth).length"
    assert browser.execute_script(scrolled) > 0


@pytest.fixture(scope="module")
def mixed(tmp_path_factory) -> Path:
    """The page of two runs that differ in much, and of one that has just begun."""
    folder = tmp_path_factory.mktemp("mixed")
    for k, (words, values) in enumerate(MIXED):
        run_folder(folder / f"{k}", words, values)
    assert main(["report", str(folder), "--out", str(folder / "page.html")]) == 0
    return folder / "page.html"


@pytest.mark.slow
@pytest.mark.parametrize("width", [500, 1280, 2400])
def test_of_mixed_runs_the_metric_is_seen_without_scrolling_and_the_label_always(chrome, mixed, width):
    look(chrome, width)
    chrome.get(mixed.as_uri())
    assert chrome.execute_script(OUTSIDE) == []
    rows = chrome.execute_script(CELLS)
    assert len(rows) == 3 and all(cell["inside"] for row in rows for cell in row)
    chrome.execute_script("document.querySelectorAll('.scroll').forEach(e => e.scrollLeft = 9999)")
    for (before, metric), (after, moved) in zip(rows, chrome.execute_script(CELLS), strict=True):
        assert after["inside"] and after["left"] == before["left"] and not after["covered"]
        assert width > 500 or moved["left"] < metric["left"], "on a narrow screen there was something to scroll"


@pytest.mark.slow
@pytest.mark.parametrize("dark", [False, True])
def test_text_stands_out_in_light_and_dark_and_pictures_are_on_white(browser, dark):
    look(browser, 1280, dark)
    seen = browser.execute_script(LUMINANCE)
    assert (seen["ground"] < 0.05) is dark
    assert seen["text"] >= 4.5
    assert {chart["ground"] for chart in browser.execute_script(CHARTS)} == {"rgb(255, 255, 255)"}
