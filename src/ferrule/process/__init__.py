"""Starting, watching and ending processes."""
