"""Tables that come with Fairlead; README.md beside this file says where each is from."""

DEFAULT_CLUSTER = "v100=4/4,p100=4/4,k80=8/4"
"""the cluster that the default trace keeps busy"""
DEFAULT_SPEEDS = "gandiva-fair"
"""the name of the bundled speeds"""
