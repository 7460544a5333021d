"""Bundled tables; README.md in this folder lists their sources."""

DEFAULT_CLUSTER = "v100=4/4,p100=4/4,k80=8/4"
"""cluster that the default trace keeps busy"""
DEFAULT_SPEEDS = "gandiva-fair"
"""name of the bundled speed table"""
RESTORE_COST_S = 20.0
"""seconds that a restart costs a job in comparisons: checkpoint, new process, restore"""
