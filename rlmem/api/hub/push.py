"""Pushing the agent of a run to the Hub."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple

from rlmem.api.exporting.card import evaluated
from rlmem.api.hub.client import answered, client
from rlmem.api.hub.contents import contents, foreign_values, shared_config
from rlmem.api.runs import Run
from rlmem.errors import UserError

if TYPE_CHECKING:
    from huggingface_hub import HfApi

BLANK = (".gitattributes",)
"""Files that a new repository has."""


class Pushed(NamedTuple):
    """Where an agent went.

    url: its page
    repo: OWNER/NAME
    commit: the commit, in hexadecimal
    private: whether only its owner sees it
    step: environment steps that the agent has learnt from
    foreign: `key=value` of the configuration that needs trust, such as code outside rlmem, which was not pushed
    """

    url: str
    repo: str
    commit: str
    private: bool
    step: int
    foreign: list[str]


def push(
    run: Run,
    repo: str | None = None,
    which: int | str | None = None,
    private: bool = False,
    update: bool = False,
    episodes: int = 100,
    license: str | None = None,
) -> Pushed:
    """Evaluate the agent of a run and write it to a repository of the Hub, in one commit. See `Run.push`."""
    hub = client()
    if (data := run.config["algo"].get("dataset")) is not None:
        what = f"its agent cannot be loaded without algo.dataset={data}, which is not pushed"
        raise UserError(f"{run.path}: {what}; e.g. share the whole directory and the data set")
    name = repo or re.sub(r"[^\w.-]+", "-", run.path.name)
    with answered(hub, name):
        owner = hub.whoami()["name"]
        name = name if "/" in name else f"{owner}/{name}"
    with answered(hub, name):
        _usable(hub, name, private, update)  # before episodes are played
    agent = run.agent(which)
    row = evaluated(run, agent, which, episodes)
    files = contents(run, agent.network.state_dict(), agent.step, row, name, license)
    with answered(hub, name):
        from huggingface_hub import CommitOperationAdd

        hub.create_repo(name, private=private or None, exist_ok=True)
        is_private = _usable(hub, name, private, update)
        operations = [CommitOperationAdd(path, data) for path, data in files.items()]
        done = hub.create_commit(name, operations, commit_message=f"The agent after {agent.step:,} environment steps")
    foreign = foreign_values(shared_config(run.config))
    return Pushed(f"{hub.endpoint}/{name}", name, done.oid, bool(is_private), agent.step, foreign)


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
