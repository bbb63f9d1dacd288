"""Taking back what a turn changed: its journal, snapshots of a workspace, and the way back."""
