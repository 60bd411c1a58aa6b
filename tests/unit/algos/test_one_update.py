"""One update of every algorithm equals the published equations, written out: losses, gradients, weights, targets.

The expected numbers come from loops over transitions and from networks and optimisers that are written out in
`by_hand.py`; no loss, return, scan, memory or head of rlmem has a part in them. Two updates are taken in a row, so that
the second has moments in the optimiser and a target network that has moved. `test_one_update_sb3.py` asks another
implementation.
"""

from dataclasses import replace
from math import copysign, exp, log, sqrt

import pytest
import torch
from by_hand import (
    DOUBLE,
    HIDDEN,
    NOISE,
    Adam,
    Copy,
    RMSProp,
    assert_equal,
    drawn_as_noise,
    gradients_of,
    lay_out,
    make_agent,
    move,
    piece,
    with_masks,
)
from helpers import fast_only
from replayed import ALGOS, BOX, DISCRETE, actions_of, disturb, generator
from torch.distributions import Categorical, Independent, Normal, kl_divergence

from rlmem.algos.dqn import PQN
from rlmem.algos.impala import Impala
from rlmem.algos.ppo import PPO
from rlmem.batching import Rollout, Segment, Tape

GAMMA, LR, TAU, SCALE = 0.9, 0.3, 0.25, 0.5
EPS = 1.0
"""With an epsilon of order one, a step of Adam shows the size of a gradient and not only its sign."""
CLOSE = {"abs": 1e-6, "rel": 1e-6}


def mean(terms):
    return sum(terms) / len(terms)


# Off-policy


def replayed(space):
    """Every way to end, lengths below and above every n_step, and a piece from inside an episode."""
    source = generator(1)
    ends = [(5, "terminated"), (1, "truncated"), (3, "truncated"), (1, "terminated"), (2, "terminated"), (4, "cut")]
    return [
        piece(4, "terminated", space, source, inside=True),
        *(piece(n, ending, space, source) for n, ending in ends),
    ]


LAYOUTS = {
    "tape": lambda pieces: [pieces],
    "tapes": lambda pieces: [pieces[:3], pieces[3:]],  # of unequal length
    "segments": lambda pieces: [[p] for p in pieces],
}


def target(p, value, t, n):
    """y_t = r_t + ... + gamma^{n-1} r_{t+n-1} + gamma^n v_{t+n} (Sutton and Barto 2018, eq. 7.1). A termination ends
    the sum, with no value behind it; where the episode was truncated or the row ends, the value there closes the sum.
    """
    last = min(t + n, len(p.reward))
    y = sum(GAMMA ** (k - t) * SCALE * p.reward[k].item() for k in range(t, last))
    return y if last == len(p.reward) and p.terminated else y + GAMMA ** (last - t) * value[last]


def huber(error):
    return error**2 / 2 if abs(error) <= 1 else abs(error) - 1 / 2


def rescale(x):
    """R2D2's rescaling (Kapturowski et al. 2019, section 2.3; Pohlen et al. 2018, arXiv:1805.11593)."""
    return copysign(sqrt(abs(x) + 1) - 1, x) + 1e-3 * x


def unscale(y):
    """The x with rescale(x) = y, by bisection."""
    low, high = -1e6, 1e6
    for _ in range(200):
        middle = (low + high) / 2
        low, high = (middle, high) if rescale(middle) < y else (low, middle)
    return middle


def allowed(p, t):
    """The actions that the mask of slot t allows."""
    return [a for a in range(3) if p.allowed is None or p.allowed[t, a]]


def best(p, t, q):
    """The allowed action of slot t with the largest value."""
    return max(allowed(p, t), key=lambda a: q[a].item())


def q_all(net, h, dueling):
    """DQN's values of all actions, dueling as in Wang et al. 2016, arXiv:1511.06581, eq. 9."""
    q = net.head("q.trunk", "q.out", h)
    return net.head("q.trunk", "q.value", h) + q - sum(q) / len(q) if dueling else q


def successors(algo, net, p):
    """Features of the slots that give a value, all but the first: with target_memory=fresh_next_obs, of a memory that
    begins at the second slot."""
    if algo.target_memory == "own":
        return net.features(p)
    empty = torch.zeros(HIDDEN, dtype=DOUBLE)
    behind = replace(p, obs=p.obs[1:], action=p.action[1:], reward=p.reward[1:])
    return [empty, *net.features(replace(behind, before=(p.action[0], p.reward[0], (empty, empty))))]


def dqn(algo, online, slow, pieces, number):
    """DQN (Mnih et al. 2015), double in the form of van Hasselt et al. 2016, arXiv:1509.06461, eq. 4."""
    terms = []
    for p in pieces:
        q = [q_all(online, h, algo.dueling) for h in online.features(p)]
        ours, q_slow = ([q_all(net, h, algo.dueling) for h in successors(algo, net, p)] for net in (online, slow))
        judges = ours if algo.double else q_slow
        value = [qs[best(p, t, judge)].item() for t, (judge, qs) in enumerate(zip(judges, q_slow, strict=True))]
        rescaled, unscaled = (rescale, unscale) if algo.value_rescaling else (float, float)
        value = [unscaled(v) for v in value]
        for t, action in enumerate(p.action):
            error = q[t][action] - rescaled(target(p, value, t, algo.n_step))
            terms.append(p.weight[t] * (error**2 if algo.td_loss == "squared" else huber(error)))
    return {"loss": (mean(terms), online.names(""))}


def twins(net, *x):
    """Both critics' outputs for features, and an action if they read one."""
    return [net.head(f"q.heads.{i}.trunk", f"q.heads.{i}.out", torch.cat(x)).squeeze() for i in (0, 1)]


def losses_of(online, critic, actor, temperature=()):
    """The losses from the terms of every transition, each with the parameters that it trains: a memory that actor and
    critic share learns from the critic, which is the default."""
    critic_memory = f"trunks.trunks.{0 if online.shared else 1}."
    actor_memory = [] if online.shared else ["trunks.trunks.0."]
    found = {"critic_loss": (mean(critic), online.names("q.", critic_memory))}
    if actor:
        found["actor_loss"] = mean(actor), online.names("policy.", *actor_memory)
    if temperature:
        found["temperature_loss"] = mean(temperature), ["log_temperature"]
    return found


def critic_terms(p, values_taken, value, n):
    """The twins' squared errors, added up: without the factor 1/2 of Haarnoja et al., as in Fujimoto et al."""
    return [
        p.weight[t] * sum((q - target(p, value, t, n)) ** 2 for q in twins_of_slot)
        for t, twins_of_slot in enumerate(values_taken)
    ]


def sac(algo, online, slow, pieces, number):
    """SAC (Haarnoja et al. 2018, arXiv:1812.05905, eq. 3, 5 and 7; eq. 18 with log alpha for its factor alpha, as in
    the authors' code)."""
    alpha, of_critic, of_actor, of_temperature = exp(online.w["log_temperature"].item()), [], [], []
    for p in pieces:
        value, taken = [], []
        judge = slow if algo.target_memory == "own" else online
        read = zip(online.features(p, critic=False), online.features(p), judge.features(p), strict=True)
        for t, (h_actor, h_critic, h_slow) in enumerate(read):
            mu, log_std = online.head("policy.trunk", "policy.out", h_actor).chunk(2)
            log_std = log_std.clamp(-20, 2)  # as in the authors' code; the bound is reached
            u = mu + log_std.exp() * NOISE
            action = u.tanh()
            log_prob = (Normal(mu, log_std.exp()).log_prob(u) - (1 - action**2).log()).sum()
            value.append((min(twins(slow, h_slow, action)) - alpha * log_prob).item())
            if t < len(p.action):
                taken.append(twins(online, h_critic, p.action[t]))
                of_actor.append(alpha * log_prob - min(twins(online, h_critic, action)))
                of_temperature.append(-online.w["log_temperature"] * (log_prob.item() - 2))
        of_critic += critic_terms(p, taken, value, algo.n_step)
    return losses_of(online, of_critic, of_actor, of_temperature)


def sacd(algo, online, slow, pieces, number):
    """SAC for discrete actions (Christodoulou 2019, arXiv:1910.07207, eq. 10-12)."""
    alpha, of_critic, of_actor, of_temperature = exp(online.w["log_temperature"].item()), [], [], []
    for p in pieces:
        value, taken = [], []
        read = zip(online.features(p, critic=False), online.features(p), slow.features(p), strict=True)
        for t, (h_actor, h_critic, h_slow) in enumerate(read):
            here, logits = allowed(p, t), online.head("policy.trunk", "policy.out", h_actor)
            pi = dict(zip(here, logits[here].softmax(-1), strict=True))
            joined = torch.minimum if algo.twins == "min" else lambda first, second: (first + second) / 2
            q, q_slow = (joined(*twins(net, h)) for net, h in ((online, h_critic), (slow, h_slow)))
            value.append(sum(pi[a] * (q_slow[a] - alpha * pi[a].log()) for a in here).item())
            if t < len(p.action):
                taken.append([each[p.action[t]] for each in twins(online, h_critic)])
                of_actor.append(sum(pi[a] * (alpha * pi[a].log() - q[a]) for a in here))
                entropy = -sum(pi[a] * pi[a].log() for a in here).item()
                wanted = algo.target_entropy_ratio * log(len(here))
                of_temperature.append(-online.w["log_temperature"] * (wanted - entropy))
        of_critic += critic_terms(p, taken, value, algo.n_step)
    return losses_of(online, of_critic, of_actor, of_temperature)


def td3(algo, online, slow, pieces, number):
    """TD3 (Fujimoto et al. 2018, arXiv:1802.09477, algorithm 1), with the squared action of Andrychowicz et al. 2017,
    arXiv:1707.01495, app. A, in the actor's loss."""
    of_critic, of_actor = [], []
    noise = (algo.target_noise * NOISE).clamp(-algo.target_noise_clip, algo.target_noise_clip)
    for p in pieces:
        smoothed = [slow.head("policy.trunk", "policy.out", h).tanh() + noise for h in slow.features(p, critic=False)]
        actions = [action.clamp(-1, 1) for action in smoothed]
        value = [min(twins(slow, h, a)).item() for h, a in zip(slow.features(p), actions, strict=True)]
        h_critic = online.features(p)
        taken = [twins(online, h, action) for h, action in zip(h_critic, p.action, strict=False)]
        of_critic += critic_terms(p, taken, value, algo.n_step)
        for h, h_actor in zip(h_critic[:-1], online.features(p, critic=False), strict=False):
            action = online.head("policy.trunk", "policy.out", h_actor).tanh()
            q = twins(online, h, action)
            judged = q[0] if algo.actor_objective == "first" else min(q)
            if number % algo.policy_delay == 0:
                of_actor.append(algo.action_l2 * (action**2).sum() - judged)
    return losses_of(online, of_critic, of_actor)


EQUATIONS = {"dqn": dqn, "sac": sac, "sacd": sacd, "td3": td3}
PLAIN = {"double": False, "dueling": False}
CASES = {
    "dqn": ("dqn", PLAIN),
    "dqn-double": ("dqn", {"dueling": False}),
    "dqn-dueling": ("dqn", {"double": False}),
    "dqn-3-steps": ("dqn", PLAIN | {"n_step": 3}),
    "dqn-rescaled": ("dqn", {"n_step": 3, "value_rescaling": True, "td_loss": "squared"}),
    "dqn-all-clipped": ("dqn", {"n_step": 3, "max_grad_norm": 0.1}),
    "dqn-masked": ("dqn", {}),
    "dqn-fresh": ("dqn", {"target_memory": "fresh_next_obs"}),
    "sac": ("sac", {}),
    "sac-shared-3-steps-clipped": ("sac", {"n_step": 3, "separate": False, "max_grad_norm": 0.1}),
    "sac-online": ("sac", {"target_memory": "online"}),
    "sacd": ("sacd", {}),
    "sacd-shared-3-steps-mean": ("sacd", {"n_step": 3, "separate": False, "twins": "mean"}),
    "sacd-masked": ("sacd", {}),
    "td3": ("td3", {"target_noise_clip": 0.2}),
    "td3-shared-3-steps-min": ("td3", {"n_step": 3, "separate": False, "actor_objective": "min"}),
}


@pytest.mark.parametrize("layout", fast_only(("tapes", "segments"), LAYOUTS))
@pytest.mark.parametrize("case", CASES)
def test_an_off_policy_update_is_that_of_the_equations(case, layout, monkeypatch):
    name, settings = CASES[case]
    usual = {"head_sizes": (6,), "gamma": GAMMA, "lr": LR, "adam_eps": EPS, "tau": TAU, "reward_scale": SCALE}
    usual |= {} if name in ("dqn", "td3") else {"temperature_lr": LR}
    algo = ALGOS[name](**usual | settings)
    masked = case.endswith("-masked")
    agent = make_agent(algo, actions_of(name), "observation" if masked else None)
    algo.setup(agent, generator(2))
    disturb(algo.target, 3, 0.2)
    drawn_as_noise(monkeypatch)
    pieces = replayed(actions_of(name))
    pieces = with_masks(pieces, generator(3)) if masked else pieces
    batch = lay_out(LAYOUTS[layout](pieces), agent.trunks.separate)
    online, slow, adam = Copy(agent), Copy(algo.target), Adam(LR, EPS)
    for number in (1, 2):
        metrics, _ = algo.update(batch)
        losses = EQUATIONS[name](algo, online, slow, pieces, number)
        for key, (loss, _) in losses.items():
            if key != "temperature_loss":
                assert metrics[key].item() == pytest.approx(loss.item(), **CLOSE), key
        assert ("actor_loss" in metrics) == ("actor_loss" in losses)
        gradients = {}
        for loss, names in losses.values():
            gradients |= gradients_of(loss, online.w, names, algo.max_grad_norm)
        assert_equal(agent, gradients, f"gradient {number}", of=lambda p: p.grad)
        adam.step(online.w, gradients)
        assert_equal(agent, online.w, f"weights after update {number}")
        if number % algo.target_every == 0:
            for each, weight in slow.w.items():
                move(weight, TAU * (online.w[each] - weight))
        assert_equal(algo.target, slow.w, f"target after update {number}")


# On-policy


SCHEMES = {"tape": Tape(), "segment": Segment(None)}


def rollout_rows(space):
    """Two streams of 14 slots, the last of which only supplies a value; one begins inside an episode."""
    source = generator(1)
    first = [(1, "terminated"), (2, "truncated"), (4, "cut")]
    second = [(5, "truncated"), (1, "truncated"), (2, "terminated"), (2, "cut")]
    return [
        [piece(3, "terminated", space, source, inside=True), *(piece(n, end, space, source) for n, end in first)],
        [piece(n, end, space, source) for n, end in second],
    ]


def unrolled(net, p, space):
    """The policy of every slot, and values."""
    policies, values = [], []
    for h in net.features(p):
        out = net.head("policy.trunk", "policy.out", h)
        discrete = space is DISCRETE
        policies.append(
            Categorical(logits=out) if discrete else Independent(Normal(out, net.w["policy.log_std"].exp()), 1)
        )
        values.append(net.head("critic.0", "critic.1", h).squeeze())
    return policies, values


def second_values(net, p):
    """Values of the second critic, for the lambda-discrepancy."""
    return [net.head("more_critics.0.0", "more_critics.0.1", h).squeeze() for h in net.features(p)]


def ahead(p, values, t):
    """delta_t = r_t + gamma v_{t+1} - v_t; nothing behind a termination."""
    behind = 0.0 if p.terminated and t == len(p.reward) - 1 else GAMMA * values[t + 1]
    return p.reward[t].item() + behind - values[t]


def standardised(advantages):
    mean = sum(advantages) / len(advantages)
    std = (sum((a - mean) ** 2 for a in advantages) / len(advantages)) ** 0.5
    return [(a - mean) / (std + 1e-8) for a in advantages]


def surrogate(ratio, advantage, clip):
    """The clipped surrogate, negated (Schulman et al. 2017, arXiv:1707.06347, eq. 7): a constant, without gradient,
    where it is clipped; and on which side that is."""
    bounded = min(max(ratio.item(), 1 - clip), 1 + clip)
    if ratio * advantage <= bounded * advantage:
        return -ratio * advantage, ""
    return torch.tensor(-bounded * advantage, dtype=DOUBLE), "above" if ratio > bounded else "below"


def ppo(algo, net, pieces, fixed, space):
    """PPO's loss of some pieces (Schulman et al. 2017, eq. 7-9), its terms, and what was clipped."""
    acted = [(p, t) for p in pieces for t in range(len(p.action))]
    advantages = [fixed[id(p)]["advantage"][t] for p, t in acted]
    if algo.normalize_advantage == "minibatch":
        advantages = standardised(advantages)
    now = {id(p): unrolled(net, p, space) for p in pieces}
    policy_loss, value_loss, entropy, kl, clipped = [], [], [], [], set()
    second = {id(p): second_values(net, p) for p in pieces} if algo.ld_weight else {}
    for (p, t), advantage in zip(acted, advantages, strict=True):
        policy, value = (each[t] for each in now[id(p)])
        ratio = (policy.log_prob(p.action[t]) - p.log_prob[t]).exp()
        term, side = surrogate(ratio, advantage, algo.clip)
        policy_loss.append(term)
        clipped.add(side)
        error = (value - fixed[id(p)]["target"][t]) ** 2
        if algo.value_error_clamp is not None and error > algo.value_error_clamp:
            error = torch.tensor(algo.value_error_clamp, dtype=DOUBLE)
            clipped.add("value")
        if second:
            beside = second[id(p)][t]
            error = (error + (beside - fixed[id(p)]["second_target"][t]) ** 2) / 2
            error = (1 - algo.ld_weight) * error + algo.ld_weight * (value - beside) ** 2
        value_loss.append(error)
        entropy.append(policy.entropy())
        kl.append(kl_divergence(fixed[id(p)]["policy"][t], policy))
    terms = {"policy_loss": policy_loss, "value_loss": value_loss, "entropy": entropy, "kl": kl}
    terms = {name: mean(each) for name, each in terms.items()}
    loss = terms["policy_loss"] + algo.value_coef * terms["value_loss"] - algo.entropy_coef * terms["entropy"]
    return loss + algo.kl_coef * terms["kl"], terms, clipped


def advantages_of(p, v, lam):
    n = len(p.action)
    return [sum((GAMMA * lam) ** (k - t) * ahead(p, v, k) for k in range(t, n)) for t in range(n)]


def before_the_first_step(algo, net, pieces, space):
    """GAE as a sum of TD errors (Schulman et al. 2016, arXiv:1506.02438, eq. 16), the values' targets, the policy."""
    fixed = {}
    for p in pieces:
        with torch.no_grad():
            policies, values = unrolled(net, p, space)
        v = [value.item() for value in values]
        advantage = advantages_of(p, v, algo.gae_lambda)
        aim = [a + v_t for a, v_t in zip(advantage, v, strict=False)]
        fixed[id(p)] = {"advantage": advantage, "target": aim, "policy": policies}
        if algo.ld_weight:
            with torch.no_grad():
                v = [value.item() for value in second_values(net, p)]
            aim = [a + v_t for a, v_t in zip(advantages_of(p, v, algo.ld_lambda), v, strict=False)]
            fixed[id(p)]["second_target"] = aim
    if algo.normalize_advantage == "batch":
        every = iter(standardised([a for p in pieces for a in fixed[id(p)]["advantage"]]))
        for p in pieces:
            fixed[id(p)]["advantage"] = [next(every) for _ in p.action]
    return fixed


PPO_CASES = {
    "usual": {"max_grad_norm": 0.5},
    "batch": {"normalize_advantage": "batch", "kl_coef": 0.3, "value_error_clamp": 2.0, "max_grad_norm": None},
    "none": {"normalize_advantage": "none", "num_minibatches": 1, "gae_lambda": 0.5},
    "two critics": {"ld_weight": 0.4, "ld_lambda": 0.3, "gae_lambda": 0.9, "max_grad_norm": None},
}


@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize("space", [DISCRETE, BOX], ids=["discrete", "box"])
@pytest.mark.parametrize("case", PPO_CASES)
def test_an_update_of_ppo_is_that_of_the_equations(case, space, scheme):
    settings = {"num_minibatches": 2, "value_coef": 0.7, "entropy_coef": 0.2} | PPO_CASES[case]
    algo = PPO(head_sizes=(6,), gamma=GAMMA, lr=LR, adam_eps=EPS, epochs=2, anneal_lr=True, **settings)
    agent = make_agent(algo, space)
    algo.setup(agent, generator(2))
    rows = rollout_rows(space)
    net, adam, shuffle = Copy(agent), Adam(0.75 * LR, EPS), generator(2)
    got = algo.update(Rollout(lay_out(rows)), SCHEMES[scheme], progress=0.25)
    pieces = [p for row in rows for p in row]
    fixed = before_the_first_step(algo, net, pieces, space)
    of_batch = rows if scheme == "tape" else [[p] for p in pieces]
    found, clipped, kl_coef = [], set(), settings.get("kl_coef", 0.0)
    algo.kl_coef = kl_coef  # as it was; the update has adapted it
    for _ in range(algo.epochs):
        order = torch.randperm(len(of_batch), generator=shuffle)
        for part in order.tensor_split(algo.num_minibatches):
            loss, terms, where = ppo(algo, net, [p for row in part for p in of_batch[row]], fixed, space)
            found.append(terms)
            clipped |= where
            gradients = gradients_of(loss, net.w, net.names(""), algo.max_grad_norm)
            adam.step(net.w, gradients)
    assert clipped >= {"above", "below"} and ("value" in clipped) == (case == "batch"), "too little is clipped"
    assert_equal(agent, gradients, "the last gradient", of=lambda p: p.grad)
    assert_equal(agent, net.w, "weights")
    for term in ("policy_loss", "value_loss", "entropy", *(["kl"] if kl_coef else [])):
        expected = sum(terms[term].item() for terms in found) / len(found)
        assert got[f"ppo/{term}"] == pytest.approx(expected, **CLOSE), term


def impala(algo, net, pieces, space, before):
    """IMPALA's loss (Espeholt et al. 2018, arXiv:1802.01561, section 4.2) with V-trace as the sum of its eq. 1, and
    what was clipped. With `clip`, V-trace corrects up to the policy before the first step, whose log-probabilities
    `before` keeps, and PPO's surrogate for the steps since.
    """
    terms, clipped = [], set()
    for p in pieces:
        policies, values = unrolled(net, p, space)
        n, v = len(p.action), [value.item() for value in values]
        log_probs = [policy.log_prob(action) for policy, action in zip(policies, p.action, strict=False)]
        now = [each.item() for each in log_probs]
        then = now if algo.clip is None else before.setdefault(id(p), now)
        ratio = [exp(new - acted) for new, acted in zip(then, p.log_prob, strict=True)]
        clipped |= {"rho" if w > algo.rho_bar else "" for w in ratio} | {"c" if w > algo.c_bar else "" for w in ratio}
        rho, c = ([min(bar, w) for w in ratio] for bar in (algo.rho_bar, algo.c_bar))
        vs = list(v)
        for s in range(n):
            trace = 1.0
            for t in range(s, n):
                vs[s] += trace * rho[t] * ahead(p, v, t)
                trace *= GAMMA * algo.trace_lambda * c[t]
        for s in range(n):
            behind = 0.0 if p.terminated and s == n - 1 else GAMMA * vs[s + 1]
            advantage = rho[s] * (p.reward[s].item() + behind - v[s])
            if algo.clip is None:
                policy_loss = -advantage * log_probs[s]
            else:
                policy_loss, side = surrogate((log_probs[s] - then[s]).exp(), advantage, algo.clip)
                clipped.add(side)
            value_loss = algo.value_coef * (vs[s] - values[s]) ** 2 / 2
            terms.append(policy_loss + value_loss - algo.entropy_coef * policies[s].entropy())
    return sum(terms) if algo.reduction == "sum" else mean(terms), clipped


REMARKS = {"rho_bar": 0.8, "c_bar": 1.4, "trace_lambda": 0.6, "reduction": "mean", "momentum": 0.5, "epochs": 2}
IMPALA_CASES = {
    "published": (DISCRETE, {"max_grad_norm": 40.0}, {"rho", "c"}),
    "remarks": (DISCRETE, REMARKS, {"rho", "c"}),
    "clipped": (DISCRETE, {"clip": 0.1, "epochs": 3}, {"rho", "c", "above", "below"}),
    "adam": (BOX, {"optimiser": "adam", "rho_bar": 2.0, "max_grad_norm": 0.5}, {"rho", "c"}),
}
"""An action space, settings, and what must be clipped."""


@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize("case", IMPALA_CASES)
def test_an_update_of_impala_is_that_of_the_equations(case, scheme):
    space, settings, must_clip = IMPALA_CASES[case]
    algo = Impala(head_sizes=(6,), gamma=GAMMA, lr=0.01, eps=0.1, anneal_lr=False, entropy_coef=0.2, **settings)
    agent = make_agent(algo, space)
    algo.setup(agent, generator(2))
    rows = rollout_rows(space)
    net, before, clipped = Copy(agent), {}, set()
    algo.update(Rollout(lay_out(rows), lag=1), SCHEMES[scheme], progress=0.0)
    optim = Adam(0.01, 0.1) if algo.optimiser == "adam" else RMSProp(0.01, 0.1, algo.decay, algo.momentum)
    for _ in range(algo.epochs):
        loss, where = impala(algo, net, [p for row in rows for p in row], space, before)
        clipped |= where
        gradients = gradients_of(loss, net.w, net.names(""), algo.max_grad_norm)
        optim.step(net.w, gradients)
    assert clipped == must_clip | {""}
    assert_equal(agent, gradients, "the last gradient", of=lambda p: p.grad)
    assert_equal(agent, net.w, "weights")


def q_normed(net, h):
    """PQN's values of all actions: a layer norm (Ba et al. 2016, arXiv:1607.06450, eq. 3) before the activation."""
    x = net.linear("q.trunk.0", h)
    centred = x - x.mean()
    x = centred / (centred.square().mean() + 1e-5).sqrt() * net.w["q.trunk.1.weight"] + net.w["q.trunk.1.bias"]
    return net.linear("q.out", torch.where(x > 0, x, 0.01 * x))


def q_lambda(p, value, lam):
    """R_t = r_t + gamma ((1 - lambda) v_{t+1} + lambda R_{t+1}) of Gallici et al. 2024, arXiv:2407.04811, eq. 5, as the
    weighted mean of n-step returns (Sutton and Barto 2018, eq. 12.3)."""
    found, n = [], len(p.action)
    for t in range(n):
        steps = []
        for end in range(t + 1, n + 1):
            behind = 0.0 if p.terminated and end == n else GAMMA ** (end - t) * value[end]
            steps.append(sum(GAMMA ** (k - t) * SCALE * p.reward[k].item() for k in range(t, end)) + behind)
        weights = [(1 - lam) * lam**k for k in range(len(steps) - 1)]
        found.append(sum(w * g for w, g in zip([*weights, 1 - sum(weights)], steps, strict=True)))
    return found


@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize("masked", [False, True], ids=["all", "masked"])
def test_an_update_of_pqn_is_that_of_the_equations(masked, scheme):
    algo = PQN(head_sizes=(6,), gamma=GAMMA, lr=LR, adam_eps=EPS, epochs=2, num_minibatches=2, reward_scale=SCALE)
    agent = make_agent(algo, DISCRETE, "observation" if masked else None)
    algo.setup(agent, generator(2))
    rows = rollout_rows(DISCRETE)
    for row in rows if masked else []:
        with_masks(row, generator(3))
    net, adam, shuffle = Copy(agent), Adam(0.75 * LR, EPS), generator(2)
    got = algo.update(Rollout(lay_out(rows)), SCHEMES[scheme], progress=0.25)
    pieces = [p for row in rows for p in row]
    with torch.no_grad():
        q = {id(p): [q_normed(net, h) for h in net.features(p)] for p in pieces}
    values = {id(p): [one[best(p, t, one)].item() for t, one in enumerate(q[id(p)])] for p in pieces}
    aims = {id(p): q_lambda(p, values[id(p)], algo.td_lambda) for p in pieces}
    of_batch, losses = rows if scheme == "tape" else [[p] for p in pieces], []
    for _ in range(algo.epochs):
        for part in torch.randperm(len(of_batch), generator=shuffle).tensor_split(algo.num_minibatches):
            errors = [
                q_normed(net, h)[action] - aim
                for row in part
                for p in of_batch[row]
                for h, action, aim in zip(net.features(p), p.action, aims[id(p)], strict=False)
            ]
            losses.append(mean([error**2 / 2 for error in errors]))
            gradients = gradients_of(losses[-1], net.w, net.names(""), algo.max_grad_norm)
            adam.step(net.w, gradients)
    assert_equal(agent, gradients, "the last gradient", of=lambda p: p.grad)
    assert_equal(agent, net.w, "weights")
    assert got["pqn/loss"] == pytest.approx(mean(losses).item(), **CLOSE)
    assert got["pqn/target_mean"] == pytest.approx(mean([y for aim in aims.values() for y in aim]), **CLOSE)
