"""Pushing the agent of a run to the Hub, and pulling one into a run directory, which is somebody else's."""

from __future__ import annotations

import json
import os
import re
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, NamedTuple

import yaml

from rlmem import __version__
from rlmem.config.messages import shell
from rlmem.core.errors import UserError, brief, extra, first_line, writing
from rlmem.record import rundir
from rlmem.record.checkpoint import Checkpoints
from rlmem.record.provenance import FORMAT
from rlmem.run.stored import experiment_of
from rlmem.run.trained import open_agent
from rlmem.share.card import (
    EXAMPLE,
    FILES,
    REQUIRED,
    WEIGHTS,
    contents,
    evaluated,
    foreign_values,
    shared_config,
    unpack,
)

if TYPE_CHECKING:
    from huggingface_hub import HfApi

BLANK = (".gitattributes",)
"""Files that a new repository has."""


class Shared(NamedTuple):
    """An agent that was pushed or pulled.

    repo: OWNER/NAME
    commit: the commit, in hexadecimal
    step: environment steps that the agent has learnt from
    foreign: `key=value` of the configuration that needs trust, such as code outside rlmem, which is not on the Hub
    url: the page of the repository; of a pulled agent ""
    private: whether only the owner sees it
    """

    repo: str
    commit: str
    step: int
    foreign: list[str]
    url: str = ""
    private: bool = False


def push(
    run_dir: Path,
    trust: bool = False,
    repo: str | None = None,
    which: int | str | None = None,
    private: bool = False,
    update: bool = False,
    episodes: int = 100,
    license: str | None = None,
) -> Shared:
    """Evaluate the agent of a run and write it to a repository of the Hub, in one commit. See `Run.push`."""
    hub = client()
    config = rundir.read(run_dir)[0]
    if (data := config["algo"].get("dataset")) is not None:
        problem = f"its agent cannot be loaded without algo.dataset={data}, which is not pushed"
        raise UserError(f"{run_dir}: {problem}; e.g. share the whole directory and the data set")
    name = repo or re.sub(r"[^\w.-]+", "-", run_dir.name)
    with answered(hub, name):
        owner = hub.whoami()["name"]
        name = name if "/" in name else f"{owner}/{name}"
    with answered(hub, name):
        _usable(hub, name, private, update)  # before episodes are played
    agent = open_agent(run_dir, which, trust=trust)
    row = evaluated(run_dir, trust, agent, which, episodes)
    files = contents(run_dir, agent.network.state_dict(), agent.step, row, name, license)
    with answered(hub, name):
        from huggingface_hub import CommitOperationAdd

        hub.create_repo(name, private=private or None, exist_ok=True)
        is_private = _usable(hub, name, private, update)
        operations = [CommitOperationAdd(path, data) for path, data in files.items()]
        done = hub.create_commit(name, operations, commit_message=f"The agent after {agent.step:,} environment steps")
    foreign = foreign_values(shared_config(config))
    return Shared(name, done.oid, agent.step, foreign, f"{hub.endpoint}/{name}", bool(is_private))


def _usable(hub: HfApi, repo: str, private: bool, update: bool) -> bool | None:
    """Whether a repository is private; None if there is none. Raises UserError if it must not be written to."""
    from huggingface_hub.errors import RepositoryNotFoundError

    try:
        info = hub.model_info(repo)
    except RepositoryNotFoundError:
        return None
    if private and not info.private:
        there = f"{hub.endpoint}/{repo}/settings"
        raise UserError(f"{repo}: is there already, and public, which --private would not change; e.g. see {there}")
    if not update and [file.rfilename for file in info.siblings or () if file.rfilename not in BLANK]:
        raise UserError(f"{repo}: holds files already; e.g. another name, or --update for a new commit there")
    return bool(info.private)


def pull(repo: str, path: Path | None = None, revision: str | None = None) -> tuple[Path, Shared]:
    """Download the agent of a repository into a new run directory, which appears once it is complete.

    See `rlmem.pull`. Returns the run directory and what lies there.
    """
    if not all(repo.split("/")):
        raise UserError(f"{repo!r}: is no name of a repository; e.g. OWNER/NAME")
    path = path or Path("runs") / repo.rpartition("/")[2]
    if os.path.lexists(path):
        raise UserError(f"{path}: is there already; e.g. --out {shell(path)}-2")
    hub, example = client(), "--out /tmp/run"
    with answered(hub, repo):
        info = hub.model_info(repo, revision=revision)
    there, commit = {file.rfilename for file in info.siblings or ()}, str(info.sha)
    if missing := [name for name in REQUIRED if name not in there]:
        raise UserError(f"{repo}: holds no agent of rlmem (no {', '.join(missing)}); {EXAMPLE}")
    with writing(path, example):
        path.parent.mkdir(parents=True, exist_ok=True)
    with writing(path, example), TemporaryDirectory(dir=path.parent, prefix=f".{path.name}.") as folder:
        received, pulled = Path(folder) / "received", Path(folder) / "run"
        with answered(hub, repo):
            for name in FILES:
                if name in there:
                    hub.hf_hub_download(repo, name, revision=commit, local_dir=received)
        try:
            step, code = _build(received, pulled, repo, commit)
        except UserError as error:  # which names files in a folder that is gone
            raise UserError(*(line.replace(str(received), repo) for line in error.problems)) from error
        pulled.rename(path)
    return path, Shared(repo, commit, step, code)


def _build(received: Path, pulled: Path, repo: str, commit: str) -> tuple[int, list[str]]:
    """Make a run directory of the files of a repository; returns the agent's step and what names code."""
    config, about = rundir.read(received, strict=True)
    weights, step = unpack(received / WEIGHTS)
    code = foreign_values(config)
    pulled.mkdir()
    text = yaml.safe_dump(config, sort_keys=False)  # without any seal, since it comes from elsewhere
    (pulled / "config.yaml").write_text(text, encoding="utf-8")
    about |= {"format": FORMAT, "hub": {"repo": repo, "commit": commit}}
    (pulled / "run.json").write_text(json.dumps(about, indent=2) + "\n", encoding="utf-8")
    for name in FILES:
        if name not in REQUIRED and (received / name).exists():
            (received / name).rename(pulled / name)
    state = {"agent": weights, "experiment": experiment_of(config), "step": step}
    Checkpoints(pulled / "checkpoints").save(step, state)
    return step, code


def client() -> HfApi:
    """The client, for the server that HF_ENDPOINT names or huggingface.co. Raises UserError without the extra `hub`."""
    try:
        import safetensors.torch  # noqa: F401 - the weights' format
        from huggingface_hub import HfApi
    except ImportError as error:
        raise UserError(f"{error.name} is not installed; e.g. {extra('hub')}") from error
    return HfApi(library_name="rlmem", library_version=__version__)


@contextmanager
def answered(hub: HfApi, repo: str) -> Iterator[None]:
    """Within, whatever the client fails by is a UserError about `repo`, and it prints nothing.

    An error of this machine's disk stays an OSError.
    """
    from huggingface_hub.utils import are_progress_bars_disabled, disable_progress_bars, enable_progress_bars, logging

    shows, verbosity = not are_progress_bars_disabled(), logging.get_verbosity()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        disable_progress_bars()
        logging.set_verbosity_error()
        try:
            yield
        except UserError:
            raise
        except Exception as error:  # of many kinds, also of the packages below the client
            # Of the disk: the client's own errors are OSErrors without a number.
            if isinstance(error, OSError) and error.errno is not None and not isinstance(error, ConnectionError):
                raise
            raise UserError(f"{brief(repo) or repr(repo)}: {_why(error, hub)}") from error
        finally:
            logging.set_verbosity(verbosity)
            if shows:
                enable_progress_bars()


def _why(error: Exception, hub: HfApi) -> str:
    """What is wrong and what to do, after the name of the repository."""
    from huggingface_hub import errors

    login = "hf auth login, or set HF_TOKEN"
    caused = error.__cause__
    if isinstance(error, errors.LocalEntryNotFoundError) and isinstance(caused, Exception):
        error = caused  # the client looks for a copy on this machine first
    sentences = {
        errors.LocalTokenNotFoundError: f"nobody is logged in at {hub.endpoint}; e.g. {login}",
        errors.OfflineModeIsEnabled: "the network is not to be used (HF_HUB_OFFLINE); e.g. HF_HUB_OFFLINE=0",
        errors.HFValidationError: f"is no name of a repository ({first_line(error)[:200]}); e.g. OWNER/NAME",
        errors.GatedRepoError: "is open only to those whom its owner lets in; "
        f"e.g. ask for access on its page at {hub.endpoint}",
        errors.RepositoryNotFoundError: f"there is no such repository at {hub.endpoint}, or it is private; "
        f"e.g. its whole name, or {login}",
        errors.RevisionNotFoundError: "has no such revision; e.g. --revision main",
    }
    if said := next((said for kind, said in sentences.items() if isinstance(error, kind)), None):
        return said
    if isinstance(error, errors.HfHubHTTPError):
        status, said = error.response.status_code, first_line(error)
        said = error.server_message or said
        if status == 401:
            return f"{hub.endpoint} does not accept the token; e.g. {login}"
        if status == 403:
            return f"this login may not do that ({said[:200]}); e.g. a token that may write, or another owner"
        return f"{hub.endpoint} refused with status {status} ({said[:200]}); e.g. the same again later"
    if isinstance(error, ValueError):
        example = "--license mit" if "README.md" in str(error) else "another name"  # of the card, all else is rlmem's
        return f"is not accepted ({' '.join(str(error).split())[:200]}); e.g. {example}"
    proxy = " or proxy" if os.environ.get("HTTPS_PROXY") else ""
    reason = f"{type(error).__name__}: {first_line(error)[:200]}"
    return f"{hub.endpoint} cannot be reached, or broke off ({reason}); e.g. check the network{proxy} and try again"
