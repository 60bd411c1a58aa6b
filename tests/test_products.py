"""Which library multiplies large matrices: measured once per machine, the same for all processes, said on resuming."""

import json
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
        products.take(None)
        products.faster.cache_clear()
        products._measured.cache_clear()

    monkeypatch.delenv("RLMEM_PRODUCTS", raising=False)
    monkeypatch.setenv("RLMEM_CACHE", str(tmp_path / "cache"))
    forget()
    yield forget
    forget()


def kept(tmp_path):
    (path,) = (tmp_path / "cache").iterdir()
    return path


@ONEDNN
@pytest.mark.parametrize(("ratio", "found"), [(1.01, "blas"), (1.8, "onednn")])
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
    products.library()
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
    monkeypatch.setattr(products, "cache_folders", lambda: [path / "no folder"])
    fresh()
    assert products.library() == "onednn"


@ONEDNN
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_what_is_measured_are_float32_products_whatever_the_default(dtype):
    before = torch.get_default_dtype()
    torch.set_default_dtype(dtype)
    try:
        assert 0.05 < products._ratio() < 20
    finally:
        torch.set_default_dtype(before)


@pytest.mark.parametrize(("name", "there"), [("mkl", True), ("onednn", False)])
def test_a_library_that_is_not_here_is_refused_before_anything_is_written(fresh, monkeypatch, in_tmp, name, there):
    monkeypatch.setenv("RLMEM_PRODUCTS", name)
    monkeypatch.setattr(products, "has_onednn", lambda: there)
    with pytest.raises(
        UserError, match=rf"^RLMEM_PRODUCTS={name}: accepted here: [a-z, ]+; e\.g\. unset RLMEM_PRODUCTS$"
    ):
        run()
    assert not Path("run").exists()


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


@ONEDNN
def test_a_resumed_run_keeps_its_library_and_says_what_is_another(fresh, monkeypatch, in_tmp, capsys):
    monkeypatch.setenv("RLMEM_PRODUCTS", "onednn")
    with killed_at(4):
        run("on_exists=resume")
    monkeypatch.delenv("RLMEM_PRODUCTS")
    monkeypatch.setattr(products, "_ratio", lambda: 1.0)
    file, text = Path("run/run.json"), Path("run/run.json").read_text()
    assert json.loads(text)["products"] == "onednn"
    run("on_exists=resume", "total_steps=400")
    assert "resumed at step 368\n" in capsys.readouterr().out
    assert json.loads(file.read_text())["resumed"][0]["products"] == "onednn"
    monkeypatch.setenv("RLMEM_PRODUCTS", "blas")
    file.write_text(json.dumps(json.loads(text) | {"versions": {"torch": "1\x1b[31m\n"}, "machine": 3}))
    run("on_exists=resume", "total_steps=500")
    said = f"(torch: 1[31m before, {torch.__version__} now; products: onednn before, blas now)"
    assert f"resumed at step 400; last digits may differ {said}\n" in capsys.readouterr().out
