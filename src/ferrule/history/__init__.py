"""The items of a conversation: calls and outputs as pairs, tokens, compaction. It knows no session and no file."""
