"""The door without a screen: `exec` tells people what happens (`human`) and programs (`jsonl`)."""
