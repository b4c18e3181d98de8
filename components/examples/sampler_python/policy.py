"""Acts with any policy that PROTOCOL.md describes: its network and its distribution, for one observation."""

import numpy as np


def network(fields, arrays, obs):
    """The output of the last layer for one observation."""
    about = fields["description"]
    x = np.asarray(obs, np.float32).reshape(-1)
    if about["observation"]["normalize"]:
        clip = about["observation"]["clip"]
        x = (x - arrays["observation_mean"].reshape(-1)) / arrays["observation_std"].reshape(-1)
        x = np.clip(x, -clip, clip)
    at = 0

    def take(*shape):
        nonlocal at
        at += int(np.prod(shape))
        return arrays["parameters"][at - int(np.prod(shape)) : at].reshape(shape)

    for layer in about["layers"]:
        if layer["kind"] == "linear":
            x = take(layer["out"], layer["in"]) @ x + take(layer["out"])
        elif layer["kind"] == "layer_norm":
            x = (x - x.mean()) / np.sqrt(x.var() + layer["eps"]) * take(layer["size"]) + take(layer["size"])
        elif layer["kind"] == "relu":
            x = np.maximum(x, 0)
        elif layer["kind"] == "elu":
            x = np.where(x > 0, x, np.exp(np.minimum(x, 0)) - 1)
        elif layer["kind"] == "tanh":
            x = np.tanh(x)
        elif layer["kind"] == "silu":
            x = x / (1 + np.exp(-x))
        elif layer["kind"] == "conv2d":
            c, size, step = layer["shape"][0], layer["kernel"], layer["stride"]
            patches = np.lib.stride_tricks.sliding_window_view(x.reshape(layer["shape"]), (c, size, size))
            weight, bias = take(layer["out"], c, size, size), take(layer["out"], 1, 1)
            x = (np.einsum("ijcmn,kcmn->kij", patches[0, ::step, ::step], weight) + bias).reshape(-1)
        elif layer["kind"] == "append":
            x = np.concatenate([x, take(layer["size"])])
        elif layer["kind"] == "dueling":
            x = x.reshape(1 + layer["actions"], layer["atoms"])
            x = (x[0] + x[1:] - x[1:].mean(0)).reshape(-1)
        else:
            raise ValueError(f"unknown layer {layer['kind']}")
    if at != arrays["parameters"].size:
        raise ValueError(f"it has {arrays['parameters'].size} parameters, its layers take {at}")
    return x


def places(index, num_envs):
    """Where each of a sampler's environments stands among all, [num_envs], 0 to 1: those of the first
    samplers are spread evenly, however many these are.
    """
    return (np.arange(num_envs) + (0.5 + index * (5**0.5 - 1) / 2) % 1) / num_envs


def act(fields, arrays, obs, rng=None, place=0.0, action_mask=None):
    """The action as it is drawn, and its log_prob; the deterministic one without ``rng``."""
    about, out = fields["description"]["distribution"], network(fields, arrays, obs)
    if about.get("action_mask") and action_mask is None:
        raise ValueError("the policy needs to know which actions are legal")
    action_mask = action_mask if about.get("action_mask") else None
    if about["kind"] == "categorical":
        out = out if action_mask is None else np.where(action_mask, out, np.float32(-np.inf))
        action, log_prob = [], 0.0
        for logits in np.split(out, np.cumsum(about["sizes"])[:-1]):
            noise = 0 if rng is None else -np.log(rng.standard_exponential(logits.size))
            action.append(int(np.argmax(logits + noise)))
            log_prob += logits[action[-1]] - logits.max() - np.log(np.exp(logits - logits.max()).sum())
        return np.array(action if len(action) > 1 else action[0]), log_prob
    if about["kind"] == "epsilon_greedy":
        values = out.reshape(about["num_actions"], about["atoms"])
        legal = np.arange(len(values)) if action_mask is None else np.flatnonzero(action_mask)
        n = len(legal)
        if about["atoms"] > 1:
            weight = np.exp(values - values.max(1, keepdims=True))
            values = weight / weight.sum(1, keepdims=True)
            values = values * np.linspace(about["v_min"], about["v_max"], about["atoms"])
        best = action = int(legal[np.argmax(values.sum(1)[legal])])
        epsilon = about["epsilon"] ** (1 + about["spread"] * place)
        if rng is not None and rng.random() < epsilon:
            action = int(legal[rng.integers(n)])
        return np.array(action), np.log(epsilon / n + (1 - epsilon) * (action == best))
    bounded = "action_low" in arrays
    low, high = (arrays["action_low"], arrays["action_high"]) if bounded else (-1.0, 1.0)
    centre, half = (low + high) / 2, (high - low) / 2
    if about["kind"] == "deterministic":
        sigma = about["noise_min"] + (about["noise_max"] - about["noise_min"]) * place
        noise = 0 if rng is None else rng.standard_normal(out.size, np.float32)
        return centre + half * np.clip(np.tanh(out) + sigma * noise, -1, 1), None
    mean, raw = np.split(out, 2)
    noise = np.zeros(mean.size) if rng is None else rng.standard_normal(mean.size, np.float32)
    a, b = about["log_std_min"], about["log_std_max"]
    if about["kind"] == "tanh_normal":
        log_std = a + 0.5 * (b - a) * (np.tanh(raw) + 1)
        u = mean + np.exp(log_std) * noise
        # log(1 - tanh(u)^2), written so that a large u does not give log(0)
        squash = 2 * (np.log(2) - u - np.logaddexp(0, -2 * u))
    elif about["kind"] == "normal":
        log_std = np.clip(raw, a, b)
        u, squash = mean + np.exp(log_std) * noise, 0
        if rng is None and bounded:
            u = np.clip(u, -1, 1)
    else:
        raise ValueError(f"unknown distribution {about['kind']}")
    log_prob = np.sum(-0.5 * noise**2 - log_std - 0.5 * np.log(2 * np.pi) - squash)
    return centre + half * (np.tanh(u) if about["kind"] == "tanh_normal" else u), log_prob
