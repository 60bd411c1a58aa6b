"""What actor and critic read of an observation, and the encoders and memories that read it."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch
from gymnasium import Space, spaces

from rlmem.agents.trunk import Trunk, Trunks
from rlmem.config.catalog import option
from rlmem.config.compose import Config
from rlmem.config.messages import to_text
from rlmem.config.targets import locate
from rlmem.errors import UserError
from rlmem.memory.base import Memory
from rlmem.nets.encoder import InputEncoder
from rlmem.nets.leaves import Leaves
from rlmem.run.build import build_group, build_memory, read_leaves
from rlmem.spaces import is_tree, leaves

SEVERAL_PARTS = "the observation has several parts"
SHARED = ("hidden_size", "prev_action", "prev_reward", "start_flag", "normalise_obs")
"""The keys of encoders that `encoder=dict` takes over where nobody has chosen it."""


def with_encoder(config: Config, observation_space: Space) -> Config:
    """`config` with `encoder=dict` where the actor reads several leaves. Raises UserError if another was chosen."""
    if not is_tree(observation_space):
        return config
    names, chosen = read_leaves(config, list(leaves(observation_space)))[0], config.choices["encoder"]
    if len(names) == 1 or _reads_leaves(config.values["encoder"]):
        return config
    if any(line.startswith("encoder=") for line in config.overrides):
        what = f"reads one part of an observation, and that of env={config.choices['env']} has: {', '.join(names)}"
        raise UserError(f"encoder={chosen}: {what}; e.g. encoder=dict")
    given, ours = config.values["encoder"], option("encoder", "dict")
    for line in config.overrides:
        path, equals, _ = line.lstrip("+").partition("=")
        if equals and path.startswith("encoder.") and path.removeprefix("encoder.") not in SHARED:
            what = f"is for encoder={chosen}, and env={config.choices['env']} needs encoder=dict: {SEVERAL_PARTS}"
            raise UserError(f"{line}: {what}; e.g. encoder=dict, or without {path}")
    ours |= {key: given[key] for key in SHARED if key in given}
    return replace(
        config,
        values=config.values | {"encoder": ours},
        choices=config.choices | {"encoder": "dict"},
        ruled=config.ruled | {"encoder": SEVERAL_PARTS},
    )


def make_trunks(
    config: Config,
    observation_space: Space,
    action_space: Space,
    make_memory: Callable[[int], Memory],
    device: torch.device,
    separate: bool,
) -> Trunks:
    """The trunks of an agent.

    observation_space: of what encoders read
    make_memory: builds the memory of `config` for inputs of a size
    device: where memories lie
    separate: whether the critic has a trunk of its own
    """
    parts = leaves(observation_space) if is_tree(observation_space) else None
    actor, critic = (None, None) if parts is None else read_leaves(config, list(parts))
    read = [name for name in parts or () if name in {*(actor or ()), *(critic or ())}]
    if unknown := [name for name in _settings(config.values["encoder"]) if read and name not in read]:
        what = f"`{unknown[0]}` is no leaf that is read; these are: {', '.join(read)}"
        raise UserError(f"encoder.leaves: {what}; e.g. encoder.leaves={{}}")
    make_critic_memory = _critic_memory(config, make_memory, device)

    def make_encoder(names: list[str] | None, of_critic: bool) -> tuple[InputEncoder, str | None]:
        if names is None or parts is None:
            built = build_group(config, "encoder", observation_space=observation_space, action_space=action_space)
            return built, None
        return _encoder(config, {name: parts[name] for name in names}, action_space, of_critic)

    encoder, leaf = make_encoder(actor, of_critic=False)
    trunk = Trunk(encoder, make_memory(encoder.output_size), leaf)
    if not separate:
        return Trunks(trunk)
    encoder, leaf = make_encoder(critic, of_critic=True)
    return Trunks(trunk, Trunk(encoder, make_critic_memory(encoder.output_size), leaf))


def _encoder(
    config: Config, parts: dict[str, Space], action_space: Space, of_critic: bool
) -> tuple[InputEncoder, str | None]:
    """The encoder of some leaves, and the leaf that it reads; None: it reads all of them."""
    node, space = config.values["encoder"], spaces.Dict(parts)
    if _reads_leaves(node):
        read: dict[str, Any] = {"include": list(parts), "exclude": []} if "include" in node else {}
        if settings := _settings(node):
            read["leaves"] = {name: given for name, given in settings.items() if name in parts}
        return build_group(config, "encoder", observation_space=space, action_space=action_space, **read), None
    if len(parts) == 1:
        ((leaf, seen),) = parts.items()
        try:
            return build_group(config, "encoder", observation_space=seen, action_space=action_space), leaf
        except UserError:
            if not of_critic:
                raise
    # A critic that reads more than the actor, or what the actor's encoder cannot.
    shared = {key: node[key] for key in SHARED if key in node}
    return Leaves(space, action_space, include=list(parts), **shared), None


def _reads_leaves(node: dict[str, Any]) -> bool:
    return bool(getattr(locate(node["_target_"]), "reads_leaves", False))


def _settings(node: dict[str, Any]) -> dict[str, Any]:
    """The settings of single leaves by their paths, of an encoder that has some."""
    found = node.get("leaves") if _reads_leaves(node) else None
    return found if isinstance(found, dict) else {}


def _critic_memory(
    config: Config, make_memory: Callable[[int], Memory], device: torch.device
) -> Callable[[int], Memory]:
    """What builds the critic's memory: `algo.critic_memory`, as wide as that of `config`, or else the same."""
    name = config.values["algo"].get("critic_memory")
    if name is None:
        return make_memory
    try:
        node = option("memory", name)
    except UserError as error:
        raise UserError(f"algo.critic_memory={to_text(name)}: {error}") from error
    given = config.values["memory"]
    node |= {"hidden_size": given["hidden_size"]} if "hidden_size" in node and "hidden_size" in given else {}
    values, choices = config.values | {"memory": node}, config.choices | {"memory": name}
    return lambda size: build_memory(replace(config, values=values, choices=choices), size, device)
