"""Read git repositories as git does, without running it: where they lie, what their settings would run."""
