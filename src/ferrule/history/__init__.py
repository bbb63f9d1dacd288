"""The items of a conversation: calls and outputs as pairs, tokens, compaction. Knows no session and no file."""
