"""Linux: the zygote (`zygote.py`, `filesystem.py`, `kernel.py`: a process of its own), our side of it, lower levels."""
