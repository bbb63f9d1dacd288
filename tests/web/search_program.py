"""A search program for tests: answers with what it was asked, or as its argument says."""

import json
import os
import sys
import time

mode = sys.argv[1] if len(sys.argv) > 1 else ""
asked = json.load(sys.stdin)
if mode == "slow":
    time.sleep(60)
if mode == "wrong":
    print("no JSON")
elif mode == "fails":
    sys.exit("it broke")
else:
    seen = {"asked": asked, "given": os.environ.get("GIVEN"), "secret": os.environ.get("OTHER_SECRET")}
    print(json.dumps({"results": [{"link": "https://a.example/", "title": "A", "snippet": json.dumps(seen)}]}))
