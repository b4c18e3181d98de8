"""Fresh parameters, and where each lies in the flat buffer."""

import torch

from spreeze_zmq.algorithms.fast.packing import describe, initialize, num_parameters, views


def test_first_weights_follow_the_seed():
    """The same generator state gives the same network, and the last layer is scaled."""
    layers = describe(5, (8,), 3, "relu")
    first, again, small = (
        initialize(layers, 1, torch.Generator().manual_seed(4), scale) for scale in (1.0, 1.0, 0.01)
    )
    assert torch.equal(first, again)
    last = 8 * 3 + 3
    assert torch.equal(first[:-last], small[:-last])
    torch.testing.assert_close(first[-last:] * 0.01, small[-last:])
    assert first[: 5 * 8].abs().max() <= 5**-0.5


def test_the_same_layer_of_all_networks_lies_together():
    """Weight then bias, layer by layer, each of every network; the views cover the buffer once."""
    layers = describe(5, (8,), 3, "relu", layer_norm=True)
    flat = torch.arange(float(num_parameters(layers, 2)))
    parts = list(views(flat, layers, 2))
    assert [tuple(part.shape) for part in parts] == [(2, 8, 5), (2, 8), (2, 8), (2, 8), (2, 3, 8), (2, 3)]
    assert torch.equal(torch.cat([part.reshape(-1) for part in parts]), flat)
    assert all(part.untyped_storage().data_ptr() == flat.data_ptr() for part in parts)
