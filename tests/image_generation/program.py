"""An image program for tests: draws as the prompt says, or does what it names."""

import json
import os
import socket
import sys
import time
from pathlib import Path

from PIL import Image

asked = json.load(sys.stdin)
prompt, output = asked["prompt"], Path(asked["output"])
if prompt == "slow":
    time.sleep(60)
elif prompt == "fail":
    sys.exit("out of memory")
elif prompt == "link":
    output.symlink_to("/etc/passwd")
elif prompt == "pipe":
    os.mkfifo(output)
elif prompt == "words":
    output.write_text("no image")
elif prompt.startswith("escape "):
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
elif prompt != "nothing":
    image = Image.open(asked["image"]) if "image" in asked else Image.new("RGB", (40, 30), "red")
    mask = Path(asked["mask"]).stat().st_size if "mask" in asked else 0
    print(f"made with {sorted(asked)} in {os.getcwd()}, mask {mask}")
    if image.size == (40, 30) or "image" in asked:
        image.rotate(90, expand=True).save(output, asked["output_format"].upper())
