"""Git repositories, read as git reads them and without running it: where they lie, what their settings would run."""
