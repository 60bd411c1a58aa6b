"""The Hugging Face Hub through its real client, against a stand-in server: what is pushed, pulled and refused."""

import json
import shlex
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import yaml
from helpers import SMALLEST, small_run, weights
from hub_server import HubServer, Repo
from pages import blocks, commands, small

import rlmem
from rlmem.commands.cli import main
from rlmem.record.checkpoint import Checkpoints
from rlmem.record.provenance import FORMAT
from rlmem.record.recorder import read_jsonl
from rlmem.share.card import pack, unpack

FILES = ["README.md", "config.yaml", "eval.jsonl", "model.safetensors", "run.json"]


@pytest.fixture(scope="module")
def running(tmp_path_factory) -> Iterator[HubServer]:
    """A server, and a client that finds it: the client reads its settings when it is imported."""
    with HubServer() as server, pytest.MonkeyPatch.context() as patched:
        patched.setenv("HF_ENDPOINT", server.url)
        patched.setenv("HF_HOME", str(tmp_path_factory.mktemp("home")))
        patched.setenv("HF_HUB_DISABLE_XET", "1")  # a protocol of its own, which the server does not speak
        for name in ("HF_HUB_OFFLINE", "HF_TOKEN", "HUGGING_FACE_HUB_TOKEN", "HF_TOKEN_PATH"):
            patched.delenv(name, raising=False)
        forget_client()
        yield server
        forget_client()


def forget_client() -> None:
    for name in [name for name in sys.modules if name.partition(".")[0] == "huggingface_hub"]:
        del sys.modules[name]


@pytest.fixture
def hub(running, in_tmp, monkeypatch) -> HubServer:
    """An empty server, at which `me` is logged in."""
    running.clear()
    monkeypatch.setenv("HF_TOKEN", "hf_me")
    return running


@pytest.fixture(scope="module")
def trained(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("trained")
    callback = [f"+callbacks.own._target_={__name__}.Own", "logger=[local,tensorboard]"]
    return small_run("memory=ffm", "memory.hidden_size=8", *callback, run_dir=folder / "secret" / "run")


class Own(rlmem.Callback):
    """Code of one's own that does not shape the agent."""


@pytest.fixture
def run(trained, in_tmp) -> Path:
    shutil.copytree(trained, "run")
    return Path("run")


def said(capsys: pytest.CaptureFixture[str], *arguments: str, code: int = 0) -> str:
    """What a command prints: its result, or the one line of its error."""
    capsys.readouterr()
    assert main(list(arguments)) == code
    given = capsys.readouterr()
    if code == 0:
        return given.out
    assert given.out == ""
    (line,) = given.err.splitlines()
    assert "; e.g. " in line or line.endswith("; restore it")
    return line


def played(agent: rlmem.TrainedAgent) -> list[Any]:
    env = rlmem.make_env("repeat_first", 3)
    state, (obs, _) = agent.initial_state(3), env.reset(seed=5)
    start, ended, actions = None, np.zeros(3, bool), []
    for _ in range(120):
        action, state = agent.act(obs, state, start=start)
        actions.append(action.tolist())
        start = ended
        obs, _, terminated, truncated, _ = env.step(action)
        ended = terminated | truncated
    return actions


def test_what_is_pushed_and_pulled_plays_the_same_actions(hub, run, capsys):
    shown = said(capsys, "push", "run", "ffm", "--episodes", "3", "--license", "mit")
    (name,) = hub.repos
    assert name == "me/ffm"
    repo = hub.repos[name]
    commit = repo.at("main")
    assert shown.splitlines() == [
        f"{hub.url}/me/ffm: public, the agent of step 32, commit {commit[:8]}",
        "  for others: rlmem pull me/ffm",
    ]
    assert sorted(repo.files.keys() - {".gitattributes"}) == FILES
    shown = said(capsys, "pull", "me/ffm", "--out", "theirs")
    assert shown.splitlines() == [f"theirs: the agent of step 32 of me/ffm, commit {commit[:8]}", "  rlmem eval theirs"]
    assert played(rlmem.load("theirs")) == played(rlmem.load("run"))
    ours, theirs = weights("run"), weights("theirs")
    assert ours.keys() == theirs.keys()
    assert all(torch.equal(value, theirs[key]) for key, value in ours.items())
    assert sorted(path.name for path in Path("theirs").iterdir()) == sorted(
        {*FILES, "checkpoints"} - {"model.safetensors"}
    )
    assert sorted(path.name for path in Path().iterdir()) == ["run", "theirs"]
    (row,) = read_jsonl(Path("theirs/eval.jsonl"))
    assert row["greedy"] == read_jsonl(Path("run/eval.jsonl"))[-1]["greedy"] and row["episodes"] == 3
    assert json.loads(Path("theirs/run.json").read_text())["hub"] == {"repo": "me/ffm", "commit": commit}


def test_the_card_has_what_the_hub_reads_and_what_the_agent_earns(hub, run):
    assert rlmem.Run("run").push(episodes=3, license="cc-by-4.0") == f"{hub.url}/me/run"
    header, text = hub.repos["me/run"].files["README.md"].decode().split("---\n")[1:]
    found = yaml.safe_load(header)
    assert (found["license"], found["library_name"]) == ("cc-by-4.0", "rlmem")
    assert found["pipeline_tag"] == "reinforcement-learning" and {"ffm", "ppo"} <= set(found["tags"])
    ((result,),) = [entry["results"] for entry in found["model-index"]]
    row = read_jsonl(Path("run/eval.jsonl"))[-1]
    assert result["metrics"][0]["value"] == pytest.approx(row["greedy"]["return_mean"], abs=1e-6)
    assert result["dataset"]["name"] == "repeat_first"
    assert "# ffm, ppo on repeat_first" in text and "Licence of the weights: cc-by-4.0." in text
    assert "rlmem pull me/run --out runs/run" in text and "--trust" not in text


def test_nothing_of_this_machine_is_pushed(hub, run, trained):
    rlmem.Run(run).push(episodes=2)
    about = json.loads((run / "run.json").read_text())
    everything = b"\n".join(hub.repos["me/run"].files.values()).decode(errors="replace")
    for private in (str(trained), str(run.absolute()), "secret", "test_hub", "logger=", "# sha256", about["platform"]):
        assert private not in everything, private
    shared = json.loads(hub.repos["me/run"].files["run.json"])
    assert not shared.keys() & {"host", "platform", "command"} and shared["format"] == FORMAT
    values = yaml.safe_load(hub.repos["me/run"].files["config.yaml"])
    assert (values["run_dir"], values["logger"], values["callbacks"]) == (None, {}, {})


@pytest.mark.slow
def test_a_pulled_run_is_evaluated_and_begun_from_but_not_resumed(hub, run, capsys):
    said(capsys, "push", "run", "--episodes", "2", "--step", "best", "--private")
    assert hub.repos["me/run"].private
    pulled = rlmem.pull("me/run")
    assert pulled.path == Path("runs/run").absolute() and pulled.checkpoints() == [32]
    assert pulled.evaluate(2)["step"] == 32
    memory = ["memory=ffm", "memory.hidden_size=8"]
    given = [*SMALLEST, *memory, "init_from=runs/run", "run_dir=on"]
    assert "weights of runs/run at step 32" in said(capsys, "train", *given)
    for again in (["resume", "runs/run"], ["train", *SMALLEST, *memory, "run_dir=runs/run", "on_exists=resume"]):
        line = said(capsys, *again, code=2)
        assert "was pulled from the Hub" in line and "init_from=runs/run" in line
    assert sorted(path.name for path in Path("runs").iterdir()) == ["run"]
    assert rlmem.Run(pulled.path).push("again", episodes=2) == f"{hub.url}/me/again"  # whoever pulls may push


OWN = """
from rlmem.memory.gru import GRU

class Own(GRU):
    pass
"""


@pytest.mark.slow
def test_code_needs_trust_also_ones_own_that_was_pulled_back(hub, capsys, monkeypatch):
    Path("own_hub_memory.py").write_text(OWN)
    monkeypatch.syspath_prepend(".")
    small_run("memory=gru", "memory._target_=own_hub_memory.Own", "memory.hidden_size=4")
    shown = said(capsys, "push", "run", "--episodes", "2")
    assert "code that was not pushed: memory._target_=own_hub_memory.Own" in shown
    assert "only with `--trust`" in hub.repos["me/run"].files["README.md"].decode()
    monkeypatch.setenv("RLMEM_KEY", "of the tests")
    shown = said(capsys, "pull", "me/run", "--out", "theirs")
    assert "did not come with it: memory._target_=own_hub_memory.Own" in shown and "--trust" in shown
    line = said(capsys, "eval", "theirs", "--episodes", "2", code=2)
    assert "`own_hub_memory.Own` is code outside rlmem" in line and "--trust" in line
    with pytest.raises(rlmem.UserError, match="code outside rlmem"):
        rlmem.pull("me/run", "other").agent()
    said(capsys, "eval", "theirs", "--episodes", "2", "--trust")
    assert rlmem.load("other", trust=True).step == 32
    put("me/run", hub, {"config.yaml": Path("run/config.yaml").read_bytes()})  # with this user's seal
    said(capsys, "pull", "me/run", "--out", "sealed")
    assert "code outside rlmem" in said(capsys, "eval", "sealed", "--episodes", "2", code=2)


def evil() -> Any:
    class Evil:
        def __reduce__(self) -> Any:
            return open, ("canary", "w")

    return Evil()


def put(repo: str, hub: HubServer, files: dict[str, bytes]) -> None:
    """Somebody writes files to a repository, of any content."""
    hub.repos[repo].commit(files)


@pytest.mark.slow
def test_a_pickle_is_neither_downloaded_nor_read(hub, run, capsys):
    rlmem.Run("run").push(episodes=2)
    torch.save({"agent": evil(), "experiment": {}, "step": 99}, "evil.pt")
    pickle = Path("evil.pt").read_bytes()
    more = {"checkpoints/step_000000000099.pt": pickle, "own.py": b"open('canary', 'w')", "evil.pkl": pickle}
    put("me/run", hub, more)
    hub.asked.clear()
    agent = rlmem.pull("me/run", "theirs").agent()
    assert agent.step == 32 and not [
        line for line in hub.asked if "evil" in line or "99.pt" in line or "own.py" in line
    ]
    assert sorted(path.name for path in Path("theirs/checkpoints").glob("*.pt")) == ["step_000000000032.pt"]
    put("me/run", hub, {"model.safetensors": pickle})
    line = said(capsys, "pull", "me/run", "--out", "bad", code=2)
    assert line.startswith("rlmem: error: me/run/model.safetensors: holds no agent of rlmem")
    assert not Path("canary").exists() and not Path("bad").exists()


TWISTED: dict[str, dict[str, bytes]] = {
    "config.yaml, line 1: is damaged": {"config.yaml": b"a: [1}"},
    "run.json: is damaged": {"run.json": b"\xff\xfe"},
    "model.safetensors: holds no agent of rlmem (step -1)": {"model.safetensors": pack({"w": torch.zeros(1)}, -1)},
    "model.safetensors: holds no agent of rlmem (Error": {"model.safetensors": b"\0" * 8},
}


@pytest.mark.slow
def test_a_repository_of_something_else_is_refused_and_leaves_nothing(hub, run, capsys):
    rlmem.Run("run").push(episodes=2)
    for what, files in TWISTED.items():
        shared = dict(hub.repos["me/run"].files)
        put("me/run", hub, files)
        assert f"me/run/{what}" in said(capsys, "pull", "me/run", "--out", "a/b", code=2)
        put("me/run", hub, shared)
        assert list(Path("a").iterdir()) == []
    newer = json.loads(hub.repos["me/run"].files["run.json"]) | {"format": FORMAT + 1}
    put("me/run", hub, {"run.json": json.dumps(newer).encode()})
    line = said(capsys, "pull", "me/run", "--out", "a/b", code=2)
    assert f"me/run: was written by rlmem {rlmem.__version__} in format {FORMAT + 1}; " in line
    assert list(Path("a").iterdir()) == []
    hub.repos["me/other"] = Repo(False)
    assert "me/other: holds no agent of rlmem (no config.yaml, " in said(capsys, "pull", "me/other", code=2)
    assert sorted(path.name for path in Path().iterdir()) == ["a", "run"]


def test_weights_of_any_kind_survive(tmp_path):
    kinds = (torch.float64, torch.complex64, torch.bfloat16, torch.int64, torch.bool)
    given = {str(kind): torch.tensor([[0, 1], [1, 0]]).to(kind) for kind in kinds}
    given |= {
        "turned": given["torch.float64"].T,
        "same": given["torch.float64"],
        "one": torch.tensor(2),
        "none": torch.zeros(0, 3),
    }
    (tmp_path / "w").write_bytes(pack(given, 7))
    found, step = unpack(tmp_path / "w")
    assert step == 7 and found.keys() == given.keys()
    for name, value in given.items():
        assert torch.equal(found[name], value) and found[name].dtype == value.dtype, name
    with pytest.raises(rlmem.UserError, match="the agent's state extra is no tensor"):
        pack({"extra": "text"}, 0)


@pytest.mark.slow
def test_what_the_hub_refuses_is_one_line_and_nothing_is_half_written(hub, run, capsys, monkeypatch):
    push, pull = ["push", "run", "--episodes", "2"], ["pull", "me/run", "--out", "theirs"]

    def without(token: str | None) -> None:
        monkeypatch.delenv("HF_TOKEN", raising=False)
        if token:
            monkeypatch.setenv("HF_TOKEN", token)

    without(None)
    assert f"run: nobody is logged in at {hub.url}; e.g. hf auth login" in said(capsys, *push, code=2)
    without("hf_gone")
    assert f"{hub.url} does not accept the token" in said(capsys, *push, code=2)
    without("hf_reader")
    assert "me/run: this login may not do that" in said(capsys, *push, code=2)
    without("hf_me")
    assert "other/run: this login may not do that" in said(
        capsys, "push", "run", "other/run", "--episodes", "1", code=2
    )
    assert "me/a b: is no name of a repository" in said(capsys, "push", "run", "me/a b", code=2)
    assert "is not accepted (Invalid metadata in README.md" in said(capsys, *push, "--license", "mine", code=2)
    assert hub.repos["me/run"].files.keys() == {".gitattributes"}, "the licence was refused before anything was sent"
    assert "me/run: holds no agent of rlmem" in said(capsys, *pull, code=2)
    hub.clear()
    said(capsys, *push, "--private")
    said(capsys, *pull)
    assert "theirs: is there already; e.g. --out theirs-2" in said(capsys, *pull, code=2)
    for token in (None, "hf_other"):
        without(token)
        line = said(capsys, "pull", "me/run", "--out", "new", code=2)
        assert f"me/run: there is no such repository at {hub.url}, or it is private" in line
    without("hf_me")
    assert "has no such revision" in said(capsys, "pull", "me/run", "--out", "new", "--revision", "v2", code=2)
    assert "no name of a repository" in said(capsys, "pull", "me//run", "--out", "new", code=2)
    for name in ("", "me/", "me/a/", "/a"):
        assert f"{name!r}: is no name of a repository; e.g. OWNER/NAME" in said(capsys, "pull", name, code=2)
    Path("file").write_text("")
    assert "file/new: cannot be written" in said(capsys, "pull", "me/run", "--out", "file/new", code=2)
    assert sorted(path.name for path in Path().iterdir()) == ["file", "run", "theirs"]


def test_a_repository_that_holds_files_is_written_to_only_if_meant(hub, run, capsys):
    hub.repos["me/run"] = Repo(False)
    assert "is there already, and public" in said(capsys, "push", "run", "--private", "--episodes", "2", code=2)
    said(capsys, "push", "run", "--episodes", "2")  # it was empty
    before = dict(hub.repos["me/run"].commits)
    hub.asked.clear()
    assert "me/run: holds files already; e.g. another name, or --update" in said(capsys, "push", "run", code=2)
    assert not [line for line in hub.asked if "commit" in line] and hub.repos["me/run"].commits == before
    assert len(read_jsonl(Path("run/eval.jsonl"))) == 1, "before episodes were played"
    said(capsys, "push", "run", "--episodes", "3", "--update")
    first = list(hub.repos["me/run"].commits)[-2]
    assert rlmem.pull("me/run", "old", revision=first).path.name == "old"
    (old,), (new,) = read_jsonl(Path("old/eval.jsonl")), read_jsonl(rlmem.pull("me/run", "new").path / "eval.jsonl")
    assert (old["episodes"], new["episodes"]) == (2, 3)


@pytest.mark.slow
def test_a_network_that_fails_at_any_moment_leaves_nothing(hub, run, capsys, monkeypatch):
    monkeypatch.setattr("huggingface_hub.utils._http.time.sleep", lambda seconds: None)  # between attempts
    for moment in ("create", "large", "commit"):
        hub.down = moment
        line = said(capsys, "push", "run", "--episodes", "1", code=2)
        assert "cannot be reached, or broke off" in line, moment
        assert all(repo.files.keys() == {".gitattributes"} for repo in hub.repos.values())
    hub.down = None
    said(capsys, "push", "run", "--episodes", "1")  # the repository that it has made is no obstacle
    for moment in ("models", "large"):
        hub.down = moment
        assert "cannot be reached, or broke off" in said(capsys, "pull", "me/run", "--out", "theirs", code=2), moment
        assert sorted(path.name for path in Path().iterdir()) == ["run"]
    hub.down, hub.cut = None, 100
    assert "broke off" in said(capsys, "pull", "me/run", "--out", "theirs", code=2)
    assert sorted(path.name for path in Path().iterdir()) == ["run"]
    hub.cut = 1  # the client goes on where it broke off
    said(capsys, "pull", "me/run", "--out", "theirs")
    assert played(rlmem.load("theirs")) == played(rlmem.load("run"))
    monkeypatch.setattr("huggingface_hub.constants.ENDPOINT", "http://127.0.0.1:9")
    assert "http://127.0.0.1:9 cannot be reached" in said(capsys, "pull", "me/run", "--out", "new", code=2)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    assert "HF_HUB_OFFLINE" in said(capsys, "pull", "me/run", "--out", "new", code=2)


def test_ctrl_c_and_a_full_disk_leave_nothing(hub, run, capsys, monkeypatch):
    rlmem.Run("run").push(episodes=1)

    def interrupted(*_: Any) -> None:
        raise KeyboardInterrupt

    def full(*_: Any) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(Checkpoints, "save", interrupted)
        assert main(["pull", "me/run", "--out", "theirs"]) == 130
    monkeypatch.setattr(Checkpoints, "save", full)
    assert "theirs: cannot be written (No space left on device)" in said(
        capsys, "pull", "me/run", "--out", "theirs", code=2
    )
    assert sorted(path.name for path in Path().iterdir()) == ["run"]


@pytest.mark.parametrize("package", ["huggingface_hub", "safetensors"])
def test_without_its_packages_one_line_names_the_extra(run, capsys, monkeypatch, package):
    for name in [name for name in sys.modules if name.partition(".")[0] == package]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, package, None)
    for command in (["push", "run"], ["pull", "me/run"]):
        assert said(capsys, *command, code=2).endswith(
            "is not installed; e.g. pip install '.[hub]' in a clone of rlmem\n"[:-1]
        )


@pytest.mark.slow
def test_the_page_about_the_hub_runs(hub, capsys):
    found = commands("docs/hub.md")
    assert {line.split()[1] for line in found} >= {"push", "pull", "eval"}
    for command in found:
        assert main(shlex.split(small(command))[1:]) == 0, command
    for block in blocks("docs/hub.md"):
        if block.language == "python":
            exec(compile(block.text.replace("200_000", "1_000"), "docs/hub.md", "exec"), {})
