"""The files below a folder that ignore files leave in: globs, the rules of git and ripgrep, a walk. Runs no git."""
