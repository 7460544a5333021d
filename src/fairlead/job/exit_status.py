"""Exit statuses of a job's process, besides 0 for finished."""

EXIT_PREEMPTED = 85
"""checkpointed and gave up its devices; a later lease continues the job"""
EXIT_FENCED = 86
"""a later lease runs the job; nothing was written"""
EXIT_SAVE_FAILED = 87
"""gave up its devices without a checkpoint; the steps since the last one are repeated"""

LEFT, REFUSED, FAILED_TO_SAVE = EXIT_PREEMPTED, EXIT_FENCED, EXIT_SAVE_FAILED
"""earlier names, kept for scripts that import them"""
