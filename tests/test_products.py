"""Which library multiplies large matrices: measured once per machine, the same for all processes, said on resuming."""

import json
from functools import cache
from pathlib import Path

import pytest
import torch
from test_reliability import killed_at, run

from rlmem.errors import UserError
from rlmem.scan.matmul import FEW, linear
from rlmem.system import products

ONEDNN = pytest.mark.skipif(not products.has_onednn(), reason="torch has no oneDNN here")


@pytest.fixture
def fresh(monkeypatch, tmp_path):
    """A call makes the next question that of a new process, whose cache is empty at first."""

    def forget():
        monkeypatch.setattr(products, "library", cache(products.library.__wrapped__))

    library = products.library
    monkeypatch.delenv("RLMEM_PRODUCTS", raising=False)
    monkeypatch.setenv("RLMEM_CACHE", str(tmp_path / "cache"))
    forget()
    yield forget
    monkeypatch.setattr(products, "library", library)


def kept(tmp_path):
    (path,) = (tmp_path / "cache").iterdir()
    return path


@ONEDNN
@pytest.mark.parametrize(("ratio", "found"), [(1.05, "blas"), (1.8, "onednn")])
def test_the_faster_is_taken_and_measured_once(fresh, monkeypatch, tmp_path, ratio, found):
    times = []
    monkeypatch.setattr(products, "_ratio", lambda: times.append(ratio) or ratio)
    for _ in range(3):
        assert products.library() == found
        fresh()
    assert len(times) == 1
    assert kept(tmp_path).read_text() == f"{found}\n"


@ONEDNN
def test_what_another_process_measured_first_holds(fresh, monkeypatch, tmp_path):

    assert products.library() in ("blas", "onednn")
    path = kept(tmp_path)
    path.unlink()
    monkeypatch.setattr(products, "_ratio", lambda: path.write_text("blas\n") and 2.0)
    fresh()
    assert products.library() == "blas"


@ONEDNN
def test_a_damaged_file_is_measured_anew_and_a_lost_cache_costs_nothing_but_time(fresh, monkeypatch, tmp_path):
    monkeypatch.setattr(products, "_ratio", lambda: 2.0)
    products.library()
    path = kept(tmp_path)
    path.write_bytes(b"\xff\x00 half a")
    fresh()
    assert products.library() == "onednn"
    assert kept(tmp_path).read_text() == "onednn\n"
    for name in ("RLMEM_CACHE", "TMPDIR"):
        monkeypatch.setenv(name, str(path / "no folder"))
    monkeypatch.setattr(products, "cache_folders", lambda: [path / "no folder"])
    fresh()
    assert products.library() == "onednn"


@ONEDNN
def test_a_measurement_is_a_ratio_of_times():
    assert 0.05 < products._ratio() < 20


def test_a_name_that_is_none_is_refused(fresh, monkeypatch):
    monkeypatch.setenv("RLMEM_PRODUCTS", "mkl")
    with pytest.raises(UserError, match=r"^RLMEM_PRODUCTS=mkl: expected blas or onednn; e\.g\. unset RLMEM_PRODUCTS$"):
        products.library()


@ONEDNN
@pytest.mark.parametrize("rows", [FEW, FEW + 1])
def test_both_libraries_give_the_same_values_and_gradients(fresh, monkeypatch, rows):
    """In double precision as the truth; the libraries agree with it within rounding."""
    torch.manual_seed(0)
    x, W, b = torch.randn(rows, 24), torch.randn(40, 24), torch.randn(40)
    truth = gradients(x.double(), W.double(), b.double())
    used = []
    monkeypatch.setattr(products, "onednn_linear", lambda *a, f=products.onednn_linear: used.append(1) or f(*a))
    for name in ("blas", "onednn"):
        monkeypatch.setenv("RLMEM_PRODUCTS", name)
        fresh()
        for ours, theirs in zip(gradients(x, W, b), truth, strict=True):
            torch.testing.assert_close(ours.double(), theirs, rtol=1e-4, atol=1e-3)
        assert bool(used) == (name == "onednn" and rows > FEW)


def gradients(*leaves):
    leaves = [leaf.clone().requires_grad_() for leaf in leaves]
    y = linear(*leaves)
    return y, *torch.autograd.grad(y.square().sum(), leaves)


def test_a_run_that_goes_on_with_another_library_says_so(fresh, monkeypatch, in_tmp, capsys):
    monkeypatch.setenv("RLMEM_PRODUCTS", "blas")
    with killed_at(4):
        run("on_exists=resume")
    about = json.loads(Path("run/run.json").read_text())
    assert about["products"] == "blas"
    Path("run/run.json").write_text(json.dumps(about | {"products": "another", "versions": 3}))
    capsys.readouterr()
    run("on_exists=resume", "total_steps=600")
    assert "resumed at step 368; last digits may differ (products blas, before another)" in capsys.readouterr().out
