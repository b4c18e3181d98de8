"""Exports policies for programs without this package: one file that maps observations to actions."""

from spreeze_zmq.evaluation.export.files import export_onnx, export_torchscript

__all__ = ["export_onnx", "export_torchscript"]
