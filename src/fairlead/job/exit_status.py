"""What a job's process says by its exit status, besides 0 for finished."""

LEFT = 85
"""checkpointed and gave up the devices; to be continued"""
REFUSED = 86
"""a later lease runs the job, nothing was written"""
FAILED_TO_SAVE = 87
"""left, but the steps since the last checkpoint must be made again"""
