"""Fresh workspaces for tasks, from a folder or a repository, and what a task changed as a patch. Usable alone."""

from ferrule.workspaces.mounts import Mounts, own_mounts
from ferrule.workspaces.source import Empty, Folder, Repository, Source, WorkspaceError
from ferrule.workspaces.workspaces import Workspace, Workspaces

__all__ = [
    "Empty",
    "Folder",
    "Mounts",
    "Repository",
    "Source",
    "Workspace",
    "WorkspaceError",
    "Workspaces",
    "own_mounts",
]
