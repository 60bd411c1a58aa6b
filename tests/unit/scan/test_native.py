"""What is passed to compiled code by address is checked before, and having no compiler is never a crash."""

import os
import shutil
import signal
import sys
import tempfile

import pytest
import torch
from helpers import forget_kernels

from rlmem.core.errors import UserError
from rlmem.losses.on_policy import gae
from rlmem.memory import FFM, GPT, SHM, FrameStack
from rlmem.scan import chosen_engine, library, linear_scan, native
from rlmem.scan.native import linear, missing

NATIVE = pytest.mark.skipif(missing() is not None, reason="no C++ compiler")
ENGINES = ["auto", "chunked", "loop"]


def draw(*shape, dtype=torch.float64):
    return torch.randn(shape, dtype=dtype, generator=torch.Generator().manual_seed(sum(shape)))


def starts(B, T):
    return torch.rand(B, T, generator=torch.Generator().manual_seed(0)) < 0.2


@pytest.mark.parametrize(
    ("a", "b", "h0"),
    [
        (torch.float32, torch.float64, torch.float64),
        (torch.float64, torch.float32, torch.float32),
        (torch.bfloat16, torch.float32, torch.float32),
        (torch.float32, torch.float32, torch.complex64),
        (torch.complex64, torch.float64, torch.complex128),
    ],
    ids=str,
)
def test_mixed_types_are_scanned_in_that_of_the_state(a, b, h0):
    case = draw(3, 20, 4).clamp(-1, 1).to(a), draw(3, 20, 4).to(b), draw(3, 4).to(h0), starts(3, 20)
    truth, *others = (linear_scan(*case, engine) for engine in ("loop", "auto", "chunked"))
    for h in others:
        assert h.dtype == h0
        torch.testing.assert_close(h, truth)


def test_a_complex_scan_needs_complex_states():
    with pytest.raises(ValueError, match="complex states"):
        linear_scan(draw(3, dtype=torch.complex64), draw(2, 5, 3), draw(2, 3), starts(2, 5))


@NATIVE
@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_kernels_start_no_threads_beside_those_of_torch(monkeypatch):
    """OpenMP would end the threads that a smaller team leaves out, and torch's next operator start them anew."""
    monkeypatch.setattr(native, "threads_for", lambda work: 3)
    before, many = torch.get_num_threads(), torch.ones(1 << 18)
    try:
        torch.set_num_threads(3)
        seen = []
        for _ in range(5):
            gae(draw(2, 9), draw(2, 9), starts(2, 9), ~starts(2, 9), 0.9, 0.9)  # two rows for three threads
            many.exp()
            seen.append({*os.listdir("/proc/self/task")})
        assert all(threads <= seen[0] for threads in seen)  # those of larger teams before may still be ending
    finally:
        torch.set_num_threads(before)


@NATIVE
@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork")
@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_a_forked_process_has_no_threads_to_share_a_scan_with(monkeypatch):
    monkeypatch.setattr(native, "threads_for", lambda work: 2)
    case = draw(8).clamp(max=1), draw(4, 20, 8), draw(4, 8), starts(4, 20)
    truth = linear_scan(*case, "native")
    if (pid := os.fork()) == 0:
        signal.signal(signal.SIGALRM, signal.SIG_DFL)  # not what pytest does with it
        signal.alarm(20)
        failed = True
        try:
            failed = not torch.equal(linear_scan(*case, "native"), truth)
        finally:
            os._exit(failed)
    assert os.waitpid(pid, 0)[1] == 0


def test_advantages_of_mismatched_rows_are_an_error_not_a_number():
    reward, mask = draw(3, 10), torch.ones(3, 10, dtype=torch.bool)
    with pytest.raises(RuntimeError):
        gae(reward, draw(3, 11), ~mask, mask, 0.9, 0.9)
    with pytest.raises(ValueError, match="floating"):
        gae(reward.long(), reward, ~mask, mask, 0.9, 0.9)


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize(("B", "N"), [(0, 3), (2, 0)])
def test_nothing_to_scan_is_no_error(engine, B, N):
    h = linear_scan(draw(B, 5, N), draw(B, 5, N), draw(B, N), starts(B, 5), engine)
    assert h.shape == (B, 5, N)


@pytest.mark.parametrize("engine", ENGINES)
def test_pending_negations_and_conjugations_are_carried_out(engine):
    a, b, h0 = draw(3, dtype=torch.complex128) / 4, draw(2, 9, 3, dtype=torch.complex128), draw(2, 3)
    start = starts(2, 9)
    negated = torch._neg_view(b.imag)
    torch.testing.assert_close(
        linear_scan(a.conj().real, negated, h0, start, engine),
        linear_scan(a.real.clone(), -b.imag.clone(), h0, start, "loop"),
    )


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("make", [lambda: FFM(6, 8, 4, 2), lambda: SHM(6, 8, 4, limit=5.0)], ids=["ffm", "shm"])
def test_a_diverged_weight_shows(engine, make):
    memory = make()
    memory.engine = engine
    with torch.no_grad():
        memory.project_in.weight[0, 0] = torch.nan
        if isinstance(memory, SHM):
            memory.Theta.fill_(torch.nan)
    y, _ = memory(draw(2, 12, 6, dtype=torch.float32), memory.initial_state(2), starts(2, 12))
    assert torch.isnan(y[:, -1]).any()


@NATIVE
def test_a_forced_engine_is_the_one_that_runs(monkeypatch):
    calls = []
    monkeypatch.setattr(native, "call_in_parallel", lambda *a: calls.append(a))
    memory = SHM(6, 8, 4, engine="chunked")
    memory(draw(2, 12, 6, dtype=torch.float32), memory.initial_state(2), starts(2, 12))
    assert not calls


def test_engines_are_for_their_own_devices():
    for device in ("meta", "mps"):
        assert chosen_engine("auto", device) == "chunked"
        with pytest.raises(UserError, match=f"does not run on a {device.upper()} device"):
            chosen_engine("native", device)
    with pytest.raises(UserError, match="no such engine"):
        chosen_engine("fast")


@pytest.mark.parametrize("make", [lambda: GPT(6, 8, window=16), lambda: FrameStack(6, 8)], ids=["gpt", "frame_stack"])
def test_half_precision_does_not_lose_count_of_slots(make):
    """bfloat16 counts to 256; a window that has lost count sees the episode before."""
    torch.manual_seed(0)
    memory = make().bfloat16()
    x = draw(1, 700, 6, dtype=torch.float32).bfloat16()
    start = torch.zeros(1, 700, dtype=torch.bool)
    start[0, 601] = True
    changed = x.clone()
    changed[:, :601] += 1
    y, z = (memory(v, memory.initial_state(1), start)[0] for v in (x, changed))
    assert torch.equal(y[:, 601:], z[:, 601:])


def test_a_final_state_does_not_keep_the_scan():
    memory = FFM(6, 8, 4, 2)
    for T in (1, 50):
        _, state = memory(draw(2, T, 6, dtype=torch.float32), memory.initial_state(2), starts(2, T))
        assert state.untyped_storage().nbytes() == state.numel() * state.element_size()


def test_a_product_is_torchs_whatever_its_bias():
    x, W, b = draw(40, 6, dtype=torch.float32), draw(8, 6, dtype=torch.float32), draw(16, dtype=torch.float32)
    for bias in (None, b[:8], b[::2], b[:1].expand(8)):
        torch.testing.assert_close(linear(x, W, bias), torch.nn.functional.linear(x, W, bias))
    with pytest.raises(RuntimeError, match="mat1 and mat2"):
        linear(x, draw(8, 5, dtype=torch.float32))


@pytest.fixture
def fresh(monkeypatch, tmp_path):
    """A call makes the next use of the kernels that of a new process: they are looked for in the cache, or made.

    Compiling is copying the kernels that there are.
    """

    for name in ("CXX", "RLMEM_CACHE", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
    (tmp_path / "temporary").mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "temporary"))
    kernels = library.library("float")._name
    monkeypatch.setattr(library, "_compile", lambda command, path: shutil.copyfile(kernels, path))
    forget_kernels()
    yield forget_kernels
    monkeypatch.undo()
    forget_kernels()


@NATIVE
def test_without_a_home_the_kernels_go_elsewhere(monkeypatch, fresh, tmp_path):
    (tmp_path / "file").touch()
    monkeypatch.setenv("HOME", str(tmp_path / "file"))
    assert chosen_engine("auto") == "native"
    assert list((tmp_path / "temporary").glob("*/kernels-*.so"))


@NATIVE
def test_half_a_file_in_the_cache_is_made_anew(monkeypatch, fresh, tmp_path):
    monkeypatch.setenv("RLMEM_CACHE", str(tmp_path / "first"))
    assert native.missing() is None
    (first,) = (tmp_path / "first").glob("*.so")
    cached = tmp_path / "second" / first.name
    cached.parent.mkdir()
    cached.write_bytes(b"half a file")
    monkeypatch.setenv("RLMEM_CACHE", str(cached.parent))
    for _ in range(2):  # the first use makes the kernels elsewhere, the second in their place
        fresh()
        assert native.missing() is None
    assert cached.read_bytes() == first.read_bytes()


@NATIVE
def test_a_cache_that_cannot_be_written_is_named_once(monkeypatch, fresh, tmp_path, capsys):
    (tmp_path / "file").touch()
    monkeypatch.setenv("RLMEM_CACHE", str(tmp_path / "file"))
    for _ in range(2):
        assert native.missing() is None
        fresh()
    said = capsys.readouterr().err
    assert said.count("\n") == 1 and "the compiled kernels are kept in " in said and "RLMEM_CACHE" in said
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "file"))
    for _ in range(2):
        assert "found no folder" in native.missing()
    said = capsys.readouterr().err
    assert said.count("\n") == 1 and "the kernels cannot be kept" in said
