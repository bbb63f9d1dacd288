"""Taking back what a turn changed: its log, snapshots of a workspace, and the way back."""
