"""One table in four forms, which tests/data/table holds."""

import csv
import io

import numpy as np
import pytest
from helpers import ROOT

from rlmem.evidence.statistics import interval, mean
from rlmem.record.tables import Table, Value, cell_text, in_markdown

SMALL = Table(
    "Return, 5 % gone",
    ["task_id", "FFM", "runs"],
    [
        ["repeat|first", Value(0.53149, low=0.4, high=0.6, n=5), 5],
        ["b & c", Value(-1.25, std=0.2, n=3), None],
        ["none", Value(float("nan"), n=0), 1],
    ],
)


@pytest.mark.parametrize("form", ["markdown", "latex", "csv", "text"])
def test_a_table_is_written_in_four_forms(monkeypatch, form):
    """The text is plain, however narrow the terminal and whatever its colours."""
    monkeypatch.setenv("COLUMNS", "10")
    monkeypatch.setenv("FORCE_COLOR", "1")
    assert getattr(SMALL, form)() == (ROOT / f"tests/data/table/{form}.txt").read_text(encoding="utf-8")
    broken = getattr(Table("", ["a"], [["one\ntwo"]]), form)()
    assert ("one\ntwo" if form == "csv" else "one two") in broken
    assert "FFM" in getattr(Table("", ["task", "FFM"], []), form)(), "a table without rows has its head"


def test_every_special_letter_of_latex_is_escaped():
    table = Table("", ["x"], [["a\\b~c^d {e} #1 $2 50% _f <g> x-1 -2"]])
    assert (
        r"a\textbackslash{}b\textasciitilde{}c\textasciicircum{}d \{e\} \#1 \$2 50\% \_f "
        r"\textless{}g\textgreater{} x-1 $-$2 \\"
    ) in table.latex().splitlines()
    assert "caption" not in table.latex()


def test_texts_are_folded_to_a_width_and_numbers_stay_whole():
    table = Table("", ["what is said", "mean"], [["a sentence of several words", Value(1.0, low=0.5, high=1.5)]])
    lines = table.text(36).splitlines()
    assert max(map(len, lines)) <= 36 < max(map(len, table.text().splitlines()))
    assert sum("1.000 [0.500, 1.500]" in line for line in lines) == 1
    assert " ".join(line[:13].strip() for line in lines[2:]).split() == ["a", "sentence", "of", "several", "words"]
    assert table.text(20) == table.text(), "what does not fit is not cut"


def test_digits_are_of_the_table_and_integers_have_none():
    assert "| 12.3 | 12 |" in Table("", ["a", "b"], [[12.34, 12]], digits=1).markdown()
    assert cell_text(Value(2, std=0.5), 1) == "2 ± 0.5"
    assert cell_text(np.float64(0.5), 2) == "0.50"
    assert cell_text(np.int64(1200)) == "1200"  # type: ignore[arg-type]
    assert cell_text(None) == cell_text(float("nan")) == "–"
    assert cell_text(Value(1.0, low=float("nan"), high=float("nan")), 1) == "1.0"


def test_large_numbers_have_fewer_decimals_unless_their_spread_needs_them():
    assert [cell_text(x) for x in (0.0, 0.03142, -9.76, 31.4159)] == ["0.000", "0.031", "-9.760", "31.42"]
    assert [cell_text(x) for x in (314.159, 98816.0, float("inf"))] == ["314.2", "98816", "inf"]
    assert [cell_text(x, 1) for x in (12.34, 1234.4)] == ["12.3", "1234"]
    assert [cell_text(x, 5) for x in (0.00031, 1.23456789)] == ["0.00031", "1.23457"]
    assert cell_text(Value(1234.4, low=1234.1, high=1234.75)) == "1234.40 [1234.10, 1234.75]"
    assert cell_text(Value(26.69, low=23.18, high=28.65)) == "26.69 [23.18, 28.65]"
    assert cell_text(Value(314.2, std=0.02)) == "314.200 ± 0.020"


def test_an_interval_is_a_cell():
    found = interval([[0.0], [1.0], [0.5]], mean, rng=np.random.default_rng(0), repetitions=100)
    assert Value.of(found) == Value(0.5, low=found.low, high=found.high, n=3)


def test_a_row_that_does_not_fit_is_refused():
    with pytest.raises(ValueError, match=r"2 columns, but a row of 1: \['a'\]"):
        Table("", ["x", "y"], [["a"]])


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("<script>x</script>", "&lt;script>x&lt;/script>"),
        ("[a](javascript:x)", r"[a\](javascript:x)"),
        ("![a](http://x)", r"![a\](http://x)"),
        ("a|b", r"a\|b"),
        ("# a\n# b", r"\# a # b"),
        ("**a** _b_ c_d 2 * 3", r"\*\*a\*\* \_b\_ c_d 2 * 3"),
        ("`<b>` <b>", "`<b>` &lt;b>"),
        ("`a``` `<b>` `", "`a``` `&lt;b>` `"),
        (r"\`<b>`", r"\\`<b>`"),
        ("&lt; & x < 1", "&amp;lt; & x < 1"),
    ],
)
def test_a_text_in_markdown_shows_as_it_is(text, shown):
    assert in_markdown(text) == shown
    assert f"| {shown} |" in Table("", ["a"], [[text]]).markdown()


def test_no_field_of_csv_is_a_formula_and_numbers_stay_numbers():
    exact = Table("", ["a, b", 'say "x"'], [["one\ntwo", 0.1 + 0.2]]).csv()
    assert list(csv.reader(io.StringIO(exact))) == [["a, b", 'say "x"'], ["one\ntwo", "0.30000000000000004"]]
    texts = ["=1+1", "+a", "-a", "@a", "\ta", "\ra", "-1.5", "+2", "a=b", ""]
    rows = list(csv.reader(io.StringIO(Table("", ["=x"], [[text] for text in texts]).csv())))
    assert [row[0] for row in rows] == ["'=x", "'=1+1", "'+a", "'-a", "'@a", "'\ta", " a", "-1.5", "+2", "a=b", ""]
