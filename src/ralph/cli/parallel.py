"""What the settings say of work side by side, as a run is started with it."""

from ralph.documents.config import SlotSettings, WorkspaceSettings
from ralph.documents.run_record import SlotLimits, TreeSettings


def slot_limits(settings: SlotSettings, run: int | None = None) -> SlotLimits:
    """How many turns may run at once."""
    return SlotLimits(run or settings.run, settings.machine, settings.agents)


def tree_settings(settings: WorkspaceSettings) -> TreeSettings:
    """How worktrees are furnished."""
    most = None if settings.disk_gib is None else int(settings.disk_gib * (1 << 30))
    return TreeSettings(settings.setup, settings.copy_files, settings.share, most, settings.setup_minutes * 60)
