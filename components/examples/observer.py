"""An observer without a page, ``python observer.py RUN_FOLDER``: prints what a live run says of itself."""

import json
import sys
from pathlib import Path

import msgpack
import zmq

feed = json.loads((Path(sys.argv[1]) / "run.json").read_text())["channels"]["feed"]
socket = zmq.Context().socket(zmq.SUB)
socket.linger, socket.rcvhwm, socket.reconnect_ivl_max = 0, feed["high_water_mark"], 200
socket.subscribe(b"")
socket.connect(feed["endpoint"])
had: dict[tuple[str, int, str], int] = {}
topic = ""
while topic != "end":
    header = msgpack.unpackb(socket.recv_multipart()[0])
    topic, t_s, about = (header["fields"][name] for name in ("topic", "t_s", "about"))
    key = header["sender"], header["incarnation"], topic
    if header["sequence"] <= had.get(key, -1):
        continue  # sent again for somebody who joined late
    had[key] = header["sequence"]
    if topic == "status":
        best = about["evaluation"]["best"] or {}  # None before the first evaluation
        about = {name: about[name] for name in ("env_steps", "env_steps_per_s")}
        about["best_return"] = best.get("mean_return")
    figures = ", ".join(f"{name} {value}" for name, value in about.items())
    print(f"{t_s:8.1f} s  {topic}: {figures}", flush=True)
