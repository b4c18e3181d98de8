"""Networks that are their layers alone are described to every reader, and stacked in ensembles; no others."""

import pytest
import torch
import torch.nn.utils.prune

from spreeze_zmq import nn


def with_forward(network):
    """One whose ``forward`` is its own."""
    network.forward = lambda x: -x
    return network


def pruned(network):
    """One whose weight comes after its bias."""
    torch.nn.utils.prune.l1_unstructured(network[0], "weight", 0.5)
    torch.nn.utils.prune.remove(network[0], "weight")
    return network


def hooked(network, at):
    """One whose output a hook changes; its first layer's, or its own."""
    (network[0] if at == "layer" else network).register_forward_hook(lambda module, given, output: -output)
    return network


class Called(torch.nn.Sequential):
    """Computes more than its layers where it is called."""

    def __call__(self, x):
        """Of the other sign."""
        return -super().__call__(x)


class Negated(torch.nn.Sequential):
    """Computes more than its layers."""

    def forward(self, x):
        """Of the other sign."""
        return -super().forward(x)


CHANGES = {
    "subclass": lambda network: Negated(*network),
    "subclass of calls": lambda network: Called(*network),
    "nested subclass": lambda network: torch.nn.Sequential(Negated(*network), torch.nn.ReLU()),
    "spectral_norm": lambda network: (torch.nn.utils.spectral_norm(network[0]), network)[1],
    "parametrized": lambda network: (torch.nn.utils.parametrizations.weight_norm(network[0]), network)[1],
    "pruned": pruned,
    "hook": lambda network: hooked(network, "itself"),
    "hook of a layer": lambda network: hooked(network, "layer"),
    "forward": with_forward,
    "forward of a layer": lambda network: (with_forward(network[0]), network)[1],
    "a parameter": lambda network: (
        network.register_parameter("a", torch.nn.Parameter(torch.ones(2))),
        network,
    )[1],
    "a layer twice": lambda network: torch.nn.Sequential(network[0], network[0]),
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_a_network_that_is_more_than_its_layers_has_no_description(change):
    """It would be evaluated as the layers alone, or with its parameters in another order."""
    assert nn.describe(torch.nn.Sequential(torch.nn.Linear(2, 2))) is not None
    assert nn.describe(change(torch.nn.Sequential(torch.nn.Linear(2, 2)))) is None


@pytest.mark.parametrize("name", ["subclass", "spectral_norm", "parametrized", "hook of a layer", "forward"])
def test_an_ensemble_refuses_a_network_that_is_more_than_its_layers(name):
    """It would be trained as the layers alone."""
    with pytest.raises(ValueError, match="an ensemble"):
        nn.ensemble(2, lambda: CHANGES[name](torch.nn.Sequential(torch.nn.Linear(2, 2))))


class Q(torch.nn.Sequential):
    """Three layers, as torch's users write them."""

    def __init__(self):
        super().__init__(torch.nn.Linear(3, 8), torch.nn.ELU(), torch.nn.Linear(8, 2))


def test_a_subclass_that_only_makes_its_layers_is_these():
    """Itself, within another network, and with a hook of gradients, which changes no output."""
    network = Q()
    expected = nn.describe(torch.nn.Sequential(*network))
    assert len(expected) == 3
    assert nn.describe(network) == nn.describe(torch.nn.Sequential(network)) == expected
    network.register_full_backward_hook(lambda module, of_x, of_y: None)
    network[1].register_full_backward_pre_hook(lambda module, of_y: None)
    assert nn.describe(network) == expected


def test_an_ensemble_of_a_subclass_is_its_networks_side_by_side():
    """As that of the same layers without a class."""
    made = []

    def make():
        made.append(Q())
        return made[-1]

    x = torch.randn(5, 3)
    torch.testing.assert_close(nn.ensemble(2, make)(x), torch.stack([network(x) for network in made]))


MIXED = {
    "ReLU.* beside Tanh": [torch.nn.Tanh(), torch.nn.ReLU()],
    "eps=0.1.* beside LayerNorm.*eps=1e-05": [torch.nn.LayerNorm(8), torch.nn.LayerNorm(8, eps=0.1)],
    "alpha=0.5.* beside ELU.*alpha=1": [torch.nn.ELU(), torch.nn.ELU(0.5)],
    "out_features=1, .* beside Linear.*out_features=8": [torch.nn.Linear(8, 8), torch.nn.Linear(8, 1)],
    "cannot hold Linear.*bias=False": [torch.nn.Linear(8, 8, bias=False), torch.nn.Linear(8, 8, bias=False)],
    "equally many layers": [torch.nn.ReLU(), None],
}


@pytest.mark.parametrize(("said", "layers"), MIXED.items(), ids=MIXED)
def test_an_ensemble_of_networks_that_differ_is_refused(said, layers):
    """One of them would compute what another one does."""
    networks = [torch.nn.Sequential(torch.nn.Linear(4, 8), *filter(None, [each])) for each in layers]
    with pytest.raises(ValueError, match=f"an ensemble .*{said}"):
        nn.ensemble(2, iter(networks).__next__)
