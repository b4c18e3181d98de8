"""Multilayer perceptrons over one flat parameter buffer, with the backward pass written out.

Weights of all layers are views of one float32 buffer and so are their gradients: export, import, optimiser
step and target update are one call each. Autograd would allocate every intermediate anew and dispatch twice
the calls, which at small batches costs more than the products themselves; here everything is laid out once
for a number of rows, and an update only makes the calls.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import repeat

import torch

from spreeze_zmq.algorithms.fast.activations import STORED, Activation, stored, takes_bias
from spreeze_zmq.algorithms.fast.layers import Buffer, Layer, LayerNorm, Linear, Step, run
from spreeze_zmq.algorithms.fast.layout import Layout, Pass, adding
from spreeze_zmq.algorithms.fast.packing import LayerDescription, views
from spreeze_zmq.algorithms.fast.scratch import LAYOUTS_KEPT, Scratch, Spares, turned


class Mlp:
    """``E`` networks of one shape, evaluated on the same rows.

    The CPU takes them one after the other in float32, so that what one has just computed is still in the
    core's cache; elsewhere all are one batched product.

    Args:
        layers: the description of one network.
        parameters: flat float32 ``[P]``, viewed and not copied; call ``refresh`` after changing it.
        gradient: flat float32 ``[P]`` that ``fit`` and ``backward`` fill; None for networks that stay.
        num_networks: ``E``.
        dtype: format of weights and activations in the products.
        spares: what holds only until another of their users is called: gradients, and the outputs of a
            network that is ``forward_only``.
        forward_only: no call of ``fit``, ``backward`` or ``input_gradient`` follows.
        block_rows: so many rows at a time, in ``fit`` and in networks that are ``forward_only``; 0 for all.
        columns: those of the input that ``input_gradient`` is wanted of.
        by_output: the few outputs are worked on one by one, so they had better lie so: ``[E, out, B]`` in
            memory, where that is no slower.
        input_of: where so many rows are read that others read too, in float32; by default and otherwise in
            the networks' own buffer.

    The tensors that its methods return are its own buffers: they hold until the next call.
    """

    def __init__(
        self,
        layers: Sequence[LayerDescription],
        parameters: torch.Tensor,
        gradient: torch.Tensor | None = None,
        num_networks: int = 1,
        dtype: torch.dtype = torch.float32,
        spares: Spares | None = None,
        forward_only: bool = False,
        block_rows: int = 0,
        columns: slice = slice(None),
        by_output: bool = False,
        input_of: Callable[[int], torch.Tensor] | None = None,
    ):
        self.parameters = parameters
        self.gradient = gradient
        self.num_networks = num_networks
        self._description = layers
        self._weights = parameters if dtype == torch.float32 else parameters.to(dtype)
        self._gradients = gradient if dtype == torch.float32 or gradient is None else gradient.to(dtype)
        self._block_rows, self._columns = block_rows, columns
        # The CPU's bf16 kernel reads beyond the columns of a view.
        self._input_of = input_of if dtype == torch.float32 else None
        apart = dtype == torch.float32 and parameters.device.type == "cpu"
        self._at_once = 1 if apart else num_networks
        # Such an output's gradient is but a factor of each row, which costs the less the later it comes in.
        self._of_one = layers[-1]["out"] == 1 and len(layers) > 1
        self._by_output = apart and (by_output or layers[-1]["out"] == 1)
        # Activations as ``[E, size, B]`` in memory: products with turned weights become plain ones, and those
        # of few outputs take half the time. A layer norm's kernel wants each row in one place.
        self._by_unit = apart and all(layer["kind"] != "layer_norm" for layer in layers)
        self._forward_only = forward_only
        self._wants_input_gradient = gradient is None and not forward_only
        self._scratch = scratch = partial(Scratch, dtype, parameters.device)
        self._spares = self._laid(spares or Spares(dtype, parameters.device))
        self._temporary = self._laid(scratch())
        self._wide = Spares(torch.float32, parameters.device)
        # Of each layer of the networks that are evaluated at once.
        self._kept: defaultdict[tuple[int, int], Scratch] = defaultdict(scratch)
        self._layouts: dict[int, Layout] = {}

    def refresh(self) -> None:
        """Carry a change of ``parameters`` into the copy that the products use."""
        if self._weights is not self.parameters:
            self._weights.copy_(self.parameters)

    def input(self, num_rows: int) -> torch.Tensor:
        """``[B, in]``, what ``forward`` and ``fit`` would copy their rows to."""
        return self._layout(num_rows).input

    def output_gradient(self, num_rows: int) -> torch.Tensor:
        """``[E, B, out]``, what ``backward`` and ``input_gradient`` would copy theirs to."""
        return self._layout(num_rows).output_gradient

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Rows ``[B, in]`` shared by all networks to ``[E, B, out]`` in the products' format."""
        layout = self._filled(x)
        for one in layout.passes:
            run(one.forward)
        return layout.output

    def fit(
        self, x: torch.Tensor, loss_gradient: Callable[[torch.Tensor, slice, torch.Tensor], object]
    ) -> torch.Tensor:
        """``forward``, and fill ``gradient``.

        Args:
            x: rows ``[B, in]`` shared by all networks.
            loss_gradient: from the output ``[e, b, out]`` of some networks for these ``b`` rows, fill the
                gradient that comes last. All rows of the first ``e`` networks come before those of the next.
        """
        layout = self._filled(x)
        for one in layout.passes:
            run(one.forward)
            loss_gradient(one.output, one.rows, one.output_gradient)
            self._parameter_gradients(one, add=one.rows.start > 0)
        return layout.output

    def backward(self, gradient: torch.Tensor, add: bool = False) -> None:
        """Fill ``self.gradient`` from that of the last ``forward``'s output ``[1, B, out]``, or add to it;
        once after each ``forward``.

        Only for one network: of several, all but the last have lost their activations. See ``fit``.
        """
        layout = self._layout(gradient.shape[1])
        (one,) = layout.passes
        if gradient is not layout.output_gradient:
            layout.output_gradient.copy_(gradient)
        self._parameter_gradients(one, add)

    def input_gradient(self, gradient: torch.Tensor) -> torch.Tensor:
        """The gradient of the last ``forward``'s input, ``[B, len(columns)]``, from that of its output ``[E,
        B, out]``; only of networks without gradients of their own, and once after each ``forward``.
        """
        assert self.gradient is None
        layout = self._layout(gradient.shape[1])
        if gradient is not layout.output_gradient:
            layout.output_gradient.copy_(gradient)
        for one in layout.passes:
            run(one.backward)
        run(layout.add_up)
        return layout.input_gradient

    def _parameter_gradients(self, one: Pass, add: bool) -> None:
        assert self.gradient is not None, "this network was made without gradients"
        assert self._gradients is not None
        if self._gradients is self.gradient:
            run(one.add if add else one.fill)
        else:  # sums over many rows are kept in float32
            run(one.fill)
            (self.gradient.add_ if add else self.gradient.copy_)(self._gradients)

    def _filled(self, x: torch.Tensor) -> Layout:
        layout = self._layout(x.shape[0])
        if x is not layout.input:
            layout.input.copy_(x)
        return layout

    # --- laying out for a number of rows

    def _layout(self, num_rows: int) -> Layout:
        layout = self._layouts.get(num_rows)
        if layout is None:
            if len(self._layouts) == LAYOUTS_KEPT:
                del self._layouts[next(iter(self._layouts))]
            layout = self._layouts[num_rows] = self._lay_out(num_rows)
        return layout

    def _lay_out(self, num_rows: int) -> Layout:
        first, last = self._description[0], self._description[-1]
        rows = self._input_of(num_rows) if self._input_of else self._scratch()(num_rows, first["in"])
        output, output_gradient = (self._outputs(num_rows, last["out"]) for _ in range(2))
        columns = range(first["in"])[self._columns] if self._wants_input_gradient else ()
        parts = self._laid(self._scratch())(self.num_networks, num_rows, len(columns))
        total = self._laid(Scratch(torch.float32, rows.device))(1, num_rows, len(columns))[0]
        factors = output_gradient if self._of_one else [None] * self.num_networks
        add_up = [
            adding(part, factor, total, first=network == 0)
            for network, (part, factor) in enumerate(zip(parts, factors, strict=True))
        ]
        layout = Layout(rows, output, output_gradient, parts, total, add_up, [])
        step = self._block_rows or max(num_rows, 1)
        for network in range(0, self.num_networks, self._at_once):
            which = slice(network, network + self._at_once)
            for start in range(0, num_rows, step):
                layout.passes.append(self._pass(layout, which, slice(start, min(start + step, num_rows))))
        return layout

    def _outputs(self, num_rows: int, num_outputs: int) -> torch.Tensor:
        if self._by_output:
            return turned(self._scratch(), self.num_networks, num_rows, num_outputs)
        return self._scratch()(self.num_networks, num_rows, num_outputs)

    def _pass(self, layout: Layout, which: slice, rows: slice) -> Pass:
        x = layout.input[rows].expand(which.stop - which.start, -1, -1)
        output, output_gradient = layout.output[which, rows], layout.output_gradient[which, rows]
        layers = self._build(x, which, output)
        fill: list[Step] = []
        add: list[Step] = []
        backward: list[Step] = []
        gradient = output_gradient
        factor = output_gradient if self._of_one else None
        for layer in reversed(layers):
            if self.gradient is not None:
                fill += layer.parameter_gradients(gradient, add=False)
                add += layer.parameter_gradients(gradient, add=True)
            if layer is layers[0]:
                break
            gradient, steps = self._through(layer, layers, gradient, factor)
            backward += steps
            fill += steps
            add += steps
        forward = [step for layer in layers for step in layer.forward]
        if self._wants_input_gradient:
            first = layers[0]
            assert isinstance(first, Linear)
            backward.append(
                first.input_gradient(gradient, self._columns, layout.input_gradients[which, rows])
            )
            if factor is not None:  # which is all that is not known yet
                forward, backward = forward + backward, []
        return Pass(rows, output, output_gradient, forward, fill, add, backward)

    def _through(
        self, layer: Layer, layers: Sequence[Layer], gradient: torch.Tensor, factor: torch.Tensor | None
    ) -> tuple[torch.Tensor, list[Step]]:
        """Backward through one of the layers; where there is a factor of each row, the last layer leaves the
        gradient of 1 to the activation below it.
        """
        if factor is None or layer not in layers[-2:]:
            return layer.backward(gradient, self._spares)
        if layer is layers[-1]:
            return gradient, []
        assert isinstance(layer, Activation)
        assert isinstance(layers[-1], Linear)
        gradient, steps = layer.backward_of_row(layers[-1].weight)
        if self.gradient is not None:
            steps.append(partial(torch.mul, gradient, factor, out=gradient))
        return gradient, steps

    def _build(self, x: torch.Tensor, which: slice, output: torch.Tensor) -> list[Layer]:
        """The layers of some networks for some rows, of which the last writes ``output``."""

        def pairs(flat: torch.Tensor) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
            parameters = (view[which] for view in views(flat, self._description, self.num_networks))
            return zip(parameters, parameters, strict=True)

        weights = pairs(self._weights)
        of_norms = pairs(self.parameters if x.device.type == "cpu" else self._weights)
        gradients = repeat(None) if self._gradients is None else pairs(self._gradients)
        built: list[Layer] = []
        due: torch.Tensor | None = None  # a bias that the next layer adds
        kinds = ["", *(layer["kind"] for layer in self._description), ""]
        for layer, before, after in zip(self._description, kinds[:-2], kinds[2:], strict=True):
            buffer = self._buffer(len(built), which)
            if layer["kind"] not in ("linear", "layer_norm"):
                applied = before == "layer_norm" and layer["kind"] in STORED
                built.append(Activation(layer["kind"], x, buffer, due, applied))
                due = None
            else:
                pair, pair_of_norm, wanted = next(weights), next(of_norms), next(gradients)
                if layer["kind"] == "layer_norm":
                    store = partial(stored, after)
                    built.append(LayerNorm(x, pair_of_norm, wanted, buffer, self._wide, layer["eps"], store))
                elif after:
                    due = pair[1] if takes_bias(after, x) else None
                    built.append(Linear(x, pair, wanted, buffer, self._temporary, due is not None))
                else:
                    built.append(Linear(x, pair, wanted, output, self._temporary, by_output=self._by_output))
            x = built[-1].output
        return built

    def _buffer(self, place: int, which: slice) -> Buffer:
        if self._forward_only:
            return self._spares
        # Networks of one output and those that are trained go backward before the next goes forward.
        soon = self.gradient is not None or self._of_one
        return self._laid(self._kept[place, 0 if soon else which.start])

    def _laid(self, buffer: Buffer) -> Buffer:
        """As the activations lie in memory."""
        return partial(turned, buffer) if self._by_unit else buffer
