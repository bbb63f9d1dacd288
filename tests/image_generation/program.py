"""An image program for tests: draws, or tries to get out."""

import json
import socket
import sys
from pathlib import Path

asked = json.load(sys.stdin)
prompt, output = asked["prompt"], Path(asked["output"])
if prompt.startswith("escape "):
    tried = {}
    _, folder, port = prompt.split(" ")
    try:
        Path(folder, "left.txt").write_text("x")
        tried["write"] = "done"
    except OSError as error:
        tried["write"] = type(error).__name__
    try:
        socket.create_connection(("127.0.0.1", int(port)), 1)
        tried["network"] = "done"
    except OSError as error:
        tried["network"] = type(error).__name__
    sys.exit(json.dumps(tried))
else:
    from PIL import Image

    image = Image.open(asked["image"]) if "image" in asked else Image.new("RGB", (40, 30), "red")
    if "mask" in asked:
        image.paste(0, (0, 0), Image.open(asked["mask"]).convert("L"))
    image.rotate(90, expand=True).save(output, asked["output_format"].upper())
